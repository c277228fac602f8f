"""Mutants of `remoteclaw/tty/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a terminal that is ended while its turn still runs",
        before="if not await terminals.is_placed(held.sid, held.place.path):",
        after="if True:",
        test="test_a_terminal_whose_lease_is_lost_is_ended_once_its_turn_is_over",
    ),
    Mutant(
        "a terminal answer that is typed twice",
        before="if answers and not is_past:\nawait self.client.write(answers)",
        after="if answers and not is_past:\n    await self.client.write(answers + answers)",
        test="test_all_viewers_see_the_same_screen_with_only_what_was_typed",
    ),
    Mutant(
        "a text that is typed into a dialog",
        before='if self.has_draft or self.program.activity != "idle":',
        after="if self.has_draft:",
        test="test_text_input_runs_no_command_and_only_keys_answer_a_dialog",
    ),
    Mutant(
        "output that is lost between two gateways",
        before="await self._process(output, is_past=True)",
        after="pass",
        test="test_the_gateway_after_a_killed_one_shows_the_same_screen",
    ),
    Mutant(
        "a keyboard that several people have",
        before="if self._typist is not None and not self.is_held_by(typist):",
        after="if False:",
        test="test_one_person_types_and_another_one_is_refused_with_the_name",
    ),
    Mutant(
        "a viewer that is sent more than it reads",
        before="elif viewer.is_slow():",
        after="elif False:",
        test="test_a_slow_viewer_is_skipped_and_gets_the_differences_later",
    ),
    Mutant(
        "a link that runs a script",
        before="return address if len(address) <= MAX_LINK_CHARS and _LINK.fullmatch(address)",
        after="return address if True",
        test="test_only_web_links_of_a_program_are_kept",
    ),
    Mutant(
        "concealed text that is sent to viewers",
        before="return (blank * (1 if is_cluster else len(text)) if blank else text), style",
        after="return text, style",
        test="test_concealed_text_is_never_sent",
    ),
    Mutant(
        "a terminal answer that contains text of the program",
        before="<= MAX_ANSWER_BYTES and _ALLOWED_ANSWERS.fullmatch(data):",
        after="<= MAX_ANSWER_BYTES:",
        test="test_only_allowed_queries_of_the_program_are_answered",
    ),
    Mutant(
        "a paste that ends itself",
        before="for character in _lines(text) if not _is_invisible(character)",
        after="for character in _lines(text)",
        test="test_a_paste_stays_one_paste_whatever_it_contains",
    ),
    Mutant(
        "a command after an invisible character that is typed",
        before='plain = unicodedata.normalize("NFKC", cleaned(text))',
        after="plain = text",
        test="test_text_that_could_be_a_command_is_not_typed",
    ),
    Mutant(
        "an Enter after a dialog opened in between",
        before="is_changed = (self.wait_count, self._inputs) != (wait_count, inputs)\n"
        "return is_changed or",
        after="return self._inputs != inputs and",
        test="test_no_enter_is_pressed_if_a_dialog_opened_after_the_text",
    ),
    Mutant(
        "an Enter that sends keys of another person",
        before="is_changed = (self.wait_count, self._inputs) != (wait_count, inputs)\n"
        "return is_changed or",
        after="return self.wait_count != wait_count or",
        test="test_keys_that_a_person_types_in_between_are_not_sent_with_the_text",
    ),
    Mutant(
        "an older conversation that is published as new",
        before="if record and record.conversation == self._conversation:",
        after="if False:",
        test="test_two_gateways_in_turn_publish_a_transcript_once",
    ),
)
