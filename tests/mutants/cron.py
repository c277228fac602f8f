"""Mutants of `remoteclaw/cron/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "concurrent runs of a cron job",
        before="if await self._cron.unfinished(job):",
        after="if False:",
        test="test_a_due_time_during_an_unfinished_run_is_skipped",
    ),
)
