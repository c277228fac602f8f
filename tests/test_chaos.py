"""A short chaos: nothing lost, nothing doubled, nothing out of order, nothing left running."""

from tests.chaos import PROMISES, chaos


async def test_a_fleet_in_chaos_keeps_its_promises() -> None:
    verdict = await chaos(12, seed=7, workers=3, sessions=8)

    assert verdict["messages"] > 50
    assert {name: verdict[name] for name in PROMISES} == dict.fromkeys(PROMISES, 0)
    for way in ("kill_worker", "kill_horse", "freeze_horse", "kill_agent", "kill_redis", "stop"):
        assert verdict.get(way), f"{way} never happened: another seed, or a longer chaos"
