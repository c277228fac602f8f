"""Mutants of `remoteclaw/holder/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a holder's clock that stops with the machine",
        before="clock_gettime(time.CLOCK_BOOTTIME)",
        after="clock_gettime(time.CLOCK_MONOTONIC)",
        test="test_clocks_count_the_time_that_the_machine_sleeps",
    ),
    Mutant(
        "holder without beats",
        before="if now() > self.deadline:\n    self.end()",
        after="",
        test="test_the_tree_ends_when_beats_stop",
    ),
    Mutant(
        "a program that outlives its killed holder",
        before="prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)  # the holder itself may be killed",
        after="",
        test="test_the_program_dies_with_a_holder_that_is_killed",
    ),
    Mutant(
        "an agent that the kernel takes no sooner than Redis",
        before="raise_oom_score()",
        after="",
        test="test_the_kernel_takes_the_program_before_what_it_works_for",
        within="become_agent",
    ),
    Mutant(
        "an agent at work makes room",
        before="self.is_unwanted = False  # an agent",
        after="if self.is_unwanted: self.end()  # an agent",
        test="test_an_agent_at_work_makes_no_room",
    ),
    Mutant(
        "dead directories that count as agents",
        before="if listens(run) or time.time() - run.stat().st_mtime < YOUNG_S:",
        after="if True:",
        test="test_what_dead_holders_left_is_no_agent",
    ),
    Mutant(
        "run directories of another machine that are removed",
        before="if run.name.endswith(_boot()) else",
        after="if True else",
        test="test_run_directories_of_another_machine_are_left_alone",
    ),
)
