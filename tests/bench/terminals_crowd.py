"""The load of many viewers of a busy terminal, and the time until one more viewer sees it."""

import asyncio
import statistics
import time
from pathlib import Path

from websockets.asyncio.client import connect

from tests.bench.gateway import RowParts, echoed, echoing, measure_alternately
from tests.bench.load import Figure
from tests.bench.stage import RECORDINGS, Stage, cpu_s, played, shows
from tests.bench.terminals_resume import used
from tests.bench.viewers import viewing
from tests.support.agents import AgentCli
from tests.support.doors import RpcClient
from tests.support.stack import Stack

VIEWERS = 50
#: The time over which the gateway's processor time is measured, in seconds.
COUNTED_S = 4.0
PLAY, FILL = "b:10", "b:06"


async def bench_crowd(stack: Stack, rounds: int) -> list[Figure]:
    """Measure the gateway's processor time for a program that draws 20 times a second."""
    agents = {file.stem: played(file) for file in RECORDINGS}
    figures = []
    async with (
        Stage.set(stack, played(), agents=agents) as stage,
        stage.door.connected(stage.token) as client,
    ):
        for name in agents:
            sid = await stage.open(client, agent=name)
            async with viewing(stage.door, stage.token, sid, VIEWERS):
                idle = await _load(stage, 1)
                await client.call("terminals.type", {"sid": sid, "keys": [PLAY]})
                busy = await _load(stage, max(1, rounds // 10))
            unwatched = await _load(stage, 1)
            await client.call("terminals.end", {"sid": sid})
            figures += [
                Figure(f"{name} played, {VIEWERS} viewers: gateway", busy, "% core", ""),
                Figure(f"{name} played, no viewer: gateway", unwatched, "% core", ""),
                Figure(f"{name} idle, {VIEWERS} viewers: gateway", idle, "% core", ""),
            ]
    return figures


async def bench_real(stack: Stack, cli: AgentCli, directory: Path, rounds: int) -> Figure:
    """Measure the gateway's processor time for a real CLI that writes ten words a second."""
    agent, _ = used(cli, directory)
    async with (
        Stage.set(stack, agent) as stage,
        stage.door.connected(stage.token) as client,
    ):
        sid = await stage.open(client, prompt="SAY:plum")
        await client.call("terminals.take", {"sid": sid})
        words = int(10 * COUNTED_S * (rounds // 10 + 3))
        await client.call(
            "terminals.type", {"sid": sid, "keys": [f"p:DRIP:{words}:100"], "submit": True}
        )
        async with viewing(stage.door, stage.token, sid, VIEWERS):
            busy = await _load(stage, max(1, rounds // 10))
            activity = (await client.call("terminals.get", {"sid": sid}))["activity"]
            assert activity == "busy", activity
    return Figure(f"{cli.name} busy, {VIEWERS} viewers: gateway", busy, "% core", "≤ 5")


async def _load(stage: Stage, rounds: int) -> float:
    """Return the processor time that the gateway uses now, in percent of a core."""
    percentages = []
    for _ in range(rounds):
        used, started = cpu_s(stage.process.pid), time.perf_counter()
        await asyncio.sleep(COUNTED_S)
        spent = cpu_s(stage.process.pid) - used
        percentages.append(100 * spent / (time.perf_counter() - started))
    return statistics.median(percentages)


async def bench_joining(stack: Stack, rounds: int) -> list[RowParts]:
    """Measure the time until the whole screen is shown: to a new viewer, and by a new gateway."""
    async with (
        Stage.set(stack, played()) as stage,
        echoing() as echo,
    ):
        async with stage.door.connected(stage.token) as client:
            sid = await stage.open(client)
            await client.call("terminals.type", {"sid": sid, "keys": [FILL]})
            shown = await shows(client, sid, "FILLED")

        async def bare() -> None:
            async with connect(f"ws://{echo}/ws") as socket:
                await echoed(socket)

        async def join() -> None:
            async with stage.door.connected(stage.token) as client:
                await _seen(client, sid, shown)

        joining = await measure_alternately(join, bare, rounds * 2)
        back: tuple[list[float], list[float]] = ([], [])
        for _ in range(max(3, rounds // 6)):
            await stage.kill()
            await stage.begin()
            for side, connection in zip(back, (join, bare), strict=True):
                started = time.perf_counter()
                await connection()
                side.append(time.perf_counter() - started)
    baseline = "WebSocket connected, one echo"
    return [
        ("new viewer, until the screen", baseline, *joining, "≤ 30 ms"),
        ("new gateway, until the screen", baseline, *back, "≤ 1 s"),
    ]


async def _seen(client: RpcClient, sid: str, text: str) -> None:
    """Watch a terminal until it shows exactly `text`."""
    lines: dict[str, str] = {}
    await client.call("terminals.watch", {"sid": sid})
    while "\n".join(lines.get(str(row), "") for row in range(32)).rstrip() != text.rstrip():
        rows = (await client.event("terminal.screen"))["lines"].items()
        lines |= {row: "".join(run[0] for run in runs).rstrip() for row, runs in rows}
