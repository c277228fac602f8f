"""Mutants of `remoteclaw/cli/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a repair that nobody is told of",
        before="if ready.repaired:",
        after="if False:",
        test="test_a_kill_takes_everything_along_and_a_power_failure_is_repaired_and_said",
    ),
)
