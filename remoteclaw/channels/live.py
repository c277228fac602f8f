"""Live text in an account's chats: a preview of each running turn, and the typing indicator.

The answer replaces the preview. If the preview is old, the answer is sent as a new message, which
notifies, and the preview is removed.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.channels.budget import Budget
from remoteclaw.channels.delivery import Preview, shielded
from remoteclaw.channels.previews import RECHECK_S, Previews, ShownPreview, preview_of
from remoteclaw.channels.task_progress import TaskProgress, ToolDetailOf
from remoteclaw.clock import boottime
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.fleet.turns.turn import LIVE_MS
from remoteclaw.protocols import Live, LiveAdapter, Place, Reply

#: Typing is shown again after this time, in seconds: platforms show it for five seconds or more.
TYPING_S = 4.0
#: A preview waits this long for the answer of a turn that does not run any more, in seconds.
ENDED_S = 5.0
#: This many ended turns are remembered, so that a late update about them is not shown.
MAX_ENDED = 10_000


@dataclass(eq=False, kw_only=True, slots=True)
class _Turn(ShownPreview):
    updated_at: float = field(default_factory=boottime)
    latest: Live | None = None
    """The latest live text, which the preview may not show yet; None to show only typing."""
    typed_at: float = -TYPING_S
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the preview is edited or taken for a reply."""
    task: asyncio.Task[None] | None = None


class LiveChats:
    """Shows previews and typing in an account's chats, while this adapter has the claim."""

    def __init__(
        self,
        reader: ReplyReader,
        adapter: LiveAdapter,
        budget: Budget,
        tasks: asyncio.TaskGroup,
        *,
        every_s: float,
        shows_work: ToolDetailOf | None = None,
    ) -> None:
        self._reader = reader
        self._adapter = adapter
        self._budget = budget
        self._tasks = tasks
        self._every_s = every_s
        self._turns: dict[str, _Turn] = {}
        """The turns that are shown, by the id of their session."""
        self._previews = Previews(reader, adapter, budget, tasks)
        self.remove_later = self._previews.remove_later
        self._task_progress = (
            TaskProgress(reader, self._previews, budget, tasks, detail_of=shows_work)
            if shows_work
            else None
        )
        self._ended: OrderedDict[tuple[str, str], None] = OrderedDict()
        """The turns that ended last, by the ids of their session and turn, oldest first."""

    async def load(self) -> None:
        """Take over the previews that an earlier process has left."""
        for record in await self._reader.previews():
            if "work" in record and self._task_progress:
                self._task_progress.take_over(record)
                continue
            preview = preview_of(record)
            latest = await self._reader.live_text(preview.sid)
            if latest is None or preview.sid in self._turns:
                self.remove_later(preview)
            else:
                self._turn_of(preview.sid, preview.place).preview = preview
                self._update(latest)

    async def run(self) -> None:
        """Show running turns and tasks, until cancelled."""
        async for event in self._reader.live():
            if "work" not in event:
                self._update(event)
            elif self._task_progress:
                self._task_progress.update(event)

    def _update(self, event: Mapping[str, Any]) -> None:
        try:
            latest, turn_id = live_text_of(event), (event["sid"], event["turn"])
            place = Place(event["channel_id"], event["thread_id"])
        except (KeyError, TypeError):  # published by another version
            return
        if turn_id not in self._ended:
            turn = self._turn_of(event["sid"], place)
            turn.updated_at, turn.latest = boottime(), None if event.get("is_quiet") else latest
            turn.changed.set()

    def _turn_of(self, sid: str, place: Place) -> _Turn:
        """Return the shown turn of a session; begin to show one if there is none."""
        turn = self._turns.get(sid)
        if turn is None:
            turn = self._turns[sid] = _Turn(sid=sid, place=place, pace_s=self._every_s)
            turn.task = self._tasks.create_task(self._show(turn))
        return turn

    async def take_preview(self, reply: Reply) -> Preview | None:
        """Return the preview that `reply` may replace, and stop editing it.

        The last reply of a turn also ends its live text.
        """
        if reply.is_final and not reply.is_aside:
            self._ended[reply.sid, reply.turn] = None
            while len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)
        turn = self._turns.get(reply.sid)
        if turn is None or reply.is_apart:
            return None
        async with turn.lock:
            preview, turn.preview, turn.live, turn.latest = turn.preview, None, None, None
            if reply.is_final:
                self._end(reply.sid, turn)
        return preview

    def _end(self, sid: str, turn: _Turn) -> None:
        self._turns.pop(sid, None)
        if turn.task:
            turn.task.cancel()

    async def _show(self, turn: _Turn) -> None:
        """Show one turn until it ends or gets no update for `LIVE_MS`."""
        try:
            await self._update_preview(turn)
        finally:
            self._budget.want_edits(turn, None)
        self._turns.pop(turn.sid, None)
        if turn.preview:
            self.remove_later(turn.preview)

    async def _update_preview(self, turn: _Turn) -> None:
        while boottime() < turn.updated_at + LIVE_MS / 1000:
            chat, needs_edit = turn.place.chat, self._needs_edit(turn)
            self._budget.want_edits(turn, chat if needs_edit else None)
            is_free = self._budget.is_free(chat, turn.method)
            if is_free and needs_edit and self._due_s(turn) <= 0:
                # Shielded: a preview that was sent must be recorded, even if the relay ends.
                async with turn.lock:
                    await shielded(self._edit(turn))
            elif boottime() >= turn.typed_at + TYPING_S and self._budget.is_free(chat, "typing"):
                await self._type(turn)
            wait_s = turn.typed_at + TYPING_S - boottime()
            if wait_s <= 0:
                wait_s = RECHECK_S
            if self._needs_edit(turn):
                is_free = self._budget.is_free(chat, turn.method)
                wait_s = min(wait_s, self._due_s(turn) if is_free else RECHECK_S)
            turn.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, wait_s)):
                    await turn.changed.wait()

    def _due_s(self, turn: _Turn) -> float:
        """Return the time until the preview may be edited again; negative if it may be now."""
        pace_s = max(turn.pace_s, self._budget.pace_s(turn.place.chat))
        return turn.edited_at + pace_s - boottime()

    def _needs_edit(self, turn: _Turn) -> bool:
        """Whether the preview does not show the latest live text."""
        latest = turn.latest
        has_text = latest and (latest.text.strip() or latest.activity or latest.plan)
        return bool(has_text) and latest != turn.live and not turn.is_hidden

    async def _edit(self, turn: _Turn) -> None:
        if turn.latest:  # a reply may have taken the preview while this waited for the lock
            await self._previews.show(turn, turn.latest)

    async def _type(self, turn: _Turn) -> None:
        """Show typing, unless the turn does not run any more, for example if it was postponed."""
        turn.typed_at, chat = boottime(), turn.place.chat
        if await self._reader.live_text(turn.sid) is None:
            turn.updated_at = min(turn.updated_at, boottime() + ENDED_S - LIVE_MS / 1000)
            return
        if not self._budget.is_free(chat, "typing"):
            return
        with self._budget.call(chat, "typing"):
            await self._reader.ensure_claim()
            try:
                await self._adapter.typing(turn.place)
            except Exception as error:  # noqa: BLE001 - typing is optional
                self._previews.failed(turn.place, error, "typing")


def live_text_of(event: Mapping[str, Any]) -> Live:
    """Return what a preview shows of a live-text event: the text, running tools and the plan."""
    running = [tool for tool in event["activity"] if tool["seconds"] is None]
    tools = (f"{tool['tool']} {tool['argument']}".strip() for tool in running)
    plan, summary = event["plan"], ""
    if plan:
        done = sum(step["state"] == "completed" for step in plan)
        step = next((each for each in plan if each["state"] != "completed"), None)
        summary = f"{done}/{len(plan)} {step['text'] if step else ''}".strip()
    return Live(text=event["text"], activity=" · ".join(tools), plan=summary)
