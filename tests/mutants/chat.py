"""Mutants of `remoteclaw/chat/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "activity that comes back after its turn",
        before="if turn <= self._ended:",
        after="if False:",
        test="test_what_comes_late_of_a_turn_that_is_over_is_not_shown",
    ),
    Mutant(
        "seconds that stand still",
        before="self._editor.redraw()\nif not",
        after="if not",
        test="test_a_running_tool_is_shown_with_its_seconds",
    ),
    Mutant(
        "a message without a sign that it is waited for",
        before="self._screen.indicator.waits(name)",
        after="pass",
        test="test_each_message_has_a_sign_until_it_is_answered",
    ),
    Mutant(
        "a message that is given up",
        before="if not persists or error.code not in _FOR_NOW:",
        after="if True:",
        test="test_what_redis_does_not_answer_is_sent_until_it_does_and_counts_once",
    ),
    Mutant(
        "a chat that dies with its gateway",
        before="except _Lost:\ncontinue",
        after="except _Lost:\n    raise",
        test="test_a_gateway_that_was_killed_is_found_again_by_its_private_socket",
    ),
    Mutant(
        "an answer that is shown twice",
        before="self._answer.has_begun = False",
        after="self._flush()",
        test="test_what_is_typed_meanwhile_does_not_repeat_the_answer",
    ),
    Mutant(
        "an answer of another chat's session that is shown twice",
        before="if answer and answer.position[0] == place and text.startswith(before):",
        after="if False:",
        test="test_the_answer_of_another_chat_s_session_is_shown_once",
    ),
    Mutant(
        "a search whose Enter does nothing",
        before='@keys.add("enter", filter=in_message)',
        after='@keys.add("enter")',
        test="test_a_day",
    ),
    Mutant(
        "a menu in colours that nobody wants",
        before="color_depth=None if has_colours else ColorDepth.MONOCHROME,",
        after="",
        test="test_a_day",
    ),
    Mutant(
        "a text that steers the terminal",
        before="said = printable(span.text).expandtabs(4)",
        after="said = span.text",
        test="test_no_text_can_steer_the_terminal",
    ),
    Mutant(
        "a long block that is painted whole",
        before="end = text[-rows * columns :]",
        after="return text",
        test="test_drawing_a_long_block_costs_no_more_than_its_end",
    ),
    Mutant(
        "a block that stands there when it has gone up",
        before="(goes_on and now < before.until)",
        after="now <= before.until",
        test="test_a_painted_block_gives_way_at_once_to_the_next_one",
    ),
    Mutant(
        "a table without its head",
        before="elif _TABLE_RULE.fullmatch(second):",
        after="elif False:",
        test="test_the_end_of_a_long_table_is_shown_as_a_table",
    ),
    Mutant(
        "a turn whose seconds begin when it is seen",
        before="self._work.since = min(self._work.since, begun)",
        after="pass",
        test="test_a_turn_that_began_elsewhere_counts_from_its_start",
    ),
    Mutant(
        "seconds by a clock that is wrong",
        before="self._wall() - self._lag - at_ms / 1000",
        after="self._wall() - at_ms / 1000",
        test="test_a_turn_that_began_elsewhere_counts_from_its_start",
    ),
    Mutant(
        "a sign of a turn that ended unheard",
        before="if not is_running and self._work and self._work.is_live:",
        after="if False:",
        test="test_a_turn_that_ended_while_nothing_was_heard_has_no_sign",
    ),
    Mutant(
        "a reply that does not say where it comes from",
        before="about = one_line(origin, most=max(room, 10))",
        after="about = ''",
        test="test_a_reply_that_nobody_here_asked_for_says_where_it_comes_from",
    ),
    Mutant(
        "an answer that does not say how many it answers",
        before="if count > 1 else",
        after="if False else",
        test="test_an_answer_to_several_messages_says_so",
    ),
    Mutant(
        "a message that is added to a turn in silence",
        before='self._screen.say(f"({note}: {words})")',
        after="pass",
        test="test_what_becomes_of_messages_that_come_in_mid_turn_is_said",
    ),
    Mutant(
        "bytes that end the chat",
        before='return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")',
        after="return text",
        test="test_bytes_that_are_no_text_are_sent_as_marks",
    ),
    Mutant(
        "a paste that is sent for ever",
        before="if len(data) > self._most_bytes:",
        after="if False:",
        test="test_what_is_too_large_is_refused_and_the_link_stays",
    ),
    Mutant(
        "a wrong address as a crash",
        before="except (InvalidURI, InvalidHandshake, ValueError) as error:",
        after="except (InvalidURI, InvalidHandshake) as error:",
        test="test_a_wrong_address_is_one_sentence",
    ),
    Mutant(
        "an answer that is lost while the link is away",
        before='told = {**found, "reply": "\\n\\n".join(texts)}',
        after="told = {}",
        test="test_what_was_answered_while_the_link_was_away_is_shown",
    ),
    Mutant(
        "the beginning of an answer that is shown twice when the link is back",
        before='told = {**found, "reply": "\\n\\n".join(texts)}',
        after='told = {**found, "reply": "\\n\\n".join(texts), "turn": None}',
        test="test_what_was_answered_while_the_link_was_away_is_shown",
    ),
    Mutant(
        "an answer that came before its message was known to be sent",
        before='elif sent["isDuplicate"]:',
        after="elif False:",
        test="test_what_is_answered_before_the_gateway_has_said_that_it_was_sent_is_shown",
    ),
    Mutant(
        "a gateway that hangs and is not noticed for forty seconds",
        before='"ping_interval": PING_EVERY_S,\n"ping_timeout": PONG_S,',
        after="",
        test="test_a_gateway_that_hangs_is_named_and_what_was_typed_is_answered_once",
    ),
    Mutant(
        "a chat that ends without a word why it does not",
        before='self._screen.say("(Waiting until it is sent. Ctrl-C leaves without that.)")',
        after="pass",
        test="test_who_leaves_before_it_is_sent_reads_why_it_takes_time",
    ),
)
