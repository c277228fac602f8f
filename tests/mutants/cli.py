"""Mutants of `remoteclaw/cli/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "help that waits for libraries",
        before='"""The edge of the command line: one line for an error, no traceback."""',
        after="import asyncio",
        test="test_help_loads_no_library_but_its_own",
    ),
    Mutant(
        "an -h that is no option",
        before='context_settings={"help_option_names": ["-h", "--help"]}',
        after="context_settings={}",
        test="test_every_command_explains_itself_with_h",
    ),
    Mutant(
        "a repair that nobody is told of",
        before="if ready.repaired:",
        after="if False:",
        test="test_a_kill_takes_everything_along_and_a_power_failure_is_repaired_and_said",
    ),
)
