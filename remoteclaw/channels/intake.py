"""Polls an account's messages, hands them to the fleet, and advances the account's position.

Polling from a position acknowledges all messages before it to the platform. So the position
advances only after each message before it was queued, answered, refused with a reason, or
skipped, because it is unreadable or its handling failed. While Redis is away or full, the position
stays and the platform keeps the messages. A message may therefore be handled twice; the second time
has no effect.

A message that is slow to handle, for example because of a file, delays only its own conversation:
the account is polled again from the same position, which also returns newer messages.
"""

import asyncio
import logging
from collections.abc import Sequence

from remoteclaw.channels.arrival import Arrival, Overtaken
from remoteclaw.channels.changes import with_edits
from remoteclaw.channels.order import Handling, place_of, wait_for_earlier
from remoteclaw.channels.report import InboundContext
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
from remoteclaw.messages import MAX_ATTACHMENTS, MAX_TEXT_BYTES
from remoteclaw.protocols import Incoming, Place, PlatformAdapter, PollResult

#: Pauses after consecutive failures of a platform or of Redis, in seconds. The last one repeats.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
#: Handling a poll's messages may take this long before the account is polled again, in seconds.
REPOLL_S = 1.0

log = logging.getLogger(__name__)


class Intake:
    """Handles one account's messages while its process has the account's claim."""

    def __init__(
        self, context: InboundContext, reader: ReplyReader, adapter: PlatformAdapter
    ) -> None:
        self._context = context
        self._reader = reader
        self._adapter = adapter
        self._name = f"{reader.provider}/{reader.account}"

    async def run(self) -> None:
        """Handle messages until cancelled. Raises `AccountRefused`, in an exception group."""
        while True:
            await self._reader.wait_for_claim()
            try:
                async with asyncio.TaskGroup() as tasks:
                    await self._read(tasks)
            except* LeaseLost as lost:
                log.warning("%s stops reading messages: %s", self._name, first_of(lost))

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        accounts = self._context.fleet.accounts
        position = await accounts.position(self._reader)
        messages: list[Handling] = []
        """The messages since the position."""
        known: set[tuple[str, str]] = set()
        """The chats and ids of their parts."""
        while True:
            batch = await self._poll(position)
            await self._reader.ensure_claim()  # the process may have been frozen during the poll
            new = [each for each in batch.incoming if (each.chat, each.id) not in known]
            known.update((each.chat, each.id) for each in new)
            for incoming in _acts(with_edits(new)):
                task = tasks.create_task(self._handle_after([*messages], incoming))
                messages.append(Handling(incoming, task))
            pending = [each.task for each in messages if not each.task.done()]
            if pending and (await asyncio.wait(pending, timeout=REPOLL_S))[1]:
                continue
            accepted = sum(_is_accepted(each) for each in messages)
            skipped = len(messages) - accepted
            if batch.position != position:
                await accounts.advance(
                    self._reader, batch.position, accepted=accepted, skipped=skipped
                )
            position = batch.position
            messages.clear()
            known.clear()

    async def _poll(self, position: str | None) -> PollResult:
        failures = 0
        while True:
            await self._reader.ensure_claim()
            try:
                return await self._adapter.poll(position)
            except PlatformBusy as busy:
                await asyncio.sleep(busy.after_s)
                continue
            except AccountRefused:
                # The platform may refuse this poll because another process has taken the claim.
                await self._reader.ensure_claim()
                raise
            except RemoteClawError as error:
                if not failures:
                    log.warning("%s can't be polled for now: %s", self._name, error)
            except Exception as error:  # noqa: BLE001 - an adapter's bug must not end the account
                log.error("%s can't be polled for now: %s", self._name, frames_of(error))
            await _pause(failures)
            failures += 1

    async def _handle_after(self, earlier: Sequence[Handling], incoming: Incoming) -> bool:
        """Handle a message after the `earlier` ones that it must not overtake."""
        overtaken = await wait_for_earlier(incoming, earlier)
        return await self._handle(incoming, overtaken)

    async def _handle(self, incoming: Incoming, overtaken: Sequence[Overtaken]) -> bool:
        """Handle a message, retrying while Redis is away. Return False if it was skipped."""
        if incoming.left_out:
            log.info("a report on %s is left out: %s", self._name, incoming.left_out)
            return True
        if incoming.problem:
            log.warning("a message on %s is skipped: %s", self._name, incoming.problem)
            if not incoming.is_for_us:
                return False
        failures = 0
        while True:
            try:
                await Arrival(self._context, self._adapter, incoming, overtaken).handle()
            except (RedisUnavailable, RedisRefused) as error:
                if not failures:
                    log.warning("%s can't store messages for now: %s", self._name, error)
                await _pause(failures)
                failures += 1
            except Exception as error:  # noqa: BLE001 - one message must not hold up the others
                log.error("a message on %s is skipped: %s", self._name, frames_of(error))
                return False
            else:
                return not incoming.problem


def _is_accepted(handling: Handling) -> bool:
    """Whether a message was handled: neither skipped nor withdrawn by a `/stop`."""
    return not handling.task.cancelled() and handling.task.result()


def _acts(reports: Sequence[Incoming]) -> list[Incoming]:
    """Return messages; those that continue the previous message of their sender are joined to it.

    A platform splits a long text, and reports the files of an album one by one. No joined message
    exceeds the limits of a message.
    """
    acts: list[list[Incoming]] = []
    newest: dict[tuple[Place, str], list[Incoming]] = {}
    for each in reports:
        act = newest.get((place_of(each), each.sender))
        if each.continues is not None and act is not None and _fits(act, each):
            act.append(each)
        else:
            newest[place_of(each), each.sender] = act = [each]
            acts.append(act)
    return [*map(Incoming.joined, acts)]


def _fits(act: Sequence[Incoming], part: Incoming) -> bool:
    """Whether a message can have another part."""
    joined = Incoming.joined([*act, part])
    size = len(joined.text.encode(errors="replace"))
    return size <= MAX_TEXT_BYTES and len(joined.files) <= MAX_ATTACHMENTS


async def _pause(failures: int) -> None:
    await asyncio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
