"""Runs the benchmarks: `scripts/bench [--json FILE] [--rounds N]`."""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from remoteclaw.config.home import Home
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from tests.bench.asides import bench_asides
from tests.bench.baselines import ECHO_AGENT, BareClaude, BareConsumer, one_shot_claude
from tests.bench.budgets import bench_budgets
from tests.bench.chats import bench_chats
from tests.bench.compaction import LONG, bench_compaction
from tests.bench.connector import bare_python, connector_listed, warm_gateway
from tests.bench.gateway import bench_doors
from tests.bench.inbox import bench_inbox
from tests.bench.load import Figure, bench_load
from tests.bench.matrix import bench_matrix
from tests.bench.models import MODELS, bench_model
from tests.bench.redis_commands import bench_redis_commands
from tests.bench.rows import Row, table
from tests.bench.slack import bench_slack
from tests.bench.stack import FleetStack
from tests.bench.start import bench_start
from tests.bench.terminals_echo import bench_echo
from tests.support.agents import AgentCli, ModelServerProcess, find_cli
from tests.support.doors import gateway_process
from tests.support.matrix.server import synapse
from tests.support.stack import REPLIES, Stack, message

Measure = Callable[[], Awaitable[float]]


async def interleaved(
    ours: Measure, baseline: Measure, rounds: int
) -> tuple[list[float], list[float]]:
    """Measure both alternately, so that other load of the machine affects both."""
    pairs = [(await ours(), await baseline()) for _ in range(rounds)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


class Ours:
    """Times the messages of a stack until their reply is on the reply stream."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._last: Accepted | None = None

    async def seconds(self, text: str, **fields: object) -> float:
        """Return the seconds from appending a message until its reply can be read."""
        client = self.stack.fleet.scripts.client
        sent = message(text, **fields)
        started = time.perf_counter()
        self._last = await self.stack.fleet.inbound.append(sent, agent="main")
        while not await client.xread({REPLIES: "0"}, count=1, block=10_000):
            pass
        seconds = time.perf_counter() - started
        await client.delete(REPLIES)
        return seconds

    async def idle(self) -> None:
        """Wait until the session's lease is released and its agent is parked."""
        if self._last:
            await self.stack.until_idle(self._last)

    async def parked(self, text: str) -> float:
        """Like `seconds`, with an idle worker that has to fork and attach."""
        await self.idle()
        return await self.seconds(text)


async def bench_streams(stack: Stack, rounds: int) -> list[Row]:
    """Measure a message's way without the time of an agent."""
    ours = Ours(stack)
    async with BareConsumer(stack.redis.url).running() as bare:
        stack.configure({"runtime": "demo", "command": list(ECHO_AGENT)}, linger_s=5)
        await worker(stack)
        await ours.seconds("first")
        for _ in range(5):
            await bare.seconds("x")
        attached = await interleaved(
            lambda: ours.seconds("x"), lambda: bare.seconds("x"), rounds * 4
        )
        stack.configure({"runtime": "demo", "command": list(ECHO_AGENT)}, linger_s=0)
        await worker(stack)
        await ours.seconds("first")
        parked = await interleaved(lambda: ours.parked("x"), lambda: bare.seconds("x"), rounds)
    return [
        Row("echo agent, drain attached", "bare consumer", *attached, "≤ 1.2 ×"),
        Row("echo agent, parked, idle worker", "bare consumer", *parked, "≤ 12 ms added"),
    ]


async def bench_claude(stack: Stack, claude: AgentCli, directory: Path, rounds: int) -> list[Row]:
    """Measure the real claude with a model that answers at once."""
    ours = Ours(stack)
    async with BareClaude(claude, directory).running() as bare:
        await bare.seconds("SAY:first")
        stack.configure(claude.config(), linger_s=5)
        await worker(stack)
        await ours.seconds("SAY:first")
        attached = await interleaved(
            lambda: ours.seconds("SAY:x"), lambda: bare.seconds("SAY:x"), rounds
        )
        stack.configure(claude.config(), linger_s=0)
        await worker(stack)
        await ours.seconds("SAY:first")
        parked = await interleaved(
            lambda: ours.parked("SAY:x"), lambda: bare.seconds("SAY:x"), rounds
        )
    cold = await interleaved(
        lambda: ours.seconds("SAY:x", from_=uuid.uuid4().hex),
        lambda: one_shot_claude(claude, directory, "SAY:x"),
        max(3, rounds // 3),
    )
    return [
        Row("claude, warm, drain attached", "bare warm claude", *attached, "≤ 25 ms"),
        Row("claude, warm, parked", "bare warm claude", *parked, "≤ 40 ms"),
        Row("claude, first message, cold", "bare claude -p", *cold, "≤ 1.1 ×"),
    ]


async def bench_tools(stack: Stack, claude: AgentCli, rounds: int) -> list[Row]:
    """Measure the time that RemoteClaw's tools add to the first message of a cold agent."""
    ours = Ours(stack)
    stack.configure(claude.config(warm_s=0), linger_s=0)
    await worker(stack)
    key = keys.gateway(stack.home.host_id)
    async with gateway_process(stack, REMOTECLAW__GATEWAY__PORT="0") as (door, _):

        async def cold(address: str) -> float:
            # Drains read the gateway's address from this key; the gateway writes it every 5 s.
            client = stack.fleet.scripts.client
            await (client.set(key, address) if address else client.delete(key))
            return await ours.seconds("SAY:x", from_=uuid.uuid4().hex)

        await cold(door.url)
        measured = await interleaved(lambda: cold(door.url), lambda: cold(""), max(5, rounds // 3))
    name = "claude, first message, with tools"
    return [Row(name, "the same without tools", *measured, "≤ 30 ms added")]


def bench_connector(rounds: int) -> list[Row]:
    """Measure the stdio connector from its start until its tools are listed."""
    with warm_gateway() as url:
        pairs = [(connector_listed(url), bare_python()) for _ in range(rounds * 2)]
    ours, baseline = ([pair[side] for pair in pairs] for side in (0, 1))
    return [Row("connector, started, tools listed", "bare Python loop", ours, baseline, "≤ 60 ms")]


async def worker(stack: Stack) -> None:
    """Replace the worker by one with the current configuration."""
    for old in stack.workers:
        old.kill()
        old.wait()
    await stack.fleet.scripts.client.flushall()
    stack.reopen()
    await stack.start_worker()


async def run(rounds: int, *, sessions: int) -> tuple[list[Row], list[Figure]]:
    with contextlib.ExitStack() as exits:
        directory = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="rc-")))
        os.environ["REMOTECLAW_HOME"] = str(directory / "home")
        os.environ["HOME"] = str(directory)
        stack = FleetStack(Home.default().create(), appendfsync="everysec")
        await stack.start()
        claude = None
        try:
            rows = await bench_streams(stack, rounds)
            rows += bench_connector(rounds)
            rows.append(Row(*await bench_budgets(stack, rounds)))
            rows.append(Row(*await bench_inbox(stack, rounds)))
            starts, idle = await asyncio.to_thread(bench_start, rounds)
            commands, commands_table = await asyncio.to_thread(bench_redis_commands)
            sys.stderr.write(f"{commands_table}\n")
            rows += [Row(*start) for start in starts]
            rows += [Row(*pairs) for pairs in await bench_doors(stack, rounds)]
            rows += [Row(*pairs) for pairs in await bench_chats(stack, rounds)]
            pairs_on_slack, on_slack = await bench_slack(stack, rounds)
            rows += [Row(*pairs) for pairs in pairs_on_slack]
            on_matrix: list[Figure] = []
            if synapse():
                pairs_on_matrix, on_matrix = await bench_matrix(stack, rounds)
                rows += [Row(*pairs) for pairs in pairs_on_matrix]
            else:
                sys.stderr.write("Synapse is not installed: its rows are left out\n")
            rows += [Row(*pairs) for pairs in await bench_echo(stack, directory / "echo", rounds)]
            if program := find_cli("claude"):
                model = exits.enter_context(ModelServerProcess.running(directory))
                claude = AgentCli("claude", program, model)
                rows += await bench_claude(stack, claude, directory, rounds)
                rows += await bench_tools(stack, claude, rounds)
                await worker(stack)
                rows.append(Row(*await bench_model(stack, claude, rounds)))
                await worker(stack)
                rows.append(Row(*await bench_asides(stack, claude, directory, rounds)))
                await worker(stack)
                rows.append(Row(*await bench_compaction(stack, claude, rounds)))
            else:
                sys.stderr.write("claude is not installed: its rows are left out\n")
            figures = await bench_load(stack, claude, sessions=sessions) if sessions else []
            figures += [idle, *commands, *on_slack, *on_matrix]
            for name in ("codex", "gemini", "opencode"):
                if (program := find_cli(name)) and claude:
                    cli = AgentCli(name, program, claude.model)
                    await worker(stack)
                    rows.append(Row(*await bench_asides(stack, cli, directory, rounds)))
                    if name in LONG:
                        await worker(stack)
                        rows.append(Row(*await bench_compaction(stack, cli, rounds)))
                    if name in MODELS:
                        await worker(stack)
                        rows.append(Row(*await bench_model(stack, cli, rounds)))
                else:
                    sys.stderr.write(f"{name} is not installed: its rows are left out\n")
        finally:
            await stack.stop()
    return rows, figures


def machine() -> dict[str, object]:
    """Return what a reader has to know to compare the figures: processor, versions, commit."""

    def first_line(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return next(iter(done.stdout.splitlines()), "unknown").strip()

    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    clis = {name: find_cli(name) for name in ("claude", "codex", "gemini", "opencode")}
    return {
        "cpu": models[0] if models else platform.machine(),
        "python": platform.python_version(),
        "clis": {name: first_line(str(path), "--version") for name, path in clis.items() if path},
        "commit": first_line("git", "describe", "--always", "--dirty"),
    }


def main() -> None:
    """Print a table, and write JSON with `--json`, as `docs/benchmarks.json` is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--rounds", type=int, default=30, help="measurements of each kind")
    parser.add_argument("--sessions", type=int, default=10_000, help="0 leaves the load out")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    rows, figures = asyncio.run(run(arguments.rounds, sessions=arguments.sessions))
    sys.stdout.write(table(rows) + "\n\n")
    for figure in figures:
        sys.stdout.write(f"{figure.line()}\n")
    if arguments.json:
        everything = [row.as_json() for row in rows] + [figure.as_json() for figure in figures]
        run_ = {
            "date": datetime.now(UTC).date().isoformat(),
            "cores": os.cpu_count(),
            "load": round(load, 1),
            "command": shlex.join(["scripts/bench", *sys.argv[1:]]),
            **machine(),
        }
        arguments.json.write_text(json.dumps({**run_, "figures": everything}, indent=2) + "\n")


main()
