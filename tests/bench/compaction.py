"""Messages that interrupt an idle conversation's summary: `python -m tests.bench.compaction`.

Each is measured from its acceptance to its answer on the reply stream; the baseline is a warm
follow-up in the same conversation and the same run.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from remoteclaw.config.home import Home
from remoteclaw.session.idle import MAX_ATTEMPTS
from tests.bench.gateway import RowParts
from tests.bench.rows import Row, table
from tests.bench.stack import FleetStack
from tests.support.agents import AgentCli, ModelServerProcess, find_cli
from tests.support.stack import REPLIES, Stack
from tests.support.waiting import eventually

#: How each CLI gets a conversation that is to be summarized while it is idle.
LONG = {"claude": "USED:151000 SAY:x", "codex": "USED:221000 SAY:x"}
#: The drain waits so long before it begins, so that the baseline finds it attached, in seconds.
LINGER_S = 0.2
#: Codex itself takes 100 ms to stop, so it can't reach it.
GOAL = "≤ 100 ms added"
ROUNDS = 20


async def bench_compaction(stack: Stack, cli: AgentCli, rounds: int) -> RowParts:
    """Measure interrupting messages, and follow-ups behind them, in one conversation after another.

    A conversation is not summarized any more after `MAX_ATTEMPTS` interruptions.
    """
    config = cli.config()
    config["env"]["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = "200000"
    stack.configure(config, linger_s=LINGER_S)
    if not stack.workers:
        await stack.start_worker()
    ours: list[float] = []
    baseline: list[float] = []
    with cli.model.limited(summary_s=600):
        while len(ours) < rounds:
            for text in ("/new", "SAY:first", LONG[cli.name]):
                await _seconds(stack, text)
            for _ in range(MAX_ATTEMPTS):
                number = len(cli.model.requests())
                await eventually(lambda: _is_summarizing(cli, number))  # noqa: B023
                ours.append(await _seconds(stack, LONG[cli.name]))
            baseline += [await _seconds(stack, LONG[cli.name]) for _ in range(MAX_ATTEMPTS)]
    name = f"{cli.name}, interrupts an idle summary"
    return name, "its warm follow-up", ours, baseline, GOAL


def _is_summarizing(cli: AgentCli, since: int) -> bool:
    return any(each["is_summary"] for each in cli.model.requests()[since:])


async def _seconds(stack: Stack, text: str) -> float:
    """Return the seconds from the acceptance of a message to its reply."""
    client = stack.fleet.scripts.client
    started = time.perf_counter()
    await stack.append(text)
    while not await client.xread({REPLIES: "0"}, count=1, block=10_000):
        pass
    seconds = time.perf_counter() - started
    await client.delete(REPLIES)
    return seconds


async def main() -> None:
    """Print the row of each CLI."""
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="rc-") as name,
        ModelServerProcess.running(Path(name)) as model,
    ):
        for cli in LONG:
            if not (program := find_cli(cli)):
                continue
            stack = FleetStack(Home(Path(name) / cli).create(), appendfsync="everysec")
            await stack.start()
            try:
                agent = AgentCli(cli, program, model)
                rows.append(Row(*await bench_compaction(stack, agent, ROUNDS)))
            finally:
                await stack.stop()
    sys.stdout.write(f"{table(rows)}\n")


if __name__ == "__main__":
    asyncio.run(main())
