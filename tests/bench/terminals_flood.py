"""The slowdown of a program that writes a flood, and the memory left afterwards."""

import asyncio
import itertools
import re

from tests.bench.bare import Bare
from tests.bench.gateway import RowParts
from tests.bench.load import Figure
from tests.bench.stage import Stage, descriptors, played, resident_mb, shows
from tests.bench.viewers import viewing
from tests.support.doors import RpcClient
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: The floods, with the key that starts each.
FLOODS = {"100 MB in one line": 0x0C, "100 MB of lines": 0x19}
FILL = 0x06
#: The number of filled terminals by which the memory of one is measured.
FILLED = 6
#: The time between two checks whether a flood is over, in seconds.
POLL_S = 0.25
#: The time that a process has to free memory after an end, in seconds.
SETTLED_S = 5.0


async def bench_flood(stack: Stack, rounds: int) -> tuple[list[RowParts], list[Figure]]:
    """Measure floods with one viewer; the baseline is a bare pseudo-terminal that is drained."""
    number = itertools.count(1)
    rows: list[RowParts] = []
    program = played()["command"]
    async with Stage.set(stack, played()) as stage, stage.door.connected(stage.token) as client:
        sid = await stage.open(client)
        pids = {"gateway": stage.process.pid, "holder": await stage.holder(sid)}
        await _flooded(client, sid, FLOODS["100 MB of lines"], next(number))
        await asyncio.sleep(SETTLED_S)
        before = {name: (resident_mb(pid), descriptors(pid)) for name, pid in pids.items()}
        async with viewing(stage.door, stage.token, sid, 1):
            for name, key in FLOODS.items():
                ours, bare = [], []
                for _ in range(max(2, rounds // 6)):
                    ours.append(await _flooded(client, sid, key, next(number)))
                    bare.append(await asyncio.to_thread(_flooded_bare, program, key))
                rows.append((name, "bare, drained", ours, bare, "≤ 1.2 ×"))
        await asyncio.sleep(SETTLED_S)
        figures = []
        for name, pid in pids.items():
            grown, more = resident_mb(pid) - before[name][0], descriptors(pid) - before[name][1]
            figures += [
                Figure(f"… growth afterwards: {name}", grown, "MB", "≤ 2"),
                Figure(f"… more descriptors afterwards: {name}", more, "", "0"),
            ]
    return rows, figures


async def _flooded(client: RpcClient, sid: str, key: int, number: int) -> float:
    """Start a terminal's flood number `number`; return the seconds that it takes the program."""
    await client.call("terminals.type", {"sid": sid, "keys": [f"b:{key:02x}"]})
    while True:
        await asyncio.sleep(POLL_S)  # each check takes time of the gateway
        text = (await client.call("terminals.screen", {"sid": sid}))["text"]
        if f"FLOOD {number} TOOK" in text:
            return _took(text)


def _flooded_bare(program: list[str], key: int) -> float:
    with Bare.running(program) as bare:
        bare.until(b"READY")
        bare.type(bytes([key]))
        return _took(bare.until(b" s\r\n").decode(errors="replace"))


def _took(text: str) -> float:
    (*_, last) = re.findall(r"TOOK ([\d.]+) s", text)
    return float(last)


async def bench_memory(stack: Stack) -> list[Figure]:
    """Measure the memory of full terminals, and the memory that is not freed after their end.

    Only growth in the second of two rounds counts: the first one leaves memory and connections
    that are used again.
    """
    async with Stage.set(stack, played()) as stage, stage.door.connected(stage.token) as client:
        pid = stage.process.pid
        await _filled(stage, client, "first")
        gateway, left = 0.0, list[tuple[float, int]]()
        for _ in range(2):
            before = resident_mb(pid)
            sids = [await _filled(stage, client, f"t{number}") for number in range(FILLED)]
            await asyncio.sleep(SETTLED_S)
            gateway = gateway or (resident_mb(pid) - before) / FILLED
            holders = [resident_mb(await stage.holder(sid)) for sid in sids]
            for sid in sids:
                await client.call("terminals.end", {"sid": sid})

            async def are_over() -> bool:
                return len(await stage.held()) == 1

            await eventually(are_over)
            await asyncio.sleep(SETTLED_S)
            left.append((resident_mb(pid), descriptors(pid)))
    (first, opened), (second, reopened) = left
    return [
        Figure("a full terminal: its holder", max(holders), "MB", "≤ 9"),
        Figure("a full terminal: the gateway", gateway, "MB", "≤ 1"),
        Figure(f"… not freed after {FILLED} more: the gateway", second - first, "MB", "≤ 2"),
        Figure("… descriptors not closed", reopened - opened, "", "0"),
    ]


async def _filled(stage: Stage, client: RpcClient, name: str) -> str:
    sid = await stage.open(client, name)
    await client.call("terminals.type", {"sid": sid, "keys": [f"b:{FILL:02x}"]})
    await shows(client, sid, "FILLED")
    return sid
