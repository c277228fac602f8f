"""Live text of an account's chats: a preview of each turn that runs, and typing.

A preview is a silent message that is edited while its turn goes on. The answer takes its place, or
is a message of its own that notifies, behind which the preview is removed. Previews are noted in
Redis, so that the next process takes over those that this one leaves.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.channels.budget import Budget
from remoteclaw.channels.delivery import Preview, settled
from remoteclaw.channels.working import ShowsWork, WorkChats
from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import AccountRefused, PlatformAway, PlatformBusy, PlatformRefused
from remoteclaw.fleet.reader import ReplyReader
from remoteclaw.fleet.turn import LIVE_MS
from remoteclaw.host.logs import frames_of
from remoteclaw.protocols import Live, LiveAdapter, Place, Reply

#: How often typing is shown again, in seconds: platforms show it for five seconds or more.
TYPING_S = 4.0
#: How long a preview waits for the answer of a turn that doesn't run any more, in seconds.
ENDED_S = 5.0
#: How often a chat is looked at again where something can't be shown now, in seconds.
LATER_S = 0.5
#: The longest pause between two edits of a turn whose chat is asked too often, in seconds.
SLOWEST_S = 30.0
#: How many turns are remembered that have ended, so that late news of them is not shown.
MOST_ENDED = 10_000

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Turn:
    place: Place
    heard_at: float
    pace_s: float
    """The shortest time between two edits; each refusal of the platform doubles it."""
    words: Live | None = None
    shown: Live | None = None
    preview: Preview | None = None
    edited_at: float = -TYPING_S
    typed_at: float = -TYPING_S
    is_hidden: bool = False
    """Whether it has no preview: the platform refuses one, or it is not known which one it is."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    showing: asyncio.Task[None] | None = None

    @property
    def due_s(self) -> float:
        """In how many seconds its preview may be edited."""
        return self.edited_at + self.pace_s - boottime()


class LiveChats:
    """What an account's chats show besides replies, while this adapter has the claim."""

    def __init__(
        self,
        reader: ReplyReader,
        adapter: LiveAdapter,
        budget: Budget,
        tasks: asyncio.TaskGroup,
        *,
        every_s: float,
        shows_work: ShowsWork | None = None,
    ) -> None:
        self._reader = reader
        self._adapter = adapter
        self._budget = budget
        self._tasks = tasks
        self._every_s = every_s
        self._turns: dict[str, _Turn] = {}
        """By session."""
        self._work = (
            WorkChats(reader, adapter, budget, tasks, shows=shows_work, remove=self.remove_later)
            if shows_work
            else None
        )
        self._ended: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def load(self) -> None:
        """Take over the previews that an earlier process has left."""
        for told in await self._reader.previews():
            if "work" in told and self._work:
                self._work.take_over(told)
                continue
            place = Place(told["chat"], told["thread"])
            preview = Preview(place, told["sid"], told["id"], told["since_ms"])
            now = await self._reader.shown(preview.sid)
            if now is None or preview.sid in self._turns:
                self.remove_later(preview)
            else:
                self._follow(preview.sid, place).preview = preview
                self._hear(now)

    async def run(self) -> None:
        """Show turns that run, for ever."""
        async for told in self._reader.live():
            if "work" not in told:
                self._hear(told)
            elif self._work:
                self._work.hear(told)

    def _hear(self, told: Mapping[str, Any]) -> None:
        try:
            words, whose = words_of(told), (told["sid"], told["turn"])
            place = Place(told["channel_id"], told["thread_id"])
        except (KeyError, TypeError):  # of another version
            return
        if whose not in self._ended:
            turn = self._follow(told["sid"], place)
            turn.heard_at, turn.words = boottime(), None if told.get("is_quiet") else words
            turn.changed.set()

    def _follow(self, sid: str, place: Place) -> _Turn:
        turn = self._turns.get(sid)
        if turn is None:
            turn = self._turns[sid] = _Turn(place, boottime(), self._every_s)
            turn.showing = self._tasks.create_task(self._show(sid, turn))
        return turn

    async def take(self, reply: Reply) -> Preview | None:
        """Return the preview that a reply of its turn takes the place of; it is shown no more."""
        if reply.is_final and not reply.is_beside:
            self._ended[reply.sid, reply.turn] = None
            while len(self._ended) > MOST_ENDED:
                self._ended.popitem(last=False)
        turn = self._turns.get(reply.sid)
        if turn is None or reply.is_apart:
            return None
        async with turn.asking:
            preview, turn.preview, turn.shown, turn.words = turn.preview, None, None, None
            if reply.is_final:
                self._end(reply.sid, turn)
        return preview

    def _end(self, sid: str, turn: _Turn) -> None:
        self._turns.pop(sid, None)
        if turn.showing:
            turn.showing.cancel()

    def remove_later(self, preview: Preview) -> None:
        """Remove a preview once its chat has time for that."""
        self._tasks.create_task(self._remove(preview))

    async def _remove(self, preview: Preview) -> None:
        place = preview.place
        while True:
            await asyncio.sleep(LATER_S)
            if not self._budget.is_free(place.chat):
                continue
            await self._reader.check()
            try:
                await self._adapter.remove(place, preview.message_id)
            except PlatformRefused as refusal:
                log.warning("a preview stays: %s", refusal)
            except Exception as error:  # noqa: BLE001 - tried again, as it does no harm
                self._failed(place, error)
                continue
            await self._reader.note_preview(preview.sid, preview.message_id, None)
            return

    async def _show(self, sid: str, turn: _Turn) -> None:
        """Show one turn until it has ended, or nothing was heard of it for long."""
        while boottime() < turn.heard_at + LIVE_MS / 1000:
            is_free = self._budget.is_free(turn.place.chat)
            if is_free and self._has_news(turn) and turn.due_s <= 0:
                async with turn.asking:  # what is shown is noted, though the relay is ended
                    await settled(asyncio.create_task(self._edit(sid, turn)))
            elif is_free and boottime() >= turn.typed_at + TYPING_S:
                await self._type(sid, turn)
            wait_s = turn.typed_at + TYPING_S - boottime()
            if self._has_news(turn):
                wait_s = turn.due_s if is_free else LATER_S
            elif not is_free:
                wait_s = LATER_S
            turn.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, wait_s)):
                    await turn.changed.wait()
        self._turns.pop(sid, None)
        if turn.preview:
            self.remove_later(turn.preview)

    def _has_news(self, turn: _Turn) -> bool:
        words = turn.words
        is_something = words and (words.text.strip() or words.activity or words.plan)
        return bool(is_something) and words != turn.shown and not turn.is_hidden

    async def _edit(self, sid: str, turn: _Turn) -> None:
        """Show what is new: by a message the first time, which is noted at once."""
        words, before, place = turn.words, turn.preview, turn.place
        if words is None:  # a reply has taken its place meanwhile
            return
        await self._reader.check()
        turn.edited_at = boottime()
        try:
            id_ = await self._adapter.preview(
                place, words, message_id=before.message_id if before else None
            )
        except (PlatformAway, PlatformBusy, AccountRefused) as problem:
            self._failed(place, problem)
            if isinstance(problem, PlatformBusy):
                turn.pace_s = min(SLOWEST_S, turn.pace_s * 2)
            return
        except Exception as error:  # noqa: BLE001 - a preview must not end the relay
            self._failed(place, error)
            turn.is_hidden = before is None or isinstance(error, PlatformRefused)
            return
        turn.shown = words
        if before is None or before.message_id != id_:
            turn.preview = Preview(place, sid, id_, before.since_ms if before else now_ms())
            if before:
                await self._reader.note_preview(sid, before.message_id, None)
            noted = {"sid": sid, "id": id_, "chat": place.chat, "thread": place.thread}
            since = {"since_ms": turn.preview.since_ms}
            await self._reader.note_preview(sid, id_, {**noted, **since})

    async def _type(self, sid: str, turn: _Turn) -> None:
        """Show typing, unless the turn doesn't run any more: it may have been put off."""
        turn.typed_at = boottime()
        if await self._reader.shown(sid) is None:
            turn.heard_at = min(turn.heard_at, boottime() + ENDED_S - LIVE_MS / 1000)
            return
        await self._reader.check()
        try:
            await self._adapter.typing(turn.place)
        except Exception as error:  # noqa: BLE001 - nothing depends on it
            self._failed(turn.place, error)

    def _failed(self, place: Place, error: Exception) -> None:
        """Note that something could not be shown: only what the platform demands has effects."""
        if isinstance(error, PlatformBusy | AccountRefused):
            self._budget.failed(place.chat, error)
        elif not isinstance(error, PlatformAway | PlatformRefused):
            log.warning("something is not shown in a chat: %s", frames_of(error))


def words_of(told: Mapping[str, Any]) -> Live:
    """Return what a preview shows of live text."""
    running = [tool for tool in told["activity"] if tool["seconds"] is None]
    tools = (f"{tool['tool']} {tool['argument']}".strip() for tool in running)
    plan, now = told["plan"], ""
    if plan:
        done = sum(step["state"] == "completed" for step in plan)
        step = next((each for each in plan if each["state"] != "completed"), None)
        now = f"{done}/{len(plan)} {step['text'] if step else ''}".strip()
    return Live(text=told["text"], activity=" · ".join(tools), plan=now)
