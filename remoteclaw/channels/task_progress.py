"""Shows the progress of a chat's tasks and branches in one silent message, which it edits.

The message has a lower priority than replies and is not updated in a busy chat. It is removed when
no task runs any more. It is recorded as a preview, so that the next process takes it over.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from remoteclaw.bridge.task_lines import in_a_chat
from remoteclaw.channels.budget import Budget
from remoteclaw.channels.delivery import Preview, shielded
from remoteclaw.channels.previews import Previews, ShownPreview, preview_of
from remoteclaw.clock import boottime
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Live, Place

#: The minimum time between two edits of the message, in seconds. A shorter task is never shown.
EVERY_S = 5.0
#: The message lists at most this many tasks.
MAX_LINES = 10
HEAD = "At work for this chat:"

#: Returns how much the chat of a session shows of the tools of its tasks; None to show no progress.
ToolDetailOf = Callable[[SessionKey], Literal["arguments", "names", "off"] | None]


@dataclass(eq=False, kw_only=True, slots=True)
class _ProgressMessage(ShownPreview):
    session: SessionKey
    is_changed: bool = True
    """Whether a task has changed since the tasks were last read."""


class TaskProgress:
    """Shows the progress of tasks in an account's chats, while this adapter has the claim."""

    def __init__(
        self,
        reader: ReplyReader,
        previews: Previews,
        budget: Budget,
        tasks: asyncio.TaskGroup,
        *,
        detail_of: ToolDetailOf,
    ) -> None:
        self._reader = reader
        self._previews = previews
        self._budget = budget
        self._tasks = tasks
        self._detail_of = detail_of
        self._messages: dict[str, _ProgressMessage] = {}
        """The progress messages by the id of their session."""

    def take_over(self, record: Mapping[str, Any]) -> None:
        """Continue to edit the message of an earlier process, as recorded in Redis."""
        preview = preview_of(record)
        session = SessionKey.parse(record["work"])
        if session.sid in self._messages:
            self._previews.remove_later(preview)
        else:
            self._start(session, preview)

    def update(self, event: Mapping[str, Any]) -> None:
        """Handle an event that says that a task of a session has changed."""
        try:
            session = SessionKey.parse(event["work"])
        except (TypeError, ValueError):  # published by another version
            return
        if message := self._messages.get(session.sid):
            message.is_changed = True
        else:
            self._start(session)

    def _start(self, session: SessionKey, preview: Preview | None = None) -> None:
        place = preview.place if preview else Place(session.place.chat, session.place.thread)
        message = self._messages[session.sid] = _ProgressMessage(
            sid=session.sid, place=place, pace_s=EVERY_S, preview=preview, session=session
        )
        self._tasks.create_task(self._show(message))

    async def _show(self, message: _ProgressMessage) -> None:
        """Show the progress of a session's tasks until none runs any more."""
        try:
            await self._update_progress(message)
        finally:
            self._budget.want_edits(message, None)
        del self._messages[message.sid]
        if message.preview:
            self._previews.remove_later(message.preview)

    async def _update_progress(self, message: _ProgressMessage) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            message.is_changed = False
            live = await self._read_progress(message.session)
            if not live and not message.is_changed:
                return
            is_new = live is not None and live != message.live and not message.is_hidden
            chat = message.place.chat
            self._budget.want_edits(message, chat if is_new else None)
            is_due = boottime() >= message.edited_at + self._budget.pace_s(chat)
            if live and is_new and is_due and self._budget.is_free(chat, message.method):
                # Shielded: a message that was sent must be recorded, even if the relay ends.
                await shielded(self._previews.show(message, live, work=str(message.session)))

    async def _read_progress(self, session: SessionKey) -> Live | None:
        """Return the text to show; None if no task runs or the chat must not show progress."""
        detail = self._detail_of(session)
        tree = await self._reader.task_tree(session.sid)
        if detail is None or tree.is_quiet or not tree.items:
            return None
        lines = [in_a_chat(item, detail) for item in tree.items[:MAX_LINES]]
        left_out = len(tree.items) + tree.left_out - len(lines)
        lines += [f"and {left_out} more"] if left_out else []
        return Live(text="\n".join([HEAD, "", *(f"- {line}" for line in lines)]))
