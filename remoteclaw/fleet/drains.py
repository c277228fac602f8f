"""Drained hosts: their workers finish their turns and take no more work, until that is undone.

The workers see the mark in Redis with their next beat (`workers.announce()`), and a worker that a
supervisor starts again waits before it takes anything.
"""

import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import COMMAND_S, Scripts
from remoteclaw.fleet.failures import reason
from remoteclaw.fleet.sentinel import open_blocking

if TYPE_CHECKING:
    import redis

#: The interval at which a worker of a drained host looks whether that is undone, in seconds.
LOOK_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Drains:
    """The drained hosts of a fleet."""

    _scripts: Scripts

    async def drain(self, host_id: str) -> None:
        """Drain a host; one that is drained stays so since its first time.

        Hints for its agents go to any host from now on.
        """
        client, now_ms = self._scripts.client, await self._scripts.now_ms()
        labels = [
            "",
            *(each.decode() for each in await self._scripts.call(client.hvals, keys.POOLS)),
        ]
        queues = [keys.lane_on(lane, host_id, label) for lane in keys.LANES for label in labels]
        await self._scripts.run_pipeline(
            lambda ask: [
                ask.hsetnx(keys.DRAINED, host_id, now_ms),
                ask.delete(*map(keys.host, queues)),
            ]
        )

    async def undo(self, host_id: str) -> bool:
        """Let the workers of a host take work again; return whether it was drained."""
        return bool(await self._scripts.call(self._scripts.client.hdel, keys.DRAINED, host_id))

    async def hosts(self) -> Mapping[str, int]:
        """Return the ids of the drained hosts, and since when (ms)."""
        drained: Any = await self._scripts.call(self._scripts.client.hgetall, keys.DRAINED)
        return {host_id.decode(): int(since) for host_id, since in drained.items()}


def drain_problem(hosts: Mapping[str, int], own: str) -> str | None:
    """Return a sentence about drained `hosts`, by their ids, for the host `own`; None for none."""
    sentences = ["This host is drained: `remoteclaw drain --undo` undoes it."] * (own in hosts)
    for host in sorted(host_id for host_id in hosts if host_id != own):
        undo = f"`remoteclaw drain --undo --host {host}`"
        sentences.append(f"Host {host} is drained: {undo} undoes it.")
    return " ".join(sentences) or None


def wait_while_drained(url: str, host_id: str) -> None:
    """Return once the host is not drained and the fleet is not paused.

    While Redis is away, this waits for it, because a paused fleet must not begin.
    """
    client = open_blocking(url, socket_timeout=COMMAND_S, socket_connect_timeout=COMMAND_S)
    told = ""
    with contextlib.closing(client):
        while why := _why_it_waits(client, host_id):
            if why != told:
                log.warning("%s", why)
                told = why
            time.sleep(LOOK_S)


def _why_it_waits(client: "redis.Redis", host_id: str) -> str:
    """Return why a worker of a host takes nothing yet; empty if it may begin."""
    try:
        if client.exists(keys.RESTORED):
            return "the fleet was restored: it waits for `remoteclaw restore --go`"
        if client.hexists(keys.DRAINED, host_id):
            return "this host is drained: it waits for `remoteclaw drain --undo`"
    except (RedisError, OSError) as error:
        return f"Redis can't be asked whether this host is drained: {reason(error)}"
    return ""
