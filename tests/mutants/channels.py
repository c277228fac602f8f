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
)
