"""Terminals: keys, viewers, floods, memory and resuming: `python -m tests.bench.terminals`."""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from remoteclaw.config.home import Home
from tests.bench.load import Figure
from tests.bench.rows import Row, table
from tests.bench.screens import bench_screens
from tests.bench.terminals_crowd import bench_crowd, bench_joining, bench_real
from tests.bench.terminals_echo import bench_echo
from tests.bench.terminals_flood import bench_flood, bench_memory
from tests.bench.terminals_resume import bench_resume
from tests.support.agents import AgentCli, ModelServerProcess, find_cli
from tests.support.stack import Stack

#: The CLIs that are resumed.
CLIS = ("claude", "codex")
PARTS = ("screens", "echo", "crowd", "joining", "flood", "memory", *CLIS)


async def bench_terminals(
    stack: Stack, directory: Path, rounds: int, parts: Collection[str] = PARTS
) -> tuple[list[Row], list[Figure]]:
    """Measure all or some parts."""
    rows, figures = [], []
    if "screens" in parts:
        figures += bench_screens()
    if "echo" in parts:
        rows += await bench_echo(stack, directory / "echo", rounds)
    if "crowd" in parts:
        figures += await bench_crowd(stack, rounds)
    if "joining" in parts:
        rows += await bench_joining(stack, rounds)
    if "flood" in parts:
        floods, left = await bench_flood(stack, rounds)
        rows, figures = [*rows, *floods], [*figures, *left]
    if "memory" in parts:
        figures += await bench_memory(stack)
    with ModelServerProcess.running(directory) as model:
        for name in filter(CLIS.__contains__, parts):
            if program := find_cli(name):
                place = directory / f"{name}-resumed"
                place.mkdir()
                cli = AgentCli(name, program, model)
                rows += await bench_resume(stack, cli, place, rounds)
                figures.append(await bench_real(stack, cli, place, rounds))
            else:
                sys.stderr.write(f"{name} is not installed: its rows are left out\n")
    return [Row(*each) for each in rows], figures


async def _run(rounds: int, parts: Collection[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as name:
        directory = Path(name)
        os.environ["REMOTECLAW_HOME"] = str(directory / "home")
        os.environ["HOME"] = str(directory)
        async with contextlib.AsyncExitStack() as exits:
            stack = Stack(Home.default().create(), appendfsync="everysec")
            exits.push_async_callback(stack.stop)
            await stack.start()
            for part in parts:
                part_rows, figures = await bench_terminals(stack, directory, rounds, [part])
                if part_rows:
                    sys.stdout.write(table(part_rows) + "\n")
                for figure in figures:
                    sys.stdout.write(f"{figure.line()}\n")
                sys.stdout.flush()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=30, help="measurements of each kind")
    options = parser.parse_args()
    asyncio.run(_run(options.rounds, options.parts))


if __name__ == "__main__":
    main()
