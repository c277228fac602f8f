"""How much a flood slows the program that makes it, and what is left of it afterwards."""

import asyncio
import itertools
import re

from tests.bench.bare import Bare
from tests.bench.gateway import Pairs
from tests.bench.load import Figure
from tests.bench.stage import Stage, descriptors, played, resident_mb, shows
from tests.bench.viewers import viewing
from tests.support.doors import RpcClient
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: What is written, by the key that begins it.
FLOODS = {"100 MB in one line": 0x0C, "100 MB of lines": 0x19}
FILL = 0x06
#: How many terminals are filled to see what one takes.
FILLED = 6
#: How often it is looked whether a flood is over, in seconds.
LOOK_S = 0.25
#: How long something that is over has to let go of its memory, in seconds.
SETTLED_S = 5.0


async def bench_flood(stack: Stack, rounds: int) -> tuple[list[Pairs], list[Figure]]:
    """Measure floods while one watches, beside a bare pseudo-terminal that is drained."""
    number = itertools.count(1)
    rows: list[Pairs] = []
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
                Figure(f"… afterwards, grown: {name}", grown, "MB", "≤ 2"),
                Figure(f"… its descriptors: {name}", more, "more", "0"),
            ]
    return rows, figures


async def _flooded(client: RpcClient, sid: str, key: int, number: int) -> float:
    """Return how long a terminal's flood of that number takes its program, in seconds."""
    await client.call("terminals.key", {"sid": sid, "bytes": key})
    while True:
        await asyncio.sleep(LOOK_S)  # to look costs the gateway time
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
    """Count what a terminal takes whose scrollback and ring are full, and what is left of some.

    The second time: what the first ones leave is memory and connections that the next ones use.
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
        Figure(f"… left of {FILLED} more: the gateway", second - first, "MB", "≤ 2"),
        Figure("… their descriptors", reopened - opened, "more", "0"),
    ]


async def _filled(stage: Stage, client: RpcClient, name: str) -> str:
    sid = await stage.open(client, name)
    await client.call("terminals.key", {"sid": sid, "bytes": FILL})
    await shows(client, sid, "FILLED")
    return sid
