"""A soak of terminals: `python -m tests.bench.soak [--minutes N] [--sessions N]`.

Some terminals, of real CLIs where they are installed, are watched, typed in, resized, parked,
resumed and handed over at random, and the gateway is killed now and then. It fails if a
conversation ever has two processes, if an act fails, or if anything is left at the end.
"""

import argparse
import asyncio
import contextlib
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
from tests.bench.soak_samples import Sample, doubled, sampled
from tests.bench.stage import RECORDINGS, Stage, played
from tests.bench.terminals_resume import parked, used
from tests.support.agents import AgentCli, ModelServerProcess, find_cli
from tests.support.processes import marked_processes
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: How often it is looked, and how often a line is printed, in seconds.
SAMPLE_S, PRINT_S = 5.0, 60.0
#: The time from one kill of the gateway to the next, in seconds; the last part has none, so that
#: what grows is seen.
KILLS_S, LAST_PART = (90.0, 180.0), 0.3
#: How long a gateway has to let go of what is over, in seconds.
SETTLED_S = 15.0
#: How much larger a gateway may be at the end than soon after its start, in MB, and how many more
#: descriptors it may have than an empty one: connections to Redis are kept.
GROWN_MB, MORE_DESCRIPTORS = 15.0, 16


async def soak(stack: Stack, directory: Path, *, minutes: float, sessions: int) -> list[str]:
    """Soak; return what is wrong."""
    tally, samples, wrong = Tally(), list[Sample](), list[str]()
    with ModelServerProcess.running(directory) as model:
        agents = _agents(model, directory)
        kinds = [*agents]
        limits: dict[str, Any] = {"handover_s": 1, "scrollback": 1000}
        more = {**agents, "played": played(RECORDINGS[0])}
        async with Stage.set(stack, played(), count=4, agents=more, **limits) as stage:
            began = time.monotonic()
            empty = sampled(stack.home, stage.process.pid, began=began)
            _print(empty.line())
            seats = []
            for number in range(sessions):
                kind = (kinds * 2 + ["played"])[number % (2 * len(kinds) + 1)]
                seat = Seat(stage, tally, kind, f"{kind}-{number}", is_real=kind in agents)
                seats.append(seat)
            until = began + minutes * 60
            duties = [
                asyncio.create_task(_look(stage, samples, wrong, began)),
                asyncio.create_task(_kill(stage, tally, until - LAST_PART * minutes * 60)),
            ]
            await asyncio.gather(*(seat.run(until) for seat in seats))
            for duty in duties:
                duty.cancel()
            for error in await asyncio.gather(*duties, return_exceptions=True):
                if isinstance(error, Exception):
                    wrong.append(f"the soak itself failed: {error!r}")
            _tell(tally, samples)
            wrong += tally.failed
            wrong += await _close(stage, seats)
            await asyncio.sleep(SETTLED_S)
            last = sampled(stack.home, stage.process.pid, began=began)
            _print(last.line())
    life = [each for each in samples if each.gateway == last.gateway]
    early = statistics.median(each.gateway_mb for each in life[: max(1, len(life) // 3)])
    if last.gateway_mb > early + GROWN_MB:
        wrong.append(f"the gateway has grown from {early:.1f} to {last.gateway_mb:.1f} MB")
    if last.gateway_descriptors > empty.gateway_descriptors + MORE_DESCRIPTORS:
        more_open = f"{empty.gateway_descriptors} to {last.gateway_descriptors}"
        wrong.append(f"the gateway's descriptors went from {more_open}")
    return wrong


def _agents(model: ModelServerProcess, directory: Path) -> dict[str, Any]:
    """Return the real CLIs that are there."""
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


async def _look(stage: Stage, samples: list[Sample], wrong: list[str], began: float) -> None:
    """Sample again and again."""
    told = began
    while True:
        await asyncio.sleep(SAMPLE_S)
        with contextlib.suppress(OSError):  # it was just killed
            home, pid = stage.stack.home, stage.process.pid
            samples.append(await asyncio.to_thread(sampled, home, pid, began=began))
        wrong += await asyncio.to_thread(doubled, stage.stack.home)
        if samples and time.monotonic() - told > PRINT_S:
            told = time.monotonic()
            _print(samples[-1].line() + (f"  {len(wrong)} wrong" if wrong else ""))


async def _kill(stage: Stage, tally: Tally, until: float) -> None:
    """Kill the gateway now and then."""
    chance = random.Random(1)
    while (at := time.monotonic() + chance.uniform(*KILLS_S)) < until:
        await asyncio.sleep(at - time.monotonic())
        await stage.kill()
        await stage.begin()
        tally.done["gateway killed"] += 1


async def _close(stage: Stage, seats: list[Seat]) -> list[str]:
    """Park everything; return what is left."""
    left = []
    async with stage.door.connected(stage.token) as client:
        for seat in seats:
            try:
                await parked(client, seat.sid)
            except AssertionError:
                view = await stage.stack.fleet.sessions.view(seat.sid)
                told = await client.call("terminals.get", {"sid": seat.sid})
                left.append(f"it can't be parked: {told}, {view}")
    try:
        await eventually(lambda: not marked_processes(stage.stack.home))
    except AssertionError:
        left.append(f"processes are left: {marked_processes(stage.stack.home)}")
    return left


def _tell(tally: Tally, samples: list[Sample]) -> None:
    for what, counted in (
        ("done", tally.done),
        ("refused", tally.refused),
        ("cut by a kill", tally.cut),
    ):
        _print(f"{what}: " + ", ".join(f"{name} {n}" for name, n in sorted(counted.items())))
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
            wrong = await soak(stack, directory, minutes=minutes, sessions=sessions)
    for each in wrong:
        _print(f"WRONG: {each}")
    _print("nothing is wrong" if not wrong else f"{len(wrong)} wrong")
    return bool(wrong)


def main() -> None:
    """Soak, and tell what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--sessions", type=int, default=8)
    given = parser.parse_args()
    sys.exit(asyncio.run(_run(given.minutes, given.sessions)))


if __name__ == "__main__":
    main()
