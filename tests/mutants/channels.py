"""Mutants of `remoteclaw/channels/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "an operation that is done too late",
        before="if left_s <= 0:",
        after="if False:",
        test="test_what_comes_too_late_is_not_done",
    ),
    Mutant(
        "one row for all chats, and a claim that a slow platform loses",
        before="self._tasks.create_task(self._serve(place, reply))",
        after="await self._serve(place, reply)",
        test="test_a_slow_delivery_keeps_its_stream",
    ),
    Mutant(
        "a lane for each chat, and none for its topics",
        before="place = Place(reply.channel_id, reply.thread_id)",
        after="place = Place(reply.channel_id)",
        test="test_topics_of_a_chat_are_served_beside_each_other",
    ),
    Mutant(
        "replies of one chat at once",
        before="self._waiting.get(place)",
        after="None",
        test="test_a_chat_that_hangs_holds_up_itself_alone",
    ),
    Mutant(
        "a lost answer that is said again without a word",
        before="is_again = self._mark.doubts > 0",
        after="is_again = False",
        test="test_a_lost_answer_is_said_again_once_and_says_so",
    ),
    Mutant(
        "a lost answer that is said for ever",
        before="if self._mark.doubts >= MOST_DOUBTS:",
        after="if False:",
        test="test_what_is_lost_twice_is_a_dead_letter",
    ),
    Mutant(
        "a wait that counts as a first time",
        before="await self._withdraw()",
        after="self._doubt()",
        test="test_a_chat_that_is_asked_too_often_waits_as_long_as_it_is_told",
    ),
    Mutant(
        "a mark of an earlier adapter that is not believed",
        before="self._stored, self._mark = told, Mark.decode(told)",
        after="self._stored = told",
        test="test_parts_that_the_platform_has_are_not_sent_again",
    ),
    Mutant(
        "a mark that is withdrawn in Redis alone",
        before="None if is_untouched else self._mark",
        after="self._mark",
        test="test_what_certainly_was_not_done_leaves_no_mark",
    ),
    Mutant(
        "marks where the platform has keys",
        before="if self._adapter.has_keys:",
        after="if False:",
        test="test_a_platform_with_keys_needs_no_mark",
        within="_begin",
    ),
    Mutant(
        "a refused file without a word",
        before="if self._mark.kept and not self._reply.call:",
        after="if False:",
        test="test_a_refused_file_is_told_and_kept_and_the_text_goes_on",
    ),
    Mutant(
        "an outage that is told each time",
        before="if not self.problem:",
        after="if True:",
        test="test_an_outage_gives_nothing_up_and_is_told_once",
    ),
    Mutant(
        "an account that all chats try at once",
        before="if left_s <= 0 and not (self._account.length_s and self._is_tried):",
        after="if left_s <= 0:",
        test="test_one_attempt_at_a_time_looks_whether_a_platform_is_back",
    ),
    Mutant(
        "a chat that is asked again at once",
        before="pause.until = boottime() + after_s",
        after="pass",
        test="test_a_busy_chat_is_not_asked_before_its_time",
    ),
    Mutant(
        "a receipt that is lost with its relay",
        before="await asyncio.shield(receipt)",
        after="await receipt",
        test="test_what_was_delivered_has_its_receipt_though_the_relay_is_ended",
    ),
    Mutant(
        "places of looks counted in characters",
        before="2 if ord(character) > 0xFFFF else 1",
        after="1",
        test="test_an_answer_looks_like_one",
    ),
    Mutant(
        "more looks than Telegram takes",
        before="if len(within) > MOST_ENTITIES:",
        after="if False:",
        test="test_more_looks_than_a_message_may_have_make_another_message",
    ),
    Mutant(
        "a text from which Telegram takes something out",
        before="clean = markdown.translate(_REMOVED)",
        after="clean = markdown",
        test="test_what_telegram_takes_out_of_a_text_moves_no_entity",
    ),
    Mutant(
        "code that is no code behind a cut",
        before="start, stop = max(each.offset, begin), min(each.offset + each.length, end)",
        after="start, stop = max(each.offset, begin), min(each.offset + each.length, begin)",
        test="test_a_long_answer_is_cut_between_blocks_and_code_stays_code",
    ),
)
