"""Live text of an account's chats: a preview of each turn that runs, and typing.

The answer takes the preview's place, or is a message of its own that notifies, behind which the
preview is removed.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.channels.budget import Budget
from remoteclaw.channels.delivery import Preview, settled
from remoteclaw.channels.previews import LATER_S, Previews, Shown, noted_preview
from remoteclaw.channels.task_progress import ShowsWork, WorkChats
from remoteclaw.clock import boottime
from remoteclaw.fleet.reader import ReplyReader
from remoteclaw.fleet.turn import LIVE_MS
from remoteclaw.protocols import Live, LiveAdapter, Place, Reply

#: How often typing is shown again, in seconds: platforms show it for five seconds or more.
TYPING_S = 4.0
#: How long a preview waits for the answer of a turn that doesn't run any more, in seconds.
ENDED_S = 5.0
#: How many turns are remembered that have ended, so that late news of them is not shown.
MAX_ENDED = 10_000


@dataclass(eq=False, kw_only=True, slots=True)
class _Turn(Shown):
    heard_at: float = field(default_factory=boottime)
    news: Live | None = None
    """What it says now."""
    edited_at: float = -TYPING_S
    typed_at: float = -TYPING_S
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
        self._previews = Previews(reader, adapter, budget, tasks)
        self.remove_later = self._previews.remove_later
        self._work = (
            WorkChats(reader, self._previews, budget, tasks, shows=shows_work)
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
            preview = noted_preview(told)
            now = await self._reader.shown(preview.sid)
            if now is None or preview.sid in self._turns:
                self.remove_later(preview)
            else:
                self._follow(preview.sid, preview.place).preview = preview
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
            turn.heard_at, turn.news = boottime(), None if told.get("is_quiet") else words
            turn.changed.set()

    def _follow(self, sid: str, place: Place) -> _Turn:
        turn = self._turns.get(sid)
        if turn is None:
            turn = self._turns[sid] = _Turn(sid=sid, place=place, pace_s=self._every_s)
            turn.showing = self._tasks.create_task(self._show(turn))
        return turn

    async def take(self, reply: Reply) -> Preview | None:
        """Return the preview that a reply of its turn takes the place of; it is shown no more."""
        if reply.is_final and not reply.is_beside:
            self._ended[reply.sid, reply.turn] = None
            while len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)
        turn = self._turns.get(reply.sid)
        if turn is None or reply.is_apart:
            return None
        async with turn.asking:
            preview, turn.preview, turn.words, turn.news = turn.preview, None, None, None
            if reply.is_final:
                self._end(reply.sid, turn)
        return preview

    def _end(self, sid: str, turn: _Turn) -> None:
        self._turns.pop(sid, None)
        if turn.showing:
            turn.showing.cancel()

    async def _show(self, turn: _Turn) -> None:
        """Show one turn until it has ended, or nothing was heard of it for long."""
        while boottime() < turn.heard_at + LIVE_MS / 1000:
            is_free = self._budget.is_free(turn.place.chat)
            if is_free and self._has_news(turn) and turn.due_s <= 0:
                async with turn.asking:  # what is shown is noted, though the relay is ended
                    await settled(asyncio.create_task(self._edit(turn)))
            elif is_free and boottime() >= turn.typed_at + TYPING_S:
                await self._type(turn)
            wait_s = turn.typed_at + TYPING_S - boottime()
            if self._has_news(turn):
                wait_s = turn.due_s if is_free else LATER_S
            elif not is_free:
                wait_s = LATER_S
            turn.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, wait_s)):
                    await turn.changed.wait()
        self._turns.pop(turn.sid, None)
        if turn.preview:
            self.remove_later(turn.preview)

    def _has_news(self, turn: _Turn) -> bool:
        news = turn.news
        is_something = news and (news.text.strip() or news.activity or news.plan)
        return bool(is_something) and news != turn.words and not turn.is_hidden

    async def _edit(self, turn: _Turn) -> None:
        if turn.news:  # else a reply has taken its place meanwhile
            turn.edited_at = boottime()
            await self._previews.show(turn, turn.news)

    async def _type(self, turn: _Turn) -> None:
        """Show typing, unless the turn doesn't run any more: it may have been put off."""
        turn.typed_at = boottime()
        if await self._reader.shown(turn.sid) is None:
            turn.heard_at = min(turn.heard_at, boottime() + ENDED_S - LIVE_MS / 1000)
            return
        await self._reader.check()
        try:
            await self._adapter.typing(turn.place)
        except Exception as error:  # noqa: BLE001 - nothing depends on it
            self._previews.failed(turn.place, error)


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
