"""Mutants of `remoteclaw/chat/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "doubled lines in a terminal that became narrower",
        before="app.output.cursor_up(sum(last // size.columns for last in (*widths, cursor.x)))",
        after="pass",
        test="test_a_narrower_terminal_shows_each_line_once",
    ),
    Mutant(
        "activity that is shown again after its turn",
        before="if turn <= self._last_ended:",
        after="if False:",
        test="test_late_live_text_of_an_ended_turn_is_ignored",
    ),
    Mutant(
        "a sent message without an indicator",
        before="self._screen.indicator.add_message(name)",
        after="pass",
        test="test_a_hanging_gateway_is_reported_and_the_message_is_answered_once",
    ),
    Mutant(
        "an answer that is shown twice because of a user message",
        before="self._live.has_head = False",
        after="self._flush()",
        test="test_a_user_message_during_an_answer_does_not_repeat_the_answer",
    ),
    Mutant(
        "a doubled answer of a session of another chat",
        before="if live and live.position[0] == order and text.startswith(earlier):",
        after="if False:",
        test="test_the_answer_of_a_session_of_another_chat_is_shown_once",
    ),
    Mutant(
        "a history search in which Enter does nothing",
        before='@keys.add("enter", filter=in_message)',
        after='@keys.add("enter")',
        test="test_a_working_day_in_the_chat",
    ),
    Mutant(
        "a menu in colours despite NO_COLOR",
        before="color_depth=None if features.has_colours else ColorDepth.MONOCHROME,",
        after="",
        test="test_a_working_day_in_the_chat",
    ),
    Mutant(
        "an Alt-Enter that stops the answer",
        before="is_alone = not keys.input_queue and len(keys.key_buffer) == 1",
        after="is_alone = True",
        test="test_esc_stops_an_answer_but_alt_and_arrow_keys_do_not",
    ),
    Mutant(
        "an Esc that does not stop the answer",
        before='@keys.add("escape", filter=in_message & Condition(self._has_only_esc), eager=True)',
        after='@keys.add("f24")',
        test="test_esc_stops_an_answer_but_alt_and_arrow_keys_do_not",
    ),
    Mutant(
        "an indicator that is cut off",
        before="(line for line in candidates if len(line) <= columns)",
        after="iter(candidates)",
        test="test_a_narrow_terminal_still_shows_the_key_that_stops_a_turn",
    ),
    Mutant(
        "a help text without the keys",
        before='if text.strip().casefold() == "/help"',
        after="if False",
        test="test_a_working_day_in_the_chat",
    ),
    Mutant(
        "a text with control sequences for the terminal",
        before="text.append(printable(span.text).expandtabs(4), ",
        after="text.append(span.text, ",
        test="test_no_text_can_send_control_sequences_to_the_terminal",
    ),
    Mutant(
        "a long live block that is painted as a whole",
        before="end = text[-rows * columns :]",
        after="return text",
        test="test_the_cost_of_drawing_a_live_block_does_not_depend_on_its_length",
    ),
    Mutant(
        "a live block that is still shown when it is permanent",
        before="(is_continued and now < last.until)",
        after="now <= last.until",
        test="test_a_live_block_is_replaced_at_once_by_the_next_one",
    ),
    Mutant(
        "a long live table without its header",
        before="elif _TABLE_RULE.fullmatch(second):",
        after="elif False:",
        test="test_the_end_of_a_long_live_table_is_shown_as_a_table",
    ),
    Mutant(
        "elapsed time that begins when a turn is first shown",
        before="self._activity.since = min(self._activity.since, begun)",
        after="pass",
        test="test_elapsed_time_counts_from_the_start_of_a_turn_begun_elsewhere",
    ),
    Mutant(
        "elapsed time by a clock that is wrong",
        before="self._wall() - self._lag_s - at_ms / 1000",
        after="self._wall() - at_ms / 1000",
        test="test_elapsed_time_counts_from_the_start_of_a_turn_begun_elsewhere",
    ),
    Mutant(
        "an indicator of a turn that ended while disconnected",
        before="if not is_running and self._activity and self._activity.is_live:",
        after="if False:",
        test="test_a_turn_that_ended_while_disconnected_has_no_indicator",
    ),
    Mutant(
        "a reply that does not name its origin",
        before="about = one_line(origin, max_chars=max(room, 10))",
        after="about = ''",
        test="test_a_reply_to_a_message_from_elsewhere_names_its_origin",
    ),
    Mutant(
        "an answer without the number of messages that it answers",
        before="if count > 1 else",
        after="if False else",
        test="test_an_answer_to_several_messages_shows_their_number",
    ),
    Mutant(
        "a message that is added to a turn without a notice",
        before='self._screen.show_notice(f"({note}: {beginning})")',
        after="pass",
        test="test_the_chat_shows_how_messages_sent_during_a_turn_are_handled",
    ),
    Mutant(
        "invalid UTF-8 that ends the chat",
        before='return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")',
        after="return text",
        test="test_the_input_line_has_line_breaks_and_completion_and_accepts_invalid_utf_8",
    ),
    Mutant(
        "an answer that is lost while disconnected",
        before='outcome = {**result, "reply": "\\n\\n".join(texts)}',
        after="outcome = {}",
        test="test_an_answer_given_while_disconnected_is_shown_once",
    ),
    Mutant(
        "the beginning of an answer that is shown twice after a reconnect",
        before='outcome = {**result, "reply": "\\n\\n".join(texts)}',
        after='outcome = {**result, "reply": "\\n\\n".join(texts), "turn": None}',
        test="test_an_answer_given_while_disconnected_is_shown_once",
    ),
    Mutant(
        "a lost answer that arrived before its message was confirmed",
        before='elif sent["isDuplicate"]:',
        after="elif False:",
        test="test_an_answer_that_arrives_before_the_send_is_confirmed_is_shown",
    ),
    Mutant(
        "an exit that waits for a pending call",
        before="talking.cancel()",
        after="pass",
        test="test_exit_during_a_turn_works_after_a_gateway_restart",
    ),
    Mutant(
        "an exit that waits without a notice",
        before="self._screen.show_notice( "
        '"(Waiting until it is sent. Ctrl-C leaves without that.)" )',
        after="pass",
        test="test_exit_before_a_message_is_sent_says_that_it_waits",
    ),
    Mutant(
        "an indicator that does not say that it waits for the user",
        before="self._screen.indicator.add_request(request)",
        after="pass",
        test="test_a_user_answers_a_permission_request_in_the_chat",
    ),
    Mutant(
        "an indicator that waits for the user after the answer",
        before="self._requests.discard(request)",
        after="pass",
        test="test_the_indicator_waits_for_the_user_until_the_last_request_is_closed",
    ),
)
