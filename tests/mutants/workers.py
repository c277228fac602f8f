"""Mutants of `workers/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a work-horse that outlives its worker",
        before="die_with_parent(settings.WORKER_PID)",
        after="pass",
        test="test_the_worker",
    ),
    Mutant(
        "a worker that never reads its configuration again",
        before="config = settings.current()",
        after="config = settings.config",
        test="test_the_next_turn_has_it",
    ),
    Mutant(
        "a job class that allows everything",
        before="if function != JOB:",
        after="if False:",
        test="test_forged_jobs_do_nothing_but_leave_a_line",
    ),
)
