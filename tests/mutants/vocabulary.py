"""Mutants of the modules at the top of `remoteclaw/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a clock that stops with the machine",
        before="clock_gettime(time.CLOCK_BOOTTIME)",
        after="clock_gettime(time.CLOCK_MONOTONIC)",
        test="test_clocks_include_the_time_that_the_machine_sleeps",
    ),
)
