"""Polls an account's reports, stores them in its inbox, and hands them to be handled.

The platform is told that a report has arrived once the report is stored. While Redis is away or
full, nothing is stored, and the platform keeps the reports.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from remoteclaw.channels.changes import with_edits
from remoteclaw.channels.handling import Handlers, pause, repeated
from remoteclaw.channels.late import LateNotices
from remoteclaw.channels.order import overtakes_as, place_of
from remoteclaw.channels.report import InboundContext
from remoteclaw.errors import AccountRefused, LeaseLost, PlatformBusy, RemoteClawError, first_of
from remoteclaw.fleet.inbox import readable
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import MAX_ATTACHMENTS, MAX_TEXT_BYTES
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import Incoming, Place, PlatformAdapter, PollResult, StandbyAdapter

#: Time limit for the call that acknowledges reports to the platform, in seconds.
ACKNOWLEDGE_S = 10.0
CANT_BE_POLLED = "No messages arrive: its adapter failed ({error}); its log says where."

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
        self._unacknowledged = 0
        """The number of acknowledgements that have failed since the last one that did not."""
        self.problem = ""
        """Why no messages arrive, as a sentence; empty while they do."""

    async def run(self) -> None:
        """Handle messages until cancelled. Raises `AccountRefused`, in an exception group."""
        while True:
            await self._reader.wait_for_claim()
            try:
                async with asyncio.TaskGroup() as tasks:
                    await self._read(tasks)
            except* LeaseLost as lost:
                log.warning("%s stops reading messages: %s", self._name, first_of(lost))
            if isinstance(self._adapter, StandbyAdapter):
                await self._adapter.stand_by()

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        inbox, grows = self._context.fleet.inbox, profile_of(self._reader.provider).cursors_grow
        run_id = await self._context.fleet.scripts.run_id()
        cursors = await inbox.cursors(self._reader)
        answered_until = await self._context.fleet.restores.answered_until()
        late = LateNotices(self._context, self._reader, answered_until)
        handlers = Handlers(self._context, self._reader, self._adapter, tasks, late)
        for stored in await inbox.take(self._reader):
            await handlers.begin(stored, is_new=False)
        while True:
            await handlers.have_room()
            if self._unacknowledged:  # a platform may repeat at once what it was not told about
                await pause(self._unacknowledged - 1)
            batch = await self._poll(cursors)
            await self._reader.ensure_claim()  # the process may have been frozen during the poll
            moves = _moves(batch.cursors, cursors, grows=grows)
            found = [*filter(None, map(self._readable, batch.incoming))]
            reports = [*filter(self._is_to_handle, _acts(with_edits(found)))]
            if moves or reports:
                is_urgent = any(overtakes_as(each) in ("choice", "stop") for each in reports)
                store = functools.partial(
                    inbox.store, self._reader, reports, moves, run_id=run_id, is_urgent=is_urgent
                )
                stored_reports = await repeated(store, self._name)
                cursors = _moved(cursors, moves)
            if batch.acknowledge:
                tasks.create_task(self._acknowledge(batch.acknowledge))
            if moves or reports:
                for stored in stored_reports:
                    await handlers.have_room()
                    await handlers.begin(stored)

    def _readable(self, incoming: Incoming) -> Incoming | None:
        """Return a report as it can be stored; None if the adapter made it wrong."""
        try:
            return readable(incoming)
        except ValueError as error:
            log.error("a report on %s is skipped: its adapter made it wrong: %s", self._name, error)
            return None

    def _is_to_handle(self, incoming: Incoming) -> bool:
        if incoming.left_out:
            log.info("a report on %s is left out: %s", self._name, incoming.left_out)
        return not incoming.left_out

    async def _acknowledge(self, acknowledge: Callable[[], Awaitable[None]]) -> None:
        """Tell the platform that reports have arrived; if that fails, it repeats them."""
        try:
            async with asyncio.timeout(ACKNOWLEDGE_S):
                await acknowledge()
        except Exception as error:  # noqa: BLE001 - the reports are stored, so nothing is lost
            if not self._unacknowledged:
                log.warning("%s: reports were not acknowledged: %s", self._name, frames_of(error))
            self._unacknowledged += 1
        else:
            self._unacknowledged = 0

    async def _poll(self, cursors: Mapping[str, str]) -> PollResult:
        failures, is_refused = 0, False
        while True:
            await self._reader.ensure_claim()
            try:
                found = await self._adapter.poll(cursors)
                if not isinstance(found, PollResult):
                    raise TypeError(f"poll() returned {type(found).__name__}, and no PollResult")
            except PlatformBusy as busy:
                await asyncio.sleep(busy.after_s)
                continue
            except AccountRefused:
                # The platform may refuse this poll because another process has taken the claim, or
                # because one that had lost it was frozen, and has woken in the middle of a poll.
                await self._reader.ensure_claim()
                if is_refused:
                    raise
                is_refused = True
            except LeaseLost:
                raise
            except RemoteClawError as error:
                if not failures:
                    log.warning("%s can't be polled for now: %s", self._name, error)
                self.problem = str(error)
            except Exception as error:  # noqa: BLE001 - an adapter's bug must not end the account
                if not failures:
                    log.error("%s can't be polled for now: %s", self._name, frames_of(error))
                self.problem = CANT_BE_POLLED.format(error=type(error).__name__)
            else:
                self.problem = ""
                return found
            await pause(failures)
            failures += 1


def _moves(
    reported: Mapping[str, str | None], cursors: Mapping[str, str], *, grows: bool
) -> dict[str, str | None]:
    """Return the reported cursors that differ from the stored ones.

    If cursors only grow, one that is smaller than the stored one is of an old report. Numbers are
    compared by their length first, because they may be larger than a float can hold exactly.
    """
    moves = {}
    for source, cursor in reported.items():
        before = cursors.get(source)
        goes_back = grows and before and cursor and (len(cursor), cursor) < (len(before), before)
        if cursor != before and not goes_back:
            moves[source] = cursor
    return moves


def _moved(cursors: Mapping[str, str], moves: Mapping[str, str | None]) -> dict[str, str]:
    """Return the cursors after moves."""
    moved = {**cursors, **moves}
    return {source: cursor for source, cursor in moved.items() if cursor is not None}


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
