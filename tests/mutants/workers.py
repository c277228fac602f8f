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
        "a session's id on the dashboard",
        before="Job.get_call_string = lambda",
        after="_ = lambda",
        test="test_it_shows_queues_workers_and_jobs_readably",
    ),
    Mutant(
        "a dashboard that any name leads to",
        before='if not is_own_name(request.headers.get("Host", "").lower(), config):',
        after="if False:",
        test="test_it_answers_under_its_own_names_and_no_page_of_others",
    ),
    Mutant(
        "a dashboard that any page may ask",
        before="if origin is not None and origin.lower() not in config.origins:",
        after="if False:",
        test="test_it_answers_under_its_own_names_and_no_page_of_others",
    ),
    Mutant(
        "a dashboard that changes something",
        before='request.method not in ("GET", "HEAD") or',
        after="",
        test="test_it_changes_nothing",
    ),
    Mutant(
        "a dashboard that changes something when it is asked by GET",
        before='or request.endpoint == "rq_dashboard.requeue_all"',
        after="",
        test="test_it_changes_nothing",
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
