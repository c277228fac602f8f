"""Mutants of `remoteclaw/attach/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "an answer of the person's terminal that is typed",
        before='if parameters[:1] in (b"<", b"=", b">", b"?"):',
        after="if False:",
        test="test_what_nobody_has_typed_is_dropped_and_what_follows_is_typed",
    ),
    Mutant(
        "a string of the person's terminal that is typed",
        before='_STRINGS = b"PX]^_"',
        after='_STRINGS = b"X"',
        test="test_what_nobody_has_typed_is_dropped_and_what_follows_is_typed",
    ),
    Mutant(
        "half of a sequence that becomes Esc",
        before='is_esc = self._waiting == b"\\x1b" and not self._is_skipping',
        after="is_esc = True",
        test="test_half_of_something_is_dropped_after_a_pause",
    ),
    Mutant(
        "a Ctrl-] that a keyboard protocol hides",
        before='elif final == b"~" and number == 27 and len(fields) == 3:',
        after="elif False:",
        test="test_a_person_types_in_an_agent_s_program",
    ),
    Mutant(
        "the rest of a large paste that is typed",
        before="self._is_too_large = True\nself._waiting",
        after="self._is_pasting = False\nself._waiting",
        test="test_a_paste_that_is_too_large_is_none_and_nothing_of_it_is_typed",
    ),
    Mutant(
        "a frame's escape sequence that is painted",
        before="pieces = _pieces(plain(run[0]), style, width, room=cols - column)",
        after="pieces = _pieces(run[0], style, width, room=cols - column)",
        test="test_nothing_hostile_in_a_frame_is_obeyed",
    ),
    Mutant(
        "a link that ends itself",
        before="if not isinstance(address, str) or not _LINK.fullmatch(address):",
        after="if not isinstance(address, str):",
        test="test_nothing_hostile_in_a_frame_is_obeyed",
    ),
    Mutant(
        "a screen that is painted anew for each key",
        before="if row != before:",
        after="if True:",
        test="test_only_rows_that_differ_are_painted",
    ),
    Mutant(
        "what stood behind a shorter row",
        before="if column < cols:\nparts.append",
        after="if False:\n    parts.append",
        test="test_what_is_painted_step_by_step_is_what_the_frame_says",
    ),
    Mutant(
        "a killed attach that leaves its screen behind",
        before="self._write_all(LEAVE)",
        after="pass",
        test="test_a_killed_attach_puts_the_terminal_back",
    ),
    Mutant(
        "a killed attach that leaves a raw terminal",
        before="termios.tcsetattr(self._fd, termios.TCSANOW, before)",
        after="pass",
        test="test_a_killed_attach_puts_the_terminal_back",
    ),
    Mutant(
        "a reader who takes the keyboard",
        before="self._far.wants_keyboard = not is_reader",
        after="self._far.wants_keyboard = True",
        test="test_read_only_sends_nothing_whatever_is_typed",
    ),
    Mutant(
        "a keyboard that is taken from who types",
        before="await self.take(force=False)",
        after="await self.take(force=True)",
        test="test_another_one_takes_the_keyboard_and_it_is_taken_back",
    ),
    Mutant(
        "a key that is dropped while the keyboard is being taken",
        before="elif not (at.far.is_writer or at.far.is_taking):",
        after="elif not at.far.is_writer:",
        test="test_what_it_waits_for_is_in_the_last_line",
    ),
    Mutant(
        "a keyboard that is lost with the connection",
        before="while self.wants_keyboard:",
        after="while self.wants_keyboard and not self.is_writer:",
        test="test_a_gateway_that_restarts_is_found_again",
    ),
    Mutant(
        "a screen that lacks something and stays so",
        before="self._far.watch_again()",
        after="pass",
        test="test_a_person_types_in_an_agent_s_program",
    ),
    Mutant(
        "a Ctrl-Z that stops the program",
        before="if isinstance(typed, Key) and typed.name in REFUSED:",
        after="if False:",
        test="test_a_person_types_in_an_agent_s_program",
    ),
    Mutant(
        "a window whose size nobody learns",
        before="self._is_resized.set()",
        after="pass",
        test="test_a_person_types_in_an_agent_s_program",
    ),
    Mutant(
        "the clipboard in a program's hands",
        before="self._offered = text",
        after="self._offered = text\nself.copy()",
        test="test_what_it_waits_for_is_in_the_last_line",
    ),
    Mutant(
        "the exit status of the program, forgotten",
        before='code, f"The program has ended with',
        after='0, f"The program has ended with',
        test="test_the_exit_status_is_the_program_s",
    ),
    Mutant(
        "a dialog that an answer from before it hides",
        before="await self._link.tell(method, {",
        after="self.record |= await self._link.tell(method, {",
        test="test_what_it_waits_for_is_in_the_last_line",
    ),
)
