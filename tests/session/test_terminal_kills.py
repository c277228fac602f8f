"""Some kills during a terminal's life; `python -m tests.kills` does all, at every step."""

from pathlib import Path

import pytest

from tests.support.stack import Stack
from tests.support.terminal_kills import CASES, Case, walked


@pytest.mark.parametrize(
    "case",
    [
        Case("opening", "give_to_holder", "before", "drain"),
        Case("end", "terminal_note", "after", "redis"),
        Case("kept", "give_to_holder", "after", "drain"),
        Case("kept", "restore", "after", "redis"),
    ],
    ids=str,
)
async def test_no_kill_loses_or_repeats_terminal_messages(
    stack: Stack, directory: Path, case: Case
) -> None:
    assert case in CASES
    async with walked(stack, directory) as walk:
        await getattr(walk, case.story)(case)
        assert walk.reached
