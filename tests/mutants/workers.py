"""Mutants of `workers/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a turn that a second SIGTERM cuts off",
        before="signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        after="pass",
        test="test_a_second_sigterm_does_not_cut_off_a_turn",
    ),
    Mutant(
        "a work-horse that outlives its worker",
        before="die_with_parent(settings.WORKER_PID)",
        after="pass",
        test="test_a_message_has_one_outcome_if_the_worker_is_killed",
    ),
    Mutant(
        "a dashboard that answers requests of any origin",
        before="if origin is not None and origin.lower() not in config.origins:",
        after="if False:",
        test="test_the_dashboard_refuses_foreign_host_names_and_origins",
    ),
    Mutant(
        "a dashboard that accepts requests that change data",
        before='request.method not in ("GET", "HEAD") or',
        after="",
        test="test_the_dashboard_is_read_only",
    ),
    Mutant(
        "a job class that runs any function",
        before='call = HintSerializer.loads(_unpacked(raw_data[b"data"]))',
        after='call = __import__("pickle").loads(_unpacked(raw_data[b"data"]))',
        test="test_forged_jobs_are_refused_and_logged",
    ),
)
