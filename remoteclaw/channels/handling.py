"""Handles the stored reports of an account, each after the earlier ones of its conversation.

A report leaves the inbox once it was queued, answered, refused with a reason, or skipped, because
it is unreadable or its handling failed. The process may die before that, so a report may be handled
twice; the second time has no effect.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from remoteclaw.channels.arrival import Arrival, Overtaken
from remoteclaw.channels.late import LateNotices
from remoteclaw.channels.order import (
    Handling,
    Result,
    place_of,
    wait_for_earlier,
    wait_for_pairings,
)
from remoteclaw.channels.report import InboundContext
from remoteclaw.commands import parse
from remoteclaw.errors import LeaseLost, RedisRefused, RedisUnavailable
from remoteclaw.fleet.inbox import StoredReport
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.host.logs import frames_of
from remoteclaw.protocols import Incoming, Place, PlatformAdapter

#: Pauses after consecutive failures of a platform or of Redis, in seconds. The last one repeats.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
#: A report is slow if its handling takes longer than this, in seconds.
SLOW_S = 1.0
#: At most this many reports are handled at once that are not slow, and in all. Until then, the
#: platform keeps later ones.
MAX_QUICK, MAX_UNFINISHED = 200, 2000
#: At most this many reports wait for files: of one sender, of one chat, and in all; and this size,
#: in bytes. Others are refused, so that nobody's files hold up the account.
MAX_OF_SENDER, MAX_OF_CHAT, MAX_SLOW = 50, 100, 1000
MAX_SLOW_BYTES = 16 * 1024 * 1024
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


class Handlers:
    """The reports of an account that are being handled, while this process has its claim."""

    def __init__(
        self,
        context: InboundContext,
        reader: ReplyReader,
        adapter: PlatformAdapter,
        tasks: asyncio.TaskGroup,
        late: LateNotices,
    ) -> None:
        self._context = context
        self._reader = reader
        self._adapter = adapter
        self._tasks = tasks
        self._name = f"{reader.provider}/{reader.account}"
        self._unfinished: dict[str, Handling] = {}
        """By id of the report, in order of arrival."""
        self._quick: set[str] = set()
        """The ids of those that are not slow yet."""
        self._waiting: dict[str, StoredReport] = {}
        """By id, those that wait for files."""
        self._late = late
        self._finished = _Finished(context, reader, self._late)
        tasks.create_task(self._finished.run())
        tasks.create_task(self._late.run())

    async def have_room(self) -> None:
        """Wait until more reports may be handled."""
        while len(self._quick) >= MAX_QUICK or len(self._unfinished) >= MAX_UNFINISHED:
            tasks = [each.task for each in self._unfinished.values()]
            await asyncio.wait(tasks, timeout=SLOW_S, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # the ends of these tasks have to be seen

    async def begin(self, stored: StoredReport, *, is_new: bool = True) -> None:
        """Begin to handle a report after the earlier ones. `is_new` is false for one of an earlier
        process."""
        incoming = stored.incoming
        try:
            place = await repeated(self._arrival(incoming).place, self._name)
        except Exception:  # noqa: BLE001 - its handling fails as well, and logs why
            place = place_of(incoming)
        place = self._place_of_changed(incoming) or place
        earlier = [*self._unfinished.values()]
        work = self._handle_after(earlier, stored, place, is_new=is_new)
        handling = Handling(incoming, place, self._tasks.create_task(work))
        self._unfinished[stored.id] = handling
        self._quick.add(stored.id)
        self._tasks.create_task(self._settle(stored, handling))
        if incoming.moved_to is not None:  # later reports belong to the conversation under its id
            await asyncio.wait((handling.task,))

    def _place_of_changed(self, incoming: Incoming) -> Place | None:
        """Return the place of a message that is on its way and that the report changes.

        It may open a thread, of which Redis does not know yet.
        """
        changed = incoming.replaces or incoming.deletes
        for each in self._unfinished.values() if changed else ():
            ids = [part.id for part in each.incoming.parts or (each.incoming,)]
            if each.incoming.is_message and each.incoming.chat == incoming.chat and changed in ids:
                return each.place
        return None

    async def _settle(self, stored: StoredReport, handling: Handling) -> None:
        """Remove a report from the inbox once it was handled, withdrawn or refused."""
        done, _ = await asyncio.wait((handling.task,), timeout=SLOW_S)
        self._quick.discard(stored.id)
        is_crowded = False
        if not done and self._waits_for_file(stored, handling):
            is_crowded = self._is_crowded(stored)
            if is_crowded:
                handling.task.cancel()
            else:
                self._waiting[stored.id] = stored
        await asyncio.wait((handling.task,))
        if is_crowded and handling.task.cancelled():
            log.warning("a message on %s is refused: too many others wait for files", self._name)
            await self._give_up(stored.incoming, TOO_SLOW)
        self._waiting.pop(stored.id, None)
        del self._unfinished[stored.id]
        result = "skipped" if handling.task.cancelled() else handling.task.result()
        self._finished.add(stored, handling.place, result)

    def _waits_for_file(self, stored: StoredReport, handling: Handling) -> bool:
        """Whether a report, or an earlier one of its place, has a file or may be slow otherwise.

        Any other report needs no more than Redis.
        """
        for id_, each in self._unfinished.items():
            if each.place == handling.place and not each.task.done() and _may_be_slow(each):
                return True
            if id_ == stored.id:
                break
        return False

    def _is_crowded(self, stored: StoredReport) -> bool:
        """Whether too many reports wait for files already."""
        incoming, waiting = stored.incoming, [*self._waiting.values()]
        return (
            len(waiting) >= MAX_SLOW
            or sum(each.size for each in waiting) + stored.size > MAX_SLOW_BYTES
            or sum(each.incoming.chat == incoming.chat for each in waiting) >= MAX_OF_CHAT
            or sum(each.incoming.sender == incoming.sender for each in waiting) >= MAX_OF_SENDER
        )

    async def _give_up(self, incoming: Incoming, why: str) -> None:
        arrival = self._arrival(incoming)
        await repeated(lambda: arrival.give_up(why), self._name)

    def _arrival(self, incoming: Incoming, overtaken: Sequence[Overtaken] = ()) -> Arrival:
        return Arrival(self._context, self._adapter, incoming, overtaken=overtaken)

    async def _handle_after(
        self, earlier: Sequence[Handling], stored: StoredReport, place: Place, *, is_new: bool
    ) -> Result:
        """Handle a report after the `earlier` ones that it must not overtake."""
        incoming = stored.incoming
        try:
            await wait_for_pairings(earlier)
            overtaken: Sequence[Overtaken] = ()
            if await self._keeps_place(incoming):
                overtaken = await wait_for_earlier(incoming, place, earlier)
            if not is_new:
                if stored.tries >= MAX_TRIES:
                    log.error("a message on %s is given up after %d tries", self._name, MAX_TRIES)
                    await self._give_up(incoming, FAILED_OFTEN)
                    return "skipped"
                inbox = self._context.fleet.inbox
                await repeated(lambda: inbox.try_again(self._reader, stored), self._name)
            return await self._handle(incoming, overtaken)
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001 - one message must not hold up the others
            log.error("a message on %s is skipped: %s", self._name, frames_of(error))
            return "skipped"

    async def _keeps_place(self, incoming: Incoming) -> bool:
        """Whether a report waits for the earlier ones. While Redis is away, the answer is yes."""
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            return await self._arrival(incoming).keeps_place()
        return True

    async def _handle(self, incoming: Incoming, overtaken: Sequence[Overtaken]) -> Result:
        """Handle a report, retrying while Redis is away."""
        if incoming.problem:
            log.warning("a message on %s is skipped: %s", self._name, incoming.problem)
            if not incoming.is_for_us:
                return "skipped"
        arrival = self._arrival(incoming, overtaken)
        if self._late.is_late(incoming):
            is_admitted = await repeated(arrival.record_late, self._name)
            return "late" if is_admitted else "skipped"
        await repeated(arrival.handle, self._name)
        return "skipped" if incoming.problem else "accepted"


class _Finished:
    """Removes handled reports from the inbox, together if several end at the same time."""

    def __init__(self, context: InboundContext, reader: ReplyReader, late: LateNotices) -> None:
        self._context = context
        self._reader = reader
        self._late = late
        self._ended: list[tuple[StoredReport, Place, Result]] = []
        self._has_some = asyncio.Event()

    def add(self, stored: StoredReport, place: Place, result: Result) -> None:
        """Remove a report soon."""
        self._ended.append((stored, place, result))
        self._has_some.set()

    async def run(self) -> None:
        """Remove reports until cancelled."""
        while True:
            await self._has_some.wait()
            self._has_some.clear()
            ended, self._ended = self._ended, []
            await self._context.fleet.inbox.done(
                self._reader,
                accepted=[stored.id for stored, _, result in ended if result == "accepted"],
                skipped=[stored.id for stored, _, result in ended if result == "skipped"],
                late=[  # a notice opens no thread
                    (stored.id, stored.incoming.at_ms, Place(place.chat, stored.incoming.thread))
                    for stored, place, result in ended
                    if result == "late"
                ],
            )
            if any(result == "late" for _, _, result in ended):
                self._late.wake()


def _may_be_slow(handling: Handling) -> bool:
    """Whether handling a report may need more than Redis: files, a command, a choice."""
    incoming = handling.incoming
    has_files = incoming.files or incoming.quoted_files
    return bool(has_files or incoming.choice or parse(incoming.text))


async def repeated(step: Callable[[], Awaitable[T]], name: str) -> T:
    """Return the result of a step, which is repeated while Redis is away or full.

    `name` is that of the account.
    """
    failures = 0
    while True:
        try:
            return await step()
        except (RedisUnavailable, RedisRefused) as error:
            if not failures:
                log.warning("%s can't store messages for now: %s", name, error)
        await pause(failures)
        failures += 1


async def pause(failures: int) -> None:
    """Pause after so many consecutive failures."""
    await asyncio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
