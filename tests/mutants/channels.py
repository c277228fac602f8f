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
