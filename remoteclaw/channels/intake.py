"""Polls an account's reports, hands them to the fleet, and advances the account's position.

Polling from a position acknowledges all reports before it to the platform. So the position advances
only after each report before it was queued, answered, refused with a reason, or skipped, because it
is unreadable or its handling failed, or is stored in the account's inbox. While Redis is away or
full, the position stays and the platform keeps the reports. A report may therefore be handled
twice; the second time has no effect.

A report that is slow to handle, for example because of a file, is stored in the inbox, so that it
delays only its own conversation.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from remoteclaw.channels.arrival import Arrival, Overtaken
from remoteclaw.channels.changes import with_edits
from remoteclaw.channels.order import Handling, place_of, wait_for_earlier, wait_for_pairings
from remoteclaw.channels.report import InboundContext
from remoteclaw.commands import parse
from remoteclaw.errors import (
    AccountRefused,
    LeaseLost,
    PlatformBusy,
    RedisRefused,
    RedisUnavailable,
    RemoteClawError,
    first_of,
)
from remoteclaw.fleet.inbox import StoredReport
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import MAX_ATTACHMENTS, MAX_TEXT_BYTES
from remoteclaw.protocols import Incoming, Place, PlatformAdapter, PollResult

#: Pauses after consecutive failures of a platform or of Redis, in seconds. The last one repeats.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
#: A report is slow if its handling takes longer than this, in seconds.
SLOW_S = 1.0
#: A stored report is given up after so many processes have died while they handled it.
MAX_TRIES = 3
TOO_SLOW = (
    "Your message was not taken: too many of the messages here still wait for their files. Send it "
    "again when those have arrived."
)
FAILED_OFTEN = (
    "Your message was not taken: receiving it has failed three times, and the log says where. Send "
    "it again, perhaps without its file."
)

log = logging.getLogger(__name__)

T = TypeVar("T")


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
        inbox = self._context.fleet.inbox
        position = await inbox.position(self._reader)
        unfinished: list[Handling] = []
        """The reports that are still being handled, in order of arrival."""
        for stored in await inbox.take(self._reader):
            handling = await self._begin(tasks, unfinished, stored.incoming, stored)
            unfinished.append(handling)
            tasks.create_task(self._settle(handling, stored.id))
        while True:
            batch = await self._poll(position)
            await self._reader.ensure_claim()  # the process may have been frozen during the poll
            unfinished = [each for each in unfinished if not each.task.done()]
            new: list[Handling] = []
            for incoming in _acts(with_edits(batch.incoming)):
                new.append(await self._begin(tasks, [*unfinished, *new], incoming))
            slow = await self._slow(new, unfinished)
            if batch.position != position:
                stored_ids = await self._advance(batch.position, new, slow)
                for handling, id_ in zip(slow, stored_ids, strict=True):
                    ending = self._settle(handling, id_) if id_ else self._refuse(handling)
                    tasks.create_task(ending)
            position = batch.position
            unfinished += slow

    async def _begin(
        self,
        tasks: asyncio.TaskGroup,
        earlier: Sequence[Handling],
        incoming: Incoming,
        stored: StoredReport | None = None,
    ) -> Handling:
        """Begin to handle a report after the `earlier` ones. `stored` is where it is stored."""
        place = await self._repeated(self._arrival(incoming).place)
        work = self._handle_after([*earlier], incoming, place, stored)
        handling = Handling(incoming, place, tasks.create_task(work))
        if incoming.moved_to is not None:  # later reports belong to the conversation under its id
            await asyncio.wait((handling.task,))
        return handling

    async def _slow(
        self, new: Sequence[Handling], unfinished: Sequence[Handling]
    ) -> list[Handling]:
        """Return the `new` reports that are slow, in order, once all others are handled.

        These are reports with files, commands, choices, which the platform has to confirm, and the
        reports that wait behind one, also behind one of the `unfinished`. Everything else, and a
        report that keeps no place, needs no more than Redis.
        """
        if new:
            await asyncio.wait([each.task for each in new], timeout=SLOW_S)
        slow: list[Handling] = []
        slow_places = {each.place for each in unfinished if not each.task.done()}
        for handling in new:
            incoming = handling.incoming
            has_files = incoming.files or incoming.quoted_files
            may_be_slow = has_files or incoming.choice or parse(incoming.text)
            is_slow = not handling.task.done() and (may_be_slow or handling.place in slow_places)
            if is_slow and await self._keeps_place(incoming):
                slow_places.add(handling.place)
                slow.append(handling)
            else:
                await asyncio.wait((handling.task,))
        return slow

    async def _keeps_place(self, incoming: Incoming) -> bool:
        """Whether a report waits for the earlier ones. While Redis is away, the answer is yes."""
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            return await self._arrival(incoming).keeps_place()
        return True

    def _arrival(self, incoming: Incoming, overtaken: Sequence[Overtaken] = ()) -> Arrival:
        return Arrival(self._context, self._adapter, incoming, overtaken=overtaken)

    async def _advance(
        self, position: str, handlings: Sequence[Handling], slow: Sequence[Handling]
    ) -> list[str | None]:
        """Advance the position, as soon as Redis has room for the slow reports."""
        handled = [each for each in handlings if each not in slow]
        accepted = sum(map(_is_accepted, handled))
        return await self._repeated(
            lambda: self._context.fleet.inbox.advance(
                self._reader,
                position,
                accepted=accepted,
                skipped=len(handled) - accepted,
                slow=[each.incoming for each in slow],
            )
        )

    async def _settle(self, handling: Handling, stored_id: str) -> None:
        """Remove a report from the inbox once it was handled, or withdrawn by a `/stop`."""
        await asyncio.wait((handling.task,))
        is_accepted = _is_accepted(handling)
        await self._context.fleet.inbox.done(self._reader, stored_id, is_accepted=is_accepted)

    async def _refuse(self, handling: Handling) -> None:
        """Tell a sender that a slow report is not handled, because the inbox has no room for it."""
        handling.task.cancel()
        await asyncio.wait((handling.task,))
        log.warning("a message on %s is refused: too many others wait for files", self._name)
        arrival = self._arrival(handling.incoming)
        await self._repeated(lambda: arrival.give_up(TOO_SLOW))

    async def _repeated(self, step: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a step, which is repeated while Redis is away or full."""
        failures = 0
        while True:
            try:
                return await step()
            except (RedisUnavailable, RedisRefused) as error:
                if not failures:
                    log.warning("%s can't store messages for now: %s", self._name, error)
            await _pause(failures)
            failures += 1

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

    async def _handle_after(
        self,
        earlier: Sequence[Handling],
        incoming: Incoming,
        place: Place,
        stored: StoredReport | None,
    ) -> bool:
        """Handle a report after the `earlier` ones that it must not overtake."""
        await wait_for_pairings(earlier)
        overtaken: Sequence[Overtaken] = ()
        if await self._keeps_place(incoming):
            overtaken = await wait_for_earlier(incoming, place, earlier)
        if stored is not None:
            if stored.tries >= MAX_TRIES:
                log.error("a message on %s is given up after %d tries", self._name, MAX_TRIES)
                await self._repeated(lambda: self._arrival(incoming).give_up(FAILED_OFTEN))
                return False
            await self._repeated(lambda: self._context.fleet.inbox.try_again(self._reader, stored))
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
        try:
            await self._repeated(self._arrival(incoming, overtaken).handle)
        except Exception as error:  # noqa: BLE001 - one message must not hold up the others
            log.error("a message on %s is skipped: %s", self._name, frames_of(error))
            return False
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
