"""Asides, branches and results of tasks: `python -m tests.bench.asides [CLI …]`.

An aside is measured from the acceptance of a message to its answer on the reply stream, while a
turn waits for a file; its baseline is a warm follow-up in the same run. The only worker is busy
with that turn. A branch is measured from its start to its first words; its baseline is a task
without a copy of the conversation. A result is measured from the end of the task to the answer in
the chat, of which half a second is the wait for further results.
"""

import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import orjson

from remoteclaw.config.home import Home
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.runtimes import create_cli_runtime
from tests.bench.gateway import RowParts
from tests.bench.stack import FleetStack
from tests.support.agents import AgentCli, ModelServerProcess, find_cli
from tests.support.doors import gateway_process
from tests.support.stack import REPLIES, Stack
from tests.support.waiting import eventually

#: The number of asides during one turn, fewer than the maximum of a turn.
ASIDES = 15
#: The number of measurements of each CLI if this benchmark runs alone.
ROUNDS = 20
#: The goals, relative to warm follow-ups; the one of gemini is in milliseconds.
GOALS = {"claude": "≤ 1.5 ×", "codex": "≤ 2 ×", "opencode": "≤ 4 ×", "gemini": "≤ 300 ms"}


async def bench_asides(stack: Stack, cli: AgentCli, directory: Path, rounds: int) -> RowParts:
    """Measure asides and warm follow-ups in alternating blocks."""
    queue = {"mode": "aside", "debounce_ms": 0}
    stack.configure(cli.config(permissions="auto"), queue=queue, linger_s=30)
    if not stack.workers:
        await stack.start_worker()
    await seconds(stack, "SAY:first")
    ours: list[float] = []
    baseline: list[float] = []
    while len(ours) < rounds:
        baseline += [await seconds(stack, "SAY:x") for _ in range(ASIDES + 1)][1:]
        started, end = (directory / f"{name} {len(ours)}" for name in ("started", "end"))
        work = await stack.append(
            f"SHELL:touch '{started}'; until test -e '{end}'; do sleep 0.1; done"
        )
        await eventually(started.exists)
        ours += [await seconds(stack, "VERDICT:answered x") for _ in range(ASIDES + 1)][1:]
        end.touch()
        await stack.outcome(work)
        await stack.fleet.scripts.client.delete(REPLIES)
    name = f"{cli.name}, an aside during a turn"
    return name, "its warm follow-up", ours, baseline, GOALS[cli.name]


async def bench_branch(stack: Stack, cli: AgentCli, rounds: int) -> tuple[RowParts, list[float]]:
    """Measure branches and fresh tasks alternately; return the row and the seconds of results."""
    async with gateway_process(stack):
        owners = {"test": {"owners": ["alice"]}}
        stack.configure(cli.config(permissions="auto"), channels=owners, linger_s=30)
        for _ in range(2):
            await stack.start_worker()
        first = await stack.append("SAY:first")
        await stack.outcome(first)
        seconds: dict[str, list[float]] = {"conversation": [], "nothing": []}
        results: list[float] = []
        for number in range(rounds + 1):
            for knows, side in seconds.items():
                began_s, result_s = await _task(stack, first, knows)
                if number:
                    side.append(began_s)
                    results.append(result_s)
    name = f"{cli.name}, a branch's first words"
    sides = seconds["conversation"], seconds["nothing"]
    return (name, "a fresh task's", *sides, "≤ 1.25 ×"), results


async def _task(stack: Stack, parent: Accepted, knows: str) -> tuple[float, float]:
    """Start a task; return the seconds to its first words, and those of its result to the chat."""
    params = orjson.dumps({"prompt": "SAY:done", "knows": knows}).decode()
    known = {view.sid for view in await stack.fleet.sessions.children(parent.session.sid)}
    await stack.ask(f"TOOL:sessions_spawn:{params}")

    async def task() -> SessionView | None:
        views = await stack.fleet.sessions.children(parent.session.sid)
        return next((view for view in views if view.sid not in known and view.finished_turn), None)

    async def steps(sid: str, entry_id: str | None) -> dict[str, int]:
        outcome = await stack.fleet.outcomes.read(sid, str(entry_id))
        return {step.name: step.at_ms for step in outcome.steps} if outcome else {}

    view = await eventually(task)
    at_ms = await steps(view.sid, view.finished_turn)

    async def answered_ms() -> int | None:
        now = await stack.fleet.sessions.view(parent.session.sid)
        finished = (await steps(parent.session.sid, now.last_entry if now else None)).get(
            "finished"
        )
        return finished if finished and finished > at_ms["finished"] else None

    result_ms = await eventually(answered_ms)
    return (at_ms["output"] - at_ms["accepted"]) / 1000, (result_ms - at_ms["finished"]) / 1000


async def seconds(stack: Stack, text: str) -> float:
    """Return the seconds from the acceptance of a message to its reply."""
    client = stack.fleet.scripts.client
    await client.delete(REPLIES)
    started = time.perf_counter()
    await stack.append(text)
    while not await client.xread({REPLIES: "0"}, count=1, block=10_000):
        pass
    seconds = time.perf_counter() - started
    await client.delete(REPLIES)
    return seconds


@contextlib.asynccontextmanager
async def _stack() -> AsyncIterator[tuple[Stack, Path]]:
    with tempfile.TemporaryDirectory(prefix="rc-") as name:
        stack = FleetStack(Home(Path(name) / "home").create(), appendfsync="everysec")
        await stack.start()
        try:
            yield stack, Path(name)
        finally:
            await stack.stop()


async def main(names: Sequence[str]) -> None:
    """Print the rows of each CLI."""
    with (
        tempfile.TemporaryDirectory(prefix="rc-") as name,
        ModelServerProcess.running(Path(name)) as model,
    ):
        for cli in names or GOALS:
            if not (program := find_cli(cli)):
                continue
            agent = AgentCli(cli, program, model)
            async with _stack() as (stack, directory):
                _print(await bench_asides(stack, agent, directory, ROUNDS))
            if not create_cli_runtime(cli).capabilities.has_points:
                continue
            async with _stack() as (stack, _):
                branch, results = await bench_branch(stack, agent, ROUNDS)
            _print(branch)
            median = statistics.median(results) * 1000
            sys.stdout.write(f"{cli}, a result in the chat: {median:.0f} ms\n")


def _print(row: RowParts) -> None:
    label, baseline_name, *sides, goal = row
    ours, baseline = (statistics.median(side) * 1000 for side in sides)
    times = f"{ours:.0f} ms, {ours / baseline:.2f} × {baseline_name} {baseline:.0f} ms"
    sys.stdout.write(f"{label}: {times} ({goal})\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
