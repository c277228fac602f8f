"""The sweeper: finds sessions that nobody works on and hints them. Any number may run."""

import asyncio
import functools
import logging
from collections.abc import Callable

from remoteclaw.clock import boottime
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import GRACE_MS
from remoteclaw.fleet.wake import Waker

__all__ = ["Sweeper"]

#: How often it looks, in seconds.
INTERVAL_S = 1.0
#: How many sessions one look hints at most.
AT_MOST = 500
#: The longest time between two hints for one session, in milliseconds.
LONGEST_WAIT_MS = 60_000

log = logging.getLogger(__name__)


class Sweeper:
    """Wakes sessions whose hint was lost, and those whose worker is gone once its lease is over."""

    def __init__(self, scripts: Scripts, waker: Waker) -> None:
        self._scripts = scripts
        self._waker = waker

    async def sweep(self) -> int:
        """Look once; return how many sessions were hinted."""
        found = await self._scripts.run(
            "sweep",
            [keys.ACTIVE, keys.RQ_QUEUE],
            ["rc:st:", GRACE_MS, AT_MOST, LONGEST_WAIT_MS],
            deadline=boottime() + INTERVAL_S,
        )
        texts = [part.decode() for part in found]
        for sid, why, label in zip(texts[::3], texts[1::3], texts[2::3], strict=True):
            log.info("session %s: hinted again, %s", sid[:8], why)
            await self._waker.hint(sid, label)
        return len(texts) // 3

    async def release_dead(
        self, host: str, is_alive: Callable[[str], bool], *, is_deliberate: bool = False
    ) -> int:
        """End the leases of this host's dead workers at once; return how many there were.

        A worker's label begins with `host`, and `is_alive` tells of the rest whether it runs.
        An attempt that was cut off deliberately does not count as one that failed.
        """
        client = self._scripts.client
        deadline = boottime() + INTERVAL_S
        active = await self._scripts.call(
            lambda: client.zrange(keys.ACTIVE, 0, -1), deadline=deadline
        )
        released = 0
        for sid in (name.decode() for name in active):
            look = functools.partial(client.hmget, keys.state(sid), "epoch", "worker")
            epoch, worker = await self._scripts.call(look, deadline=deadline)
            label = (worker or b"").decode()
            if label.startswith(f"{host} ") and not is_alive(label.removeprefix(f"{host} ")):
                arguments = [epoch, sid, int(is_deliberate)]
                released += await self._scripts.run(
                    "expire", [keys.state(sid), keys.ACTIVE], arguments, deadline=deadline
                )
        return released

    async def run(self) -> None:
        """Look every second until cancelled; Redis may be away meanwhile."""
        while True:
            try:
                await self.sweep()
            except (RedisUnavailable, RedisRefused) as error:
                log.warning("sweeping: %s", error)
            await asyncio.sleep(INTERVAL_S)
