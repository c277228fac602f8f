"""Mutants of `remoteclaw/attach/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "an escape sequence in a frame that is painted",
        before="pieces = _pieces(plain(run[0]), style, width, room=cols - column)",
        after="pieces = _pieces(run[0], style, width, room=cols - column)",
        test="test_hostile_text_in_a_frame_is_not_obeyed",
    ),
    Mutant(
        "a read-only attach that takes the keyboard",
        before="self._remote.wants_keyboard = not is_reader",
        after="self._remote.wants_keyboard = True",
        test="test_attach_with_read_only_sends_no_input",
    ),
    Mutant(
        "a clipboard that a program can set without the person",
        before="self._offered = text",
        after="self._offered = text\nself.copy()",
        test="test_the_status_line_shows_what_the_terminal_waits_for",
    ),
)
