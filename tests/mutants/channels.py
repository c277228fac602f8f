"""Mutants of `remoteclaw/channels/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "an operation that is done too late",
        before="if left_s <= 0:",
        after="if False:",
        test="test_what_comes_too_late_is_not_done",
    ),
)
