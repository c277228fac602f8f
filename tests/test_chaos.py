"""A short chaos: nothing lost, nothing doubled, nothing out of order, nothing left running."""

import pytest

from tests.chaos import chaos


@pytest.mark.timeout(240)
async def test_a_fleet_in_chaos_keeps_its_promises() -> None:
    verdict = await chaos(10, seed=7, workers=3, sessions=6)

    assert verdict["messages"] > 50
    assert (verdict["lost"], verdict["doubled"], verdict["out of order"]) == (0, 0, 0)
