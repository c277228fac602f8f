"""Mutants of `remoteclaw/cron/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "runs of a cron job that pile up",
        before="if await self._cron.unfinished(job):",
        after="if False:",
        test="test_what_is_due_while_a_run_is_unfinished_is_left_out",
    ),
    Mutant(
        "a chat that is told of each failure",
        before="job.failures == job.alert_after",
        after="job.failures >= job.alert_after",
        test="test_several_settlers_tell_the_chat_once",
    ),
    Mutant(
        "a job that is lost when it did not go well",
        before="if has_succeeded and job.is_once and",
        after="if job.is_once and",
        test="test_what_is_due_once_and_did_not_go_well_is_kept_and_off",
    ),
)
