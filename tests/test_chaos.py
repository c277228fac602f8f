"""A short chaos: nothing lost, nothing doubled, nothing out of order, nothing left running."""

from tests.chaos import PROMISES, WAYS, chaos


async def test_a_fleet_in_chaos_keeps_its_promises() -> None:
    verdict = await chaos(6, seed=7, workers=3, sessions=8)

    assert verdict["messages"] > 20
    assert {name: verdict[name] for name in PROMISES} == dict.fromkeys(PROMISES, 0)
    assert set(WAYS) <= verdict.keys(), "not all happened: another seed, or a longer chaos"
