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
        "an alert after each further failure",
        before="job.failures == job.alert_after",
        after="job.failures >= job.alert_after",
        test="test_concurrent_settlers_alert_the_chat_once",
    ),
    Mutant(
        "a one-time job that is removed after a failure",
        before="if has_succeeded and job.is_once and",
        after="if job.is_once and",
        test="test_a_one_time_job_that_did_not_succeed_is_kept_and_switched_off",
    ),
)
