"""The processes of a fleet, by host: workers, gateways, sweepers and those of channels."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import orjson

from remoteclaw.clock import boottime
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.host.version import VERSION, installed_version

Kind = Literal["worker", "gateway", "sweeper", "channels"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: The interval at which a process announces itself, and the time after which one that doesn't
#: counts as gone; in seconds.
ANNOUNCE_S, GONE_S = 20.0, 60.0
#: The time after which it is forgotten, in seconds: until then, its last announcement is known.
FORGET_S = 24 * 3600.0
#: A process that ends has this long to say so, in seconds.
WITHDRAW_S = 0.5


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A process of a fleet."""

    kind: Kind
    host_id: str
    pid: int
    host: str
    """The name of its host."""
    version: str
    """The version of its code."""
    since_ms: int
    """When it was started, on Redis' clock, in milliseconds."""


class Processes:
    """Announces and lists the processes of a fleet."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    @contextlib.asynccontextmanager
    async def announced(self, kind: Kind, host_id: str, host: str) -> AsyncIterator[None]:
        """Announce this process until the context ends."""
        field, since = field_of(kind, host_id), boottime()

        async def announce() -> None:
            uptime_ms = int((boottime() - since) * 1000)
            await self._scripts.run(
                "announce", field=field, host=host, version=VERSION, uptime_ms=uptime_ms
            )

        async def withdraw() -> None:
            await self._scripts.call(self._scripts.client.hdel, keys.PROCESSES, field)

        async with announcing(announce, ANNOUNCE_S, withdraw, WITHDRAW_S):
            yield

    async def forget_dead(self, host_id: str, is_running: Callable[[int], bool]) -> None:
        """Forget the processes of a host that were killed. `is_running` gets their process ids."""
        dead = [
            f"{each.kind} {host_id} {each.pid}"
            for each in await self.list()
            if each.host_id == host_id and not is_running(each.pid)
        ]
        if dead:
            await self._scripts.call(self._scripts.client.hdel, keys.PROCESSES, *dead)

    async def list(self) -> Sequence[HostProcess]:
        """Return the processes that run, by host, kind and process id; forget old ones."""
        client, now = self._scripts.client, await self._scripts.now_ms()
        stored: Mapping[bytes, bytes] = await self._scripts.call(client.hgetall, keys.PROCESSES)
        found, gone = [], []
        for field, value in stored.items():
            kind, host_id, pid = field.decode().split(" ")
            facts = orjson.loads(value)
            silent_s = (now - facts["at_ms"]) / 1000
            if silent_s > FORGET_S:
                gone.append(field)
            elif silent_s <= GONE_S and kind in KINDS:
                names = facts["host"], facts["version"], facts["since_ms"]
                found.append(HostProcess(kind, host_id, int(pid), *names))
        if gone:
            await self._scripts.call(client.hdel, keys.PROCESSES, *gone)
        return sorted(found, key=lambda each: (each.host, each.host_id, each.kind, each.pid))


@contextlib.asynccontextmanager
async def announcing(
    announce: Callable[[], Awaitable[object]],
    every_s: float,
    withdraw: Callable[[], Awaitable[object]],
    withdraw_s: float,
    *,
    first_s: float = 0,
) -> AsyncIterator[None]:
    """Call `announce` after `first_s` and every `every_s` seconds until the context ends.

    Then call `withdraw`, which may take `withdraw_s` seconds. Either is given up while Redis is
    away.
    """

    async def repeat() -> None:
        await asyncio.sleep(first_s)
        while True:
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                await announce()
            await asyncio.sleep(every_s)

    repeating = asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        await asyncio.wait((repeating,))
        with contextlib.suppress(RedisUnavailable, RedisRefused, TimeoutError):
            async with asyncio.timeout(withdraw_s):
                await withdraw()


def field_of(kind: Kind, host_id: str) -> str:
    """Return the field of this process in the hash of all processes."""
    return f"{kind} {host_id} {os.getpid()}"


def shown_names(processes: Sequence[HostProcess]) -> Mapping[str, str]:
    """Return the names of hosts by their ids: the id itself if several hosts have the same name."""
    names = {each.host_id: each.host for each in processes}
    taken = list(names.values())
    return {host_id: name if taken.count(name) == 1 else host_id for host_id, name in names.items()}


def version_problem(processes: Sequence[HostProcess], own: str) -> str | None:
    """Return sentences that several versions run, and where, or another than the installed one.

    `own` is the id of this host, of whose installation that is known. None if all is well.
    """
    names, sentences = shown_names(processes), []
    hosts: dict[str, set[str]] = {}
    for each in processes:
        hosts.setdefault(each.version, set()).add(names[each.host_id])
    if len(hosts) > 1:
        where = "; ".join(
            f"{version} on {', '.join(sorted(hosts[version]))}" for version in sorted(hosts)
        )
        sentences = [
            f"{len(hosts)} versions run: {where}. Restart the processes of the older ones."
        ]
    installed = installed_version()
    others = sorted({each.version for each in processes if each.host_id == own} - {installed})
    if others:
        sentences.append(
            f"{installed} is installed on this host, and {' and '.join(others)} runs: restart "
            "RemoteClaw."
        )
    return " ".join(sentences) or None
