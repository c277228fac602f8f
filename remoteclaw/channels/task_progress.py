"""Progress of tasks and branches in a chat: one silent message, edited while they work.

It is no reply: a busy chat goes without. The message stays as long as something works, and is a
preview for the next process.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from remoteclaw.bridge.task_lines import in_a_chat
from remoteclaw.channels.budget import Budget
from remoteclaw.channels.delivery import Preview, settled
from remoteclaw.channels.previews import Previews, Shown, noted_preview
from remoteclaw.fleet.reader import ReplyReader
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Live, Place

#: How often the message is edited at most, in seconds. What is over sooner is not shown.
EVERY_S = 5.0
#: How many lines it has.
MAX_LINES = 10
HEAD = "At work for this chat:"

#: Returns how much a session's chat is shown of the tools of what works for it; None for nothing.
ShowsWork = Callable[[SessionKey], Literal["arguments", "names", "off"] | None]


@dataclass(eq=False, kw_only=True, slots=True)
class _Tree(Shown):
    session: SessionKey
    has_news: bool = True


class WorkChats:
    """What an account's chats show of work, while this adapter has the claim."""

    def __init__(
        self,
        reader: ReplyReader,
        previews: Previews,
        budget: Budget,
        tasks: asyncio.TaskGroup,
        *,
        shows: ShowsWork,
    ) -> None:
        self._reader = reader
        self._previews = previews
        self._budget = budget
        self._tasks = tasks
        self._shows = shows
        self._trees: dict[str, _Tree] = {}
        """By session."""

    def take_over(self, told: Mapping[str, Any]) -> None:
        """Go on with a message that an earlier process has left."""
        preview = noted_preview(told)
        session = SessionKey.parse(told["work"])
        if session.sid in self._trees:
            self._previews.remove_later(preview)
        else:
            self._follow(session, preview)

    def hear(self, told: Mapping[str, Any]) -> None:
        """Note that something has changed that works for a session."""
        try:
            session = SessionKey.parse(told["work"])
        except (TypeError, ValueError):  # of another version
            return
        if tree := self._trees.get(session.sid):
            tree.has_news = True
        else:
            self._follow(session)

    def _follow(self, session: SessionKey, preview: Preview | None = None) -> None:
        place = preview.place if preview else Place(session.channel_id, session.thread)
        tree = self._trees[session.sid] = _Tree(
            sid=session.sid, place=place, pace_s=EVERY_S, preview=preview, session=session
        )
        self._tasks.create_task(self._show(tree))

    async def _show(self, tree: _Tree) -> None:
        """Show what works for a conversation until nothing does."""
        while True:
            await asyncio.sleep(EVERY_S)
            tree.has_news = False
            words = await self._words(tree.session)
            if not words and not tree.has_news:
                break
            is_new = words != tree.words and not tree.is_hidden
            if words and is_new and self._budget.is_free(tree.place.chat):
                showing = self._previews.show(tree, words, work=str(tree.session))
                # What is shown is noted, though the relay is ended.
                await settled(asyncio.create_task(showing))
        del self._trees[tree.sid]
        if tree.preview:
            self._previews.remove_later(tree.preview)

    async def _words(self, session: SessionKey) -> Live | None:
        """Return what is to be shown; nothing where nothing works, or it is not to be seen."""
        shown = self._shows(session)
        below = await self._reader.working(session.sid)
        if shown is None or below.is_quiet or not below.items:
            return None
        lines = [in_a_chat(item, shown) for item in below.items[:MAX_LINES]]
        left = len(below.items) + below.left_out - len(lines)
        lines += [f"and {left} more"] if left else []
        return Live(text="\n".join([HEAD, "", *(f"- {line}" for line in lines)]))
