"""A short run of chaos: no message lost, doubled or out of order, no process left running."""

from pathlib import Path

from tests.chaos import PROMISES, chaos
from tests.chaos.disruptions import OFTEN, SELDOM, SOMETIMES
from tests.support.telegram import TelegramBot


async def test_a_fleet_under_chaos_keeps_its_promises(directory: Path, bot: TelegramBot) -> None:
    """One host, so an adapter that is frozen for longer than its claim is left out."""
    verdict, _ = await chaos(6, directory, bot, seed=7, workers=3, sessions=8, hosts=1)

    assert verdict["messages"] >= 20
    assert {name: verdict[name] for name in PROMISES} == dict.fromkeys(PROMISES, 0)
    expected = {*OFTEN, *SOMETIMES, *SELDOM, "stop"} - {"freeze_adapter"}
    assert expected <= verdict.keys(), "a disruption is missing: use another seed, or run longer"
