"""Mutants of `remoteclaw/tools/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a stranger's line in the memory",
        before='groups=("memory",), owner_only=True,',
        after='groups=("memory",),\nowner_only=False,',
        test="test_a_stranger_in_a_group_has_nothing_remembered[claude]",
    ),
)
