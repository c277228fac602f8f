"""Intake: takes what people write to an account into the fleet, and moves its position behind it.

The position is what the platform is acknowledged with. It moves when each message before it was
appended, answered, refused in a sentence, or put aside; while Redis is away or full, nothing moves
and the platform keeps what comes. So a message may be taken twice, and the second time nothing
comes of it.

What is slow to take in, such as a file, holds up its own conversation alone: the account is polled
again meanwhile from where it was, so what has come since is taken in, too.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from remoteclaw.channels.arrival import Arrival, Door
from remoteclaw.errors import (
    AccountRefused,
    LeaseLost,
    PlatformBusy,
    RedisRefused,
    RedisUnavailable,
    RemoteClawError,
    first_of,
)
from remoteclaw.fleet.reader import ReplyReader
from remoteclaw.host.logs import frames_of
from remoteclaw.protocols import Batch, Incoming, Place, PlatformAdapter

#: Pauses while a platform or Redis is away, in seconds.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
#: How long a poll's messages are waited for before the next poll, in seconds.
PATIENCE_S = 1.0

log = logging.getLogger(__name__)


class Intake:
    """Takes one account's messages in, while its process has the account's claim."""

    def __init__(self, door: Door, reader: ReplyReader, adapter: PlatformAdapter) -> None:
        self._door = door
        self._reader = reader
        self._adapter = adapter
        self._name = f"{reader.provider}/{reader.account}"

    async def run(self) -> None:
        """Take messages in until cancelled; raises `AccountRefused`, in a group."""
        while True:
            await self._reader.claimed()
            try:
                async with asyncio.TaskGroup() as tasks:
                    await self._read(tasks)
            except* LeaseLost as lost:
                log.warning("nothing more is read here: %s", first_of(lost))

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        accounts = self._door.fleet.accounts
        position = await accounts.position(self._reader)
        taken: dict[tuple[str, str], _Taking] = {}
        """The messages since the position, by chat and id."""
        while True:
            batch = await self._poll(position)
            await self._reader.check()  # it has waited, and may have been frozen
            for one in batch.incoming:
                if (one.chat, one.id) not in taken:
                    task = tasks.create_task(self._take_behind([*taken.values()], one))
                    taken[one.chat, one.id] = _Taking(one, task)
            waiting = [taking.task for taking in taken.values() if not taking.task.done()]
            if waiting and (await asyncio.wait(waiting, timeout=PATIENCE_S))[1]:
                continue
            accepted = sum(taking.task.result() for taking in taken.values())
            aside = len(taken) - accepted
            if batch.position != position:
                await accounts.advance(self._reader, batch.position, accepted=accepted, aside=aside)
            position = batch.position
            taken.clear()

    async def _poll(self, position: str | None) -> Batch:
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

    async def _take_behind(self, others: Sequence["_Taking"], incoming: Incoming) -> bool:
        """Take a message in behind those of its conversation, and behind a chat's change of id."""
        place = _place(incoming)
        for other in others:
            if _place(other.incoming) == place or other.incoming.moved_to is not None:
                await asyncio.wait((other.task,))
        return await self._take(incoming)

    async def _take(self, incoming: Incoming) -> bool:
        """Take a message in, however long Redis is away; return whether it could be read."""
        if incoming.problem:
            log.warning("a message on %s is put aside: %s", self._name, incoming.problem)
            return False
        failures = 0
        while True:
            try:
                await Arrival(self._door, self._adapter, incoming).take()
            except (RedisUnavailable, RedisRefused) as error:
                if not failures:
                    log.warning("%s takes nothing in for now: %s", self._name, error)
                await _pause(failures)
                failures += 1
            except Exception as error:  # noqa: BLE001 - one odd message holds up no other
                log.error("a message on %s is put aside: %s", self._name, frames_of(error))
                return False
            else:
                return True


@dataclass(frozen=True, slots=True)
class _Taking:
    incoming: Incoming
    task: "asyncio.Task[bool]"
    """Whether it could be read."""


def _place(incoming: Incoming) -> Place:
    return Place(incoming.chat, incoming.thread)


async def _pause(failures: int) -> None:
    await asyncio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
