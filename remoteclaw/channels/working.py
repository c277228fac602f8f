"""Progress of tasks and branches in a chat: one silent message, edited while they work.

It is no reply: a busy chat goes without. The message stays as long as something works, and is
noted among the previews, so that the next process takes it over or removes it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from remoteclaw.bridge.work import in_a_chat
from remoteclaw.channels.budget import Budget
from remoteclaw.channels.delivery import Preview, settled
from remoteclaw.clock import now_ms
from remoteclaw.errors import AccountRefused, PlatformAway, PlatformBusy
from remoteclaw.fleet.reader import ReplyReader
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Live, LiveAdapter, Place

#: How often the message is edited at most, in seconds. What is over sooner is not shown.
EVERY_S = 5.0
#: How many lines it has.
MOST_LINES = 10
HEAD = "At work for this chat:"

#: Returns how much a session's chat is shown of the tools of what works for it; None for nothing.
ShowsWork = Callable[[SessionKey], Literal["arguments", "names", "off"] | None]

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Tree:
    session: SessionKey
    place: Place
    preview: Preview | None = None
    shown: str = ""
    has_news: bool = True
    is_hidden: bool = False
    """Whether the platform refuses the message, or it is not known which one it is."""


class WorkChats:
    """What an account's chats show of work, while this adapter has the claim."""

    def __init__(
        self,
        reader: ReplyReader,
        adapter: LiveAdapter,
        budget: Budget,
        tasks: asyncio.TaskGroup,
        *,
        shows: ShowsWork,
        remove: Callable[[Preview], None],
    ) -> None:
        """`remove` removes a message once its chat has time for that."""
        self._reader = reader
        self._adapter = adapter
        self._budget = budget
        self._tasks = tasks
        self._shows = shows
        self._remove = remove
        self._trees: dict[str, _Tree] = {}
        """By session."""

    def take_over(self, told: Mapping[str, Any]) -> None:
        """Go on with a message that an earlier process has left."""
        preview = Preview(
            Place(told["chat"], told["thread"]), told["sid"], told["id"], told["since_ms"]
        )
        session = SessionKey.parse(told["work"])
        if session.sid in self._trees:
            self._remove(preview)
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
        tree = self._trees[session.sid] = _Tree(session, place, preview)
        self._tasks.create_task(self._show(tree))

    async def _show(self, tree: _Tree) -> None:
        """Show what works for a conversation until nothing does."""
        while True:
            await asyncio.sleep(EVERY_S)
            tree.has_news = False
            text = await self._words(tree.session)
            if not text and not tree.has_news:
                break
            is_new = text and text != tree.shown and not tree.is_hidden
            if is_new and self._budget.is_free(tree.place.chat):
                # What is shown is noted, though the relay is ended.
                await settled(asyncio.create_task(self._put(tree, text)))
        del self._trees[tree.session.sid]
        if tree.preview:
            self._remove(tree.preview)

    async def _words(self, session: SessionKey) -> str:
        """Return what is to be shown; nothing where nothing works, or it is not to be seen."""
        shown = self._shows(session)
        below = await self._reader.working(session.sid)
        if shown is None or below.is_quiet or not below.items:
            return ""
        lines = [in_a_chat(item, shown) for item in below.items[:MOST_LINES]]
        left = len(below.items) + below.left_out - len(lines)
        lines += [f"and {left} more"] if left else []
        return "\n".join([HEAD, "", *(f"- {line}" for line in lines)])

    async def _put(self, tree: _Tree, text: str) -> None:
        """Show what is new: by a message the first time, which is noted at once."""
        before, place, sid = tree.preview, tree.place, tree.session.sid
        await self._reader.check()
        try:
            id_ = await self._adapter.preview(
                place, Live(text=text), message_id=before.message_id if before else None
            )
        except PlatformAway:
            return
        except (PlatformBusy, AccountRefused) as problem:
            self._budget.failed(place.chat, problem)
            return
        except Exception as error:  # noqa: BLE001 - progress must not end the relay
            log.warning("what works is not shown in a chat: %s", frames_of(error))
            tree.is_hidden = True
            return
        tree.shown = text
        if before is None or before.message_id != id_:
            tree.preview = Preview(place, sid, id_, now_ms())
            if before:
                await self._reader.note_preview(sid, before.message_id, None)
            where = {"sid": sid, "id": id_, "chat": place.chat, "thread": place.thread}
            about = {"since_ms": tree.preview.since_ms, "work": str(tree.session)}
            await self._reader.note_preview(sid, id_, {**where, **about})
