"""Mutants of `remoteclaw/cron/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "concurrent runs of a cron job",
        before="if await self._cron.unfinished(job):",
        after="if False:",
        test="test_a_due_time_during_an_unfinished_run_is_skipped",
    ),
    Mutant(
        "a line for the memory that a web page has a cron job write",
        before="Provenance(by=str(self.session), has_read_web=True) if self.has_read_web else None",
        after="None",
        test="test_a_job_of_a_turn_that_has_read_the_web_begins_turns_that_have",
    ),
)
