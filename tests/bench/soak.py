"""A soak of terminals: `python -m tests.bench.soak [--minutes N] [--sessions N]`.

Some terminals, with the installed CLIs, are watched, typed in, resized, parked, resumed and handed
over at random, and the gateway is killed now and then. The soak fails if a conversation ever has
two processes, if an act fails, or if a process is left at the end.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from remoteclaw.config.home import Home
from tests.bench.soak_acts import Seat, Tally
from tests.bench.soak_samples import Sample, doubled_processes, take_sample
from tests.bench.stage import RECORDINGS, Stage, parked, played, used
from tests.support.agents import AgentCli, ModelServerProcess, find_cli
from tests.support.processes import marked_processes
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: The time between two samples, and between two printed lines, in seconds.
SAMPLE_INTERVAL_S, PRINT_INTERVAL_S = 5.0, 60.0
#: The minimum and maximum time between two kills of the gateway, in seconds, and the fraction of
#: the soak at its end that has no kills, so that growth of the gateway is seen.
KILL_INTERVAL_S, QUIET_FRACTION = (90.0, 180.0), 0.3
#: The time for the gateway to free memory and descriptors after the sessions end, in seconds.
SETTLE_S = 15.0
#: The maximum growth of a gateway since soon after its start, in MB, and the maximum number of
#: descriptors more than an idle one has: connections to Redis are kept.
MAX_GROWTH_MB, MAX_MORE_DESCRIPTORS = 15.0, 16


async def soak(stack: Stack, directory: Path, *, minutes: float, sessions: int) -> list[str]:
    """Run the soak; return the problems."""
    tally, samples, problems = Tally(), list[Sample](), list[str]()
    with ModelServerProcess.running(directory) as model:
        agents = _agents(model, directory)
        kinds = itertools.cycle([*agents, *agents, "played"])
        limits: dict[str, Any] = {"handover_s": 1, "scrollback": 1000}
        more = {**agents, "played": played(RECORDINGS[0])}
        async with Stage.set(stack, played(), count=4, agents=more, **limits) as stage:
            began = time.monotonic()
            empty = take_sample(stack.home, stage.process.pid, began=began)
            _print(empty.line())
            seats = []
            for number, kind in zip(range(sessions), kinds, strict=False):
                seat = Seat(stage, tally, kind, f"{kind}-{number}", is_real=kind in agents)
                seats.append(seat)
            until = began + minutes * 60
            background = [
                asyncio.create_task(_sample(stage, samples, problems, began)),
                asyncio.create_task(_kill(stage, tally, until - QUIET_FRACTION * minutes * 60)),
            ]
            await asyncio.gather(*(seat.run(until) for seat in seats))
            for task in background:
                task.cancel()
            for error in await asyncio.gather(*background, return_exceptions=True):
                if isinstance(error, Exception):
                    problems.append(f"the soak itself failed: {error!r}")
            _print_tally(tally, samples)
            problems += tally.failed
            problems += await _close(stage, seats)
            await asyncio.sleep(SETTLE_S)
            last = take_sample(stack.home, stage.process.pid, began=began)
            _print(last.line())
    life = [each for each in samples if each.gateway == last.gateway]
    early = statistics.median(each.gateway_mb for each in life[: max(1, len(life) // 3)])
    if last.gateway_mb > early + MAX_GROWTH_MB:
        problems.append(f"the gateway has grown from {early:.1f} to {last.gateway_mb:.1f} MB")
    if last.gateway_descriptors > empty.gateway_descriptors + MAX_MORE_DESCRIPTORS:
        more_open = f"{empty.gateway_descriptors} to {last.gateway_descriptors}"
        problems.append(f"the gateway's descriptors went from {more_open}")
    return problems


def _agents(model: ModelServerProcess, directory: Path) -> dict[str, Any]:
    """Return the agents with the installed CLIs."""
    found: dict[str, Any] = {}
    for name in ("claude", "codex"):
        if program := find_cli(name):
            place = directory / name
            place.mkdir()
            agent, _ = used(AgentCli(name, program, model), place)
            found[name] = {**agent, "warm_s": 0}
        else:
            sys.stderr.write(f"{name} is not installed: it is left out\n")
    return found


async def _sample(stage: Stage, samples: list[Sample], problems: list[str], began: float) -> None:
    """Take samples, and check for doubled processes, until cancelled."""
    printed = began
    while True:
        await asyncio.sleep(SAMPLE_INTERVAL_S)
        with contextlib.suppress(OSError):  # it was just killed
            home, pid = stage.stack.home, stage.process.pid
            samples.append(await asyncio.to_thread(take_sample, home, pid, began=began))
        problems += await asyncio.to_thread(doubled_processes, stage.stack.home)
        if samples and time.monotonic() - printed > PRINT_INTERVAL_S:
            printed = time.monotonic()
            _print(samples[-1].line() + (f"  {len(problems)} problems" if problems else ""))


async def _kill(stage: Stage, tally: Tally, until: float) -> None:
    """Kill the gateway now and then."""
    chance = random.Random(1)
    while (at := time.monotonic() + chance.uniform(*KILL_INTERVAL_S)) < until:
        await asyncio.sleep(at - time.monotonic())
        await stage.kill()
        await stage.begin()
        tally.done["gateway killed"] += 1


async def _close(stage: Stage, seats: list[Seat]) -> list[str]:
    """Park every terminal; return the problems."""
    left = []
    async with stage.door.connected(stage.token) as client:
        for seat in seats:
            try:
                await parked(client, seat.sid)
            except AssertionError:
                view = await stage.stack.fleet.sessions.view(seat.sid)
                terminal = await client.call("terminals.get", {"sid": seat.sid})
                left.append(f"it can't be parked: {terminal}, {view}")
    try:
        await eventually(lambda: not marked_processes(stage.stack.home))
    except AssertionError:
        left.append(f"processes are left: {marked_processes(stage.stack.home)}")
    return left


def _print_tally(tally: Tally, samples: list[Sample]) -> None:
    for title, counted in (
        ("done", tally.done),
        ("refused", tally.refused),
        ("cut by a kill", tally.cut),
    ):
        _print(f"{title}: " + ", ".join(f"{name} {n}" for name, n in sorted(counted.items())))
    _print(
        f"{len(samples)} samples: gateway at most {max(s.gateway_mb for s in samples):.1f} MB and "
        f"{max(s.gateway_descriptors for s in samples)} descriptors, a holder at most "
        f"{max(s.holder_mb for s in samples):.1f} MB and "
        f"{max(s.holder_descriptors for s in samples)}"
    )


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _run(minutes: float, sessions: int) -> int:
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as name:
        directory = Path(name)
        os.environ["REMOTECLAW_HOME"] = str(directory / "home")
        os.environ["HOME"] = str(directory)
        async with contextlib.AsyncExitStack() as exits:
            stack = Stack(Home.default().create(), appendfsync="everysec")
            exits.push_async_callback(stack.stop)
            await stack.start()
            problems = await soak(stack, directory, minutes=minutes, sessions=sessions)
    for problem in problems:
        _print(f"PROBLEM: {problem}")
    _print(f"{len(problems)} problems" if problems else "no problem")
    return bool(problems)


def main() -> None:
    """Run the soak, and print its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--sessions", type=int, default=8)
    options = parser.parse_args()
    sys.exit(asyncio.run(_run(options.minutes, options.sessions)))


if __name__ == "__main__":
    main()
