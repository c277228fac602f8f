"""A short run of chaos: no message lost, doubled or out of order, no process left running."""

from tests.chaos import DISRUPTIONS, PROMISES, chaos


async def test_a_fleet_under_chaos_keeps_its_promises() -> None:
    verdict = await chaos(6, seed=7, workers=3, sessions=8)

    assert verdict["messages"] > 20
    assert {name: verdict[name] for name in PROMISES} == dict.fromkeys(PROMISES, 0)
    assert set(DISRUPTIONS) <= verdict.keys(), (
        "a disruption is missing: use another seed, or run longer"
    )
