"""What happens to a fleet under chaos."""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from remoteclaw.fleet.replies.reader import CLAIM_MS
from tests.chaos.hosts import Host
from tests.support.processes import is_alive, marked_processes

#: The lease of a session, in seconds.
LEASE_S = 2.0
#: The disruptions that happen all the time, those that happen once in a while, and those that take
#: a part of the fleet away for seconds.
OFTEN = ("kill_worker", "kill_horse", "freeze_horse", "kill_agent", "lose_hints")
SOMETIMES = ("kill_redis", "kill_adapter", "kill_gateway")
SELDOM = ("kill_sweeper", "restart_host", "freeze_adapter")
#: So many rounds of the frequent disruptions are between two of each of the others.
OFTEN_TIMES, SELDOM_EVERY = 3, 4
#: The longest pause between two disruptions, in seconds.
PAUSE_S = 0.6


class Disruptor:
    """Kills, freezes and restarts the parts of a fleet.

    With two hosts and more, the programs of the last one are frozen but never killed, apart from
    the workers' forks: only a process that lives through the whole run can show that it grows.
    """

    def __init__(self, hosts: Sequence[Host], chance: random.Random) -> None:
        self.hosts = hosts
        self._random = chance
        self._mortal = hosts[:-1] or hosts
        self._frozen: dict[int, asyncio.TimerHandle] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all disruptions; a claim can only move if there are two adapters."""
        every = (*OFTEN, *SOMETIMES, *SELDOM)
        return every if len(self.hosts) > 1 else every[:-1]

    def order(self, number: int) -> list[str]:
        """Return the disruptions of one round, in a random order."""
        names = [*OFTEN * OFTEN_TIMES, *SOMETIMES]
        if number % SELDOM_EVERY == 0:
            names += [name for name in SELDOM if name in self.names]
        self._random.shuffle(names)
        return names

    async def disrupt(self, name: str) -> bool:
        """Do what `name` says; return whether there was something to do it to."""
        disrupt: Callable[[], Awaitable[None]] = getattr(self, f"_{name}")
        try:
            await disrupt()
        except (OSError, IndexError):  # nothing to choose from, or it has just ended
            return False
        return True

    def pause_s(self) -> float:
        """Return the pause until the next disruption, in seconds."""
        return self._random.random() * PAUSE_S

    @property
    def has_frozen(self) -> bool:
        """Whether a process is frozen."""
        return bool(self._frozen)

    def thaw(self) -> None:
        """Let all frozen processes continue."""
        for pid, timer in list(self._frozen.items()):
            timer.cancel()
            self._thaw(pid)

    def _thaw(self, pid: int) -> None:
        self._frozen.pop(pid, None)
        if is_alive(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _freeze(self, pid: int, seconds: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        loop = asyncio.get_running_loop()
        self._frozen[pid] = loop.call_later(seconds, self._thaw, pid)

    def _any(self, kind: str, hosts: Sequence[Host]) -> int:
        return self._random.choice([pid for host in hosts for pid in host.parts()[kind]])

    async def _kill_worker(self) -> None:
        os.kill(self._any("worker", self._mortal), signal.SIGKILL)

    async def _kill_horse(self) -> None:
        os.kill(self._any("horse", self.hosts), signal.SIGKILL)

    async def _freeze_horse(self) -> None:
        self._freeze(self._any("horse", self.hosts), LEASE_S * (0.5 + 2 * self._random.random()))

    async def _kill_agent(self) -> None:
        home = self._random.choice(self.hosts).stack.home
        os.kill(self._random.choice(marked_processes(home)), signal.SIGKILL)

    async def _lose_hints(self) -> None:
        client: Any = self.hosts[0].stack.fleet.scripts.client
        async for queue in client.scan_iter(match="rq:queue:agents*"):
            async with client.pipeline(transaction=True) as pipeline:
                pipeline.lrange(queue, 0, -1)
                pipeline.delete(queue)
                lost, _ = await pipeline.execute()
            for job in lost:
                await client.delete(b"rq:job:" + job)

    async def _kill_redis(self) -> None:
        redis = self.hosts[0].stack.redis
        redis.kill()
        await asyncio.to_thread(redis.start)

    async def _kill_adapter(self) -> None:
        os.kill(self._any("channel", self._mortal), signal.SIGKILL)

    async def _kill_gateway(self) -> None:
        os.kill(self._any("gateway", self._mortal), signal.SIGKILL)

    async def _kill_sweeper(self) -> None:
        """Kill a sweeper, which is also the clock of the cron jobs; that of `up` is `up` itself."""
        host = self._random.choice(self._mortal)
        host.kill("up" if host.has_up else "sweep")

    async def _restart_host(self) -> None:
        await self._random.choice(self._mortal).restart()

    async def _freeze_adapter(self) -> None:
        pid = self._any("channel", self.hosts[-1:])
        self._freeze(pid, CLAIM_MS / 1000 * (1.1 + 0.4 * self._random.random()))
