"""A handful of kills in a terminal's life; `python -m tests.bench.kills` has them at every step."""

from pathlib import Path

import pytest

from tests.support.stack import Stack
from tests.support.terminal_kills import CASES, Case, walked


@pytest.mark.parametrize(
    "case",
    [
        Case("opening", "hold", "before", "drain"),
        Case("end", "terminal_note", "after", "redis"),
    ],
    ids=str,
)
async def test_whatever_is_killed_all_is_told_once(
    stack: Stack, directory: Path, case: Case
) -> None:
    assert case in CASES
    async with walked(stack, directory) as walk:
        await getattr(walk, case.story)(case)
        assert walk.reached
