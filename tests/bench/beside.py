"""Answers beside a running turn: `python -m tests.bench.beside [CLI …]`.

From a message's acceptance to its answer on the reply stream, while a turn waits for a file, beside
a warm follow-up of the same run. The worker is one, and it is busy with that turn.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from remoteclaw.config.home import Home
from tests.bench.gateway import Pairs
from tests.support.agents import AgentCli, ModelServerProcess, find_cli
from tests.support.stack import REPLIES, Stack
from tests.support.waiting import eventually

__all__ = ["bench_beside"]

#: How many asides are asked of one turn: fewer than a turn has at most.
ASIDES = 15
#: How many are measured of each CLI where nothing else is.
ROUNDS = 30
#: The goals: in warm follow-ups, but gemini's in milliseconds.
GOALS = {"claude": "≤ 1.5 ×", "codex": "≤ 2 ×", "opencode": "≤ 4 ×", "gemini": "≤ 300 ms"}


async def bench_beside(stack: Stack, cli: AgentCli, directory: Path, rounds: int) -> Pairs:
    """Measure asides beside warm follow-ups, in blocks by turns."""
    queue = {"mode": "aside", "debounce_ms": 0}
    stack.configure(cli.config(permissions="auto"), queue=queue, linger_s=30)
    if not stack.workers:
        await stack.start_worker()
    await _seconds(stack, "SAY:first")
    ours: list[float] = []
    floor: list[float] = []
    while len(ours) < rounds:
        floor += [await _seconds(stack, "SAY:x") for _ in range(ASIDES + 1)][1:]
        began, go_on = (directory / f"{name} {len(ours)}" for name in ("began", "go on"))
        work = await stack.append(
            f"SHELL:touch '{began}'; until test -e '{go_on}'; do sleep 0.1; done"
        )
        await eventually(began.exists)
        ours += [await _seconds(stack, "VERDICT:answered x") for _ in range(ASIDES + 1)][1:]
        go_on.touch()
        await stack.outcome(work)
        await stack.fleet.scripts.client.delete(REPLIES)
    name = f"{cli.name}, an answer beside a turn"
    return name, "its warm follow-up", ours, floor, GOALS[cli.name]


async def _seconds(stack: Stack, text: str) -> float:
    """Return how long a message takes from its acceptance to a reply."""
    client = stack.fleet.scripts.client
    await client.delete(REPLIES)
    started = time.perf_counter()
    await stack.append(text)
    while not await client.xread({REPLIES: "0"}, count=1, block=10_000):
        pass
    seconds = time.perf_counter() - started
    await client.delete(REPLIES)
    return seconds


async def main(names: Sequence[str]) -> None:
    """Print a line for each CLI."""
    with (
        tempfile.TemporaryDirectory(prefix="rc-") as name,
        ModelServerProcess.running(Path(name)) as model,
    ):
        for cli in names or GOALS:
            if not (program := find_cli(cli)):
                continue
            with tempfile.TemporaryDirectory(prefix="rc-") as home:
                stack = Stack(Home(Path(home) / "home").create(), appendfsync="everysec")
                await stack.start()
                try:
                    agent = AgentCli(cli, program, model)
                    row = await bench_beside(stack, agent, Path(home), ROUNDS)
                finally:
                    await stack.stop()
            label, beside, *sides, goal = row
            ours, floor = (statistics.median(side) * 1000 for side in sides)
            times = f"{ours:.0f} ms, {ours / floor:.2f} × {beside} {floor:.0f} ms"
            sys.stdout.write(f"{label}: {times} ({goal})\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
