"""A short run of chaos: no message lost, doubled or out of order, no process left running."""

from pathlib import Path

import pytest

from remoteclaw.fleet import keys
from tests.chaos import PROMISES, chaos
from tests.chaos.disruptions import OFTEN, SELDOM, SOMETIMES
from tests.chaos.flat import MIN_SAMPLES, Part, Sample, table
from tests.support.telegram import TelegramBot


async def test_a_fleet_under_chaos_keeps_its_promises(directory: Path, bot: TelegramBot) -> None:
    """One host, so an adapter that is frozen for longer than its claim is left out."""
    verdict, _ = await chaos(6, directory, bot, seed=7, workers=3, sessions=8, hosts=1)

    assert verdict["messages"] >= 20
    assert {name: verdict[name] for name in PROMISES} == dict.fromkeys(PROMISES, 0)
    expected = {*OFTEN, *SOMETIMES, *SELDOM, "stop"} - {"freeze_adapter"}
    assert expected <= verdict.keys(), "a disruption is missing: use another seed, or run longer"


def samples(growing: str = "") -> list[Sample]:
    """Return the samples of a fleet in which one number grows with each message."""
    found = []
    for messages in range(0, MIN_SAMPLES * 100, 100):
        more = dict.fromkeys(("mb", "descriptors", "connections", "keys", "files", "processes"), 0)
        if growing:
            more[growing] = messages
        worker = Part("worker", 7, 25.0 + more["mb"] / 10, 9 + more["descriptors"] // 5)
        found.append(
            Sample(
                messages=messages,
                parts=[worker] * (1 + more["processes"] // 100),
                redis_mb=9 + messages / 1000,
                connections=40 + more["connections"] // 4,
                kept=3 * messages,
                keys={keys.state("*"): 60 + more["keys"] // 4},
                files=90 + more["files"] // 4,
            )
        )
    return found


@pytest.mark.parametrize(
    "growing", ["", "mb", "descriptors", "connections", "keys", "files", "processes"]
)
def test_what_grows_under_chaos_is_found(growing: str) -> None:
    text, is_flat = table(samples(growing))

    assert (not is_flat) is ("GROWS" in text) is bool(growing)
