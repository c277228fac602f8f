"""Intake: takes what people write to an account into the fleet, and moves its position behind it.

The position is what the platform is acknowledged with. It moves when each message before it was
appended, answered, refused in a sentence, or put aside; while Redis is away or full, nothing moves
and the platform keeps what comes. So a message may be taken twice, and the second time nothing
comes of it.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence

from remoteclaw.channels.arrival import Arrival, Door
from remoteclaw.errors import (
    AccountRefused,
    CallRefused,
    LeaseLost,
    PlatformBusy,
    RedisRefused,
    RedisUnavailable,
    RemoteClawError,
)
from remoteclaw.fleet.reader import ReplyReader
from remoteclaw.host.logs import frames_of
from remoteclaw.protocols import Batch, Incoming, PlatformAdapter

__all__ = ["Intake"]

#: Pauses while a platform or Redis is away, in seconds.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)

log = logging.getLogger(__name__)


class Intake:
    """Takes one account's messages in, while its process has the account's claim."""

    def __init__(self, door: Door, reader: ReplyReader, adapter: PlatformAdapter) -> None:
        self._door = door
        self._reader = reader
        self._adapter = adapter
        self._name = f"{reader.provider}/{reader.account}"

    async def run(self) -> None:
        """Take messages in until cancelled; raises `AccountRefused`."""
        while True:
            await self._reader.claimed()
            try:
                await self._read()
            except LeaseLost as lost:
                log.warning("nothing more is read here: %s", lost)

    async def _read(self) -> None:
        accounts = self._door.fleet.accounts
        position = await accounts.position(self._reader)
        while True:
            batch = await self._poll(position)
            await self._reader.check()  # it has waited, and may have been frozen
            aside = await self._take_all(batch.incoming)
            accepted = len(batch.incoming) - aside
            if batch.position != position:
                await accounts.advance(self._reader, batch.position, accepted=accepted, aside=aside)
            position = batch.position

    async def _poll(self, position: str | None) -> Batch:
        """Ask the platform until it answers."""
        failures = 0
        while True:
            await self._reader.check()
            try:
                return await self._adapter.poll(position)
            except PlatformBusy as busy:
                await asyncio.sleep(busy.after_s)
                continue
            except AccountRefused:
                await self._reader.check()  # the other poll may be that of a process in our place
                raise
            except RemoteClawError as error:
                if not failures:
                    log.warning("%s is waited for: %s", self._name, error)
            except Exception as error:  # noqa: BLE001 - an adapter's mistake ends no account
                log.error("%s is waited for: %s", self._name, frames_of(error))
            await _pause(failures)
            failures += 1

    async def _take_all(self, incoming: Sequence[Incoming]) -> int:
        """Take messages in, of each chat in order; return how many were put aside."""
        chats: dict[str, list[Incoming]] = defaultdict(list)
        for one in incoming:
            chats[one.chat].append(one)

        async def take_chat(several: Sequence[Incoming]) -> int:
            return sum([not await self._take(one) for one in several])

        async with asyncio.TaskGroup() as tasks:
            taking = [tasks.create_task(take_chat(several)) for several in chats.values()]
        return sum(task.result() for task in taking)

    async def _take(self, incoming: Incoming) -> bool:
        """Take a message in, however long Redis is away; return whether it could be read."""
        if incoming.problem:
            log.warning("a message on %s is put aside: %s", self._name, incoming.problem)
            return False
        failures = 0
        while True:
            try:
                await Arrival(self._door, self._adapter, incoming).take()
            except (RedisUnavailable, RedisRefused, CallRefused) as error:
                if not failures:
                    log.warning("%s takes nothing in for now: %s", self._name, error)
                await _pause(failures)
                failures += 1
            except Exception as error:  # noqa: BLE001 - one odd message holds up no other
                log.error("a message on %s is put aside: %s", self._name, frames_of(error))
                return False
            else:
                return True


async def _pause(failures: int) -> None:
    await asyncio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
