"""Random chaos on hosts of real processes, and a check of what happened to every message.

    python -m tests.chaos [--seconds 180] [--seed 1] [--workers 4] [--sessions 12] [--hosts 2]

People write to a bot on the tests' Telegram. All hosts share a Redis. The last one has the programs
of the Procfile, the others have `remoteclaw up`; each has an adapter for the bot.
Workers, work-horses, agents, adapters, gateways, sweepers and Redis are killed, work-horses are
frozen for longer than their lease and an adapter for longer than its claim, hosts are restarted
with SIGTERM, hints are deleted, and the platform delivers messages twice.
Now and then the people pause until everything is answered, and the fleet is measured.

At the end, no message may be lost, doubled or out of order, no process may be left running, and
memory, descriptors and keys may not have grown. Only an answer that says so ("perhaps a second
time") may come twice, since Telegram can't be asked whether a call arrived.
This is a smoke test: `tests/session/test_failpoints.py` proves each step by itself.
"""

import asyncio
import collections
import contextlib
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.errors import RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.holder.runs import has_holder
from tests.chaos.disruptions import LEASE_S, Disruptor
from tests.chaos.flat import Sample, sample
from tests.chaos.hosts import UP, Host, procfile
from tests.chaos.people import AGENT, People, session_of
from tests.support.bridges import script
from tests.support.processes import is_alive, marked_processes
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot
from tests.support.waiting import HANG_S, eventually

#: The counts that must be 0 at the end.
PROMISES = ("lost", "doubled", "out of order", "orphans")
#: A run has so many samples at most, with at least so many seconds between two of them.
SAMPLES, SAMPLE_S = 30, 15.0
#: The longest pause between two messages, in seconds. Telegram takes about one message per second
#: in a chat, and an answer has up to two.
PAUSE_S = 0.4


class Chaos:
    """A fleet under disruption, with the people who use it."""

    def __init__(
        self, hosts: list[Host], bot: TelegramBot, chance: random.Random, *, sessions: int
    ) -> None:
        self.hosts = hosts
        self.fleet = hosts[0].stack.fleet
        self.people = People(bot, chance, count=sessions)
        self.disruptor = Disruptor(hosts, chance)
        self.disruptions: collections.Counter[str] = collections.Counter()
        self.samples: list[Sample] = []
        self.orphans = 0
        """The number of agents, and processes of agents, that belong to no session at the end."""
        self._random = chance

    async def run(self, seconds: float, report: Callable[[str], object]) -> None:
        """Disrupt the fleet for `seconds`, with pauses to measure it; then end it."""
        await self.people.prepare(self.fleet)
        keeping = [asyncio.create_task(host.keep()) for host in self.hosts]
        try:
            await eventually(lambda: all(host.is_whole() for host in self.hosts))
            until, interval = boottime() + seconds, max(SAMPLE_S, seconds / SAMPLES)
            while self._continues(until):
                await self._disturb(min(until, boottime() + interval), until)
                await self._rest()
                self.samples.append(await sample(self.fleet, self.hosts, self.people.count))
                report(f"{max(0, until - boottime()):.0f} s left, {self.people.count} messages")
            with contextlib.suppress(AssertionError):
                await eventually(self._is_tidy)
            self.orphans = len(await self._orphans())
            for host in self.hosts:
                await host.stop()
            with contextlib.suppress(AssertionError):
                await eventually(lambda: not self._marked())
            self.orphans += len(self._marked())
        finally:
            for task in keeping:
                task.cancel()
            await asyncio.wait(keeping)
            self.disruptor.thaw()
            for host in self.hosts:
                host.end()
            for pid in self._marked():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # -- messages and disruptions ------------------------------------------------------------------

    def _continues(self, until: float) -> bool:
        """Whether to continue: until the time is over and each disruption has happened once."""
        names = (*self.disruptor.names, "stop")
        has_all = all(self.disruptions[name] for name in names)
        return boottime() < until or (not has_all and boottime() < until + HANG_S)

    async def _disturb(self, pause_at: float, until: float) -> None:
        """Write and disrupt until the next pause."""
        is_last = pause_at >= until

        def goes_on() -> bool:
            return self._continues(until) if is_last else boottime() < pause_at

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._talk(goes_on))
            tasks.create_task(self._break(goes_on))

    async def _talk(self, goes_on: Callable[[], bool]) -> None:
        while goes_on():
            self.disruptions["stop"] += await self.people.write()
            await asyncio.sleep(self._random.random() * PAUSE_S)

    async def _break(self, goes_on: Callable[[], bool]) -> None:
        while goes_on():
            for name in self.disruptor.order(self.disruptions["rounds"]):
                if not goes_on():
                    return
                self.disruptions[name] += await self.disruptor.disrupt(name)
                await asyncio.sleep(self.disruptor.pause_s())
            self.disruptions["rounds"] += 1

    # -- rest --------------------------------------------------------------------------------------

    async def _rest(self) -> None:
        """Wait until everything is answered and delivered, and all processes run."""
        await eventually(lambda: not self.disruptor.has_frozen)
        await eventually(self._is_at_rest, within_s=3 * HANG_S)

    async def _is_at_rest(self) -> bool:
        client: Any = self.fleet.scripts.client
        account = ("telegram", "default")
        if not all(host.is_whole() for host in self.hosts):
            return False
        try:
            if await client.hlen(keys.inbox(*account)) or await client.xlen(keys.replies(*account)):
                return False
            for chat, said in self.people.said.items():
                view = await self.fleet.sessions.view(session_of(chat).sid) if said else None
                if said and (view is None or view.status != "idle" or view.waiting):
                    return False
        except RedisUnavailable:
            return False
        return True

    async def _is_tidy(self) -> bool:
        return not await self._orphans()

    async def _orphans(self) -> list[int]:
        """Return the processes without a holder, and a 0 for each holder that no session names."""
        client: Any = self.fleet.scripts.client
        known = set()
        for chat in self.people.chats:
            record = await client.hget(keys.state(session_of(chat).sid), "agent_process")
            if record:
                known.add(Path(orjson.loads(record)["path"]).parent.name)
        runs = [run for host in self.hosts for run in host.stack.home.runs.iterdir()]
        strays = [pid for pid in self._marked() if not _has_holder(pid)]
        return strays + [0 for run in runs if run.name not in known and has_holder(run)]

    def _marked(self) -> list[int]:
        return [pid for host in self.hosts for pid in marked_processes(host.stack.home)]


def _has_holder(pid: int) -> bool:
    """Whether a process is a holder, belongs to a running holder, or has just ended."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return True
    marks = [v.partition(b"=")[2] for v in variables if v.startswith(b"REMOTECLAW_HOLDER=")]
    return not marks or is_alive(int(marks[0].partition(b":")[0]))


async def chaos(
    seconds: float,
    directory: Path,
    bot: TelegramBot,
    *,
    seed: int,
    workers: int,
    sessions: int,
    hosts: int,
    report: Callable[[str], object] = lambda _: None,
) -> tuple[dict[str, int], list[Sample]]:
    """Run chaos on new hosts; return the verdict with the number of each disruption, and samples.

    `report` is told how far it is.
    """
    stacks = [Stack(Home(directory / f"host-{n + 1}").create()) for n in range(hosts)]
    first = stacks[0]
    await asyncio.to_thread(first.redis.start)
    token_file = directory / "token"
    token_file.write_text(bot.token)
    token_file.chmod(0o600)
    agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    everybody = [str(1001 + number) for number in range(sessions)]
    account = {"token_file": str(token_file), "api_url": bot.api_url, "owners": everybody}
    for stack in stacks:
        stack.configure(
            agent,
            redis_url=first.redis.url,
            channels={"telegram": account},
            host_name=stack.home.path.name,
            lease_s=LEASE_S,
            leave_s=1,
            workers=workers,
            stop_s=HANG_S,
        )
    first.reopen()
    for stack in stacks:
        stack.fleet, stack.redis = first.fleet, first.redis
    found = [Host(stack, UP, workers=workers) for stack in stacks[:-1]]
    found.append(Host(stacks[-1], procfile(workers), workers=workers))
    work = Chaos(found, bot, random.Random(seed), sessions=sessions)
    try:
        await work.run(seconds, report)
        verdict = await work.people.verdict(first.fleet)
        for problem in work.people.problems:
            report(problem)
    finally:
        await first.stop()
    counts = {"messages": 0, **dict.fromkeys(PROMISES, 0), **verdict, "orphans": work.orphans}
    counts["killed after SIGTERM"] = sum(host.killed for host in found)
    return {**counts, **work.disruptions}, work.samples
