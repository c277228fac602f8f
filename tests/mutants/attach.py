"""Mutants of `remoteclaw/attach/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a reply of the person's terminal that is typed into the program",
        before='if parameters[:1] in (b"<", b"=", b">", b"?"):',
        after="if False:",
        test="test_sequences_that_nobody_typed_are_dropped_and_later_keys_are_kept",
    ),
    Mutant(
        "a control string of the person's terminal that is typed into the program",
        before='_STRINGS = b"PX]^_"',
        after='_STRINGS = b"X"',
        test="test_sequences_that_nobody_typed_are_dropped_and_later_keys_are_kept",
    ),
    Mutant(
        "an incomplete sequence that becomes Esc",
        before='is_esc = self._buffer == b"\\x1b" and not self._is_skipping',
        after="is_esc = True",
        test="test_an_incomplete_sequence_is_dropped_after_a_pause",
    ),
    Mutant(
        "a Ctrl-] that is not recognized in a keyboard protocol",
        before='elif final == b"~" and number == 27 and len(fields) == 3:',
        after="elif False:",
        test="test_a_person_types_into_an_agents_program",
    ),
    Mutant(
        "the rest of an oversized paste that is typed",
        before="self._is_too_large = True\nself._buffer",
        after="self._is_pasting = False\nself._buffer",
        test="test_an_oversized_paste_is_refused_and_none_of_it_is_typed",
    ),
    Mutant(
        "an escape sequence in a frame that is painted",
        before="pieces = _pieces(plain(run[0]), style, width, room=cols - column)",
        after="pieces = _pieces(run[0], style, width, room=cols - column)",
        test="test_hostile_text_in_a_frame_is_not_obeyed",
    ),
    Mutant(
        "a link whose address ends its escape sequence",
        before="if not isinstance(address, str) or not _LINK.fullmatch(address):",
        after="if not isinstance(address, str):",
        test="test_hostile_text_in_a_frame_is_not_obeyed",
    ),
    Mutant(
        "unchanged rows that are painted again",
        before="if row != before:",
        after="if True:",
        test="test_only_changed_rows_are_painted",
    ),
    Mutant(
        "leftover text after a shorter row",
        before="if column < cols:\nparts.append",
        after="if False:\n    parts.append",
        test="test_incremental_painting_has_the_same_result_as_a_complete_one",
    ),
    Mutant(
        "a killed attach that leaves its screen behind",
        before="self._write_all(LEAVE)",
        after="pass",
        test="test_a_killed_attach_restores_the_terminal",
    ),
    Mutant(
        "a killed attach that leaves a raw terminal",
        before="termios.tcsetattr(self._fd, termios.TCSANOW, before)",
        after="pass",
        test="test_a_killed_attach_restores_the_terminal",
    ),
    Mutant(
        "a read-only attach that takes the keyboard",
        before="self._remote.wants_keyboard = not is_reader",
        after="self._remote.wants_keyboard = True",
        test="test_attach_with_read_only_sends_no_input",
    ),
    Mutant(
        "a keyboard that is taken by force from another person",
        before="await self.take(force=False)",
        after="await self.take(force=True)",
        test="test_the_keyboard_can_be_taken_back_from_another_person",
    ),
    Mutant(
        "a key that is dropped while the keyboard is being taken",
        before="elif not (session.remote.is_writer or session.remote.is_taking):",
        after="elif not session.remote.is_writer:",
        test="test_the_status_line_shows_what_the_terminal_waits_for",
    ),
    Mutant(
        "a keyboard that is lost with the connection",
        before="while self.wants_keyboard:",
        after="while self.wants_keyboard and not self.is_writer:",
        test="test_attach_reconnects_to_a_restarted_gateway",
    ),
    Mutant(
        "an incomplete screen that is never completed",
        before="self._remote.watch_again()",
        after="pass",
        test="test_a_person_types_into_an_agents_program",
    ),
    Mutant(
        "a Ctrl-Z that stops the program",
        before="if isinstance(typed, Key) and typed.name in REFUSED:",
        after="if False:",
        test="test_a_person_types_into_an_agents_program",
    ),
    Mutant(
        "a window size that is not sent to the gateway",
        before="self._has_new_size.set()",
        after="pass",
        test="test_a_person_types_into_an_agents_program",
    ),
    Mutant(
        "a clipboard that a program can set without the person",
        before="self._offered = text",
        after="self._offered = text\nself.copy()",
        test="test_the_status_line_shows_what_the_terminal_waits_for",
    ),
    Mutant(
        "an exit status that attach doesn't return",
        before='code, f"The program has ended with',
        after='0, f"The program has ended with',
        test="test_attach_exits_with_the_status_of_the_program",
    ),
    Mutant(
        "a dialog that an older reply hides",
        before="await self._link.ask_once(method, {",
        after="self.record |= await self._link.ask_once(method, {",
        test="test_the_status_line_shows_what_the_terminal_waits_for",
    ),
)
