"""Previews: silent messages in an account's chats, edited to show progress.

They are recorded in Redis, so that the next process takes over those that this one leaves.
"""

import asyncio
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remoteclaw.channels.budget import Budget
from remoteclaw.channels.delivery import Preview
from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import AccountRefused, PlatformAway, PlatformBusy, PlatformRefused
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.host.logs import frames_of
from remoteclaw.protocols import Live, LiveAdapter, Method, Place

#: The pause, in seconds, before another check whether a busy chat has become free.
RECHECK_S = 0.5
#: The longest pause between two edits in a chat that its platform throttles, in seconds.
MAX_PACE_S = 30.0

log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True, slots=True)
class ShownPreview:
    """The preview of one turn or task tree: its place, its pace, and what it shows."""

    sid: str
    place: Place
    pace_s: float
    """The minimum time between two edits, in seconds. Doubled whenever the platform throttles."""
    live: Live | None = None
    """The content of the preview; None before it is sent."""
    edited_at: float = -math.inf
    """When it was last sent or edited, as a time of `boottime()`."""
    preview: Preview | None = None
    is_hidden: bool = False
    """Whether no preview is shown: the platform refuses previews, or the message id is unknown."""

    @property
    def method(self) -> Method:
        """The kind of the call that shows it the next time."""
        return "edit" if self.preview else "send"


class Previews:
    """Shows, edits and removes previews while this adapter has the claim."""

    def __init__(
        self,
        reader: ReplyReader,
        adapter: LiveAdapter,
        budget: Budget,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._reader = reader
        self._adapter = adapter
        self._budget = budget
        self._tasks = tasks

    async def show(self, shown: ShownPreview, live: Live, **about: str) -> None:
        """Send a preview that shows `live`, or edit it if it exists, unless its chat is busy.

        A new preview is recorded in Redis with the fields of `about`. A failure is only logged.
        """
        before, place, sid = shown.preview, shown.place, shown.sid
        if not self._budget.is_free(place.chat, shown.method):  # another preview was quicker
            return
        shown.edited_at = boottime()
        with self._budget.call(place.chat, shown.method):
            await self._reader.ensure_claim()
            try:
                id_ = await self._adapter.preview(
                    place, live, message_id=before.message_id if before else None
                )
            except (PlatformAway, PlatformBusy, AccountRefused) as problem:
                self.failed(place, problem, shown.method)
                if isinstance(problem, PlatformBusy):
                    shown.pace_s = min(MAX_PACE_S, shown.pace_s * 2)
                return
            except Exception as error:  # noqa: BLE001 - a preview must not end the relay
                self.failed(place, error, shown.method)
                shown.is_hidden = before is None or isinstance(error, PlatformRefused)
                return
        shown.live = live
        if before is None or before.message_id != id_:
            since_ms = before.since_ms if before else now_ms()
            shown.preview = Preview(place, sid, id_, since_ms)
            if before:
                await self._reader.note_preview(sid, before.message_id, None)
            fields = {"sid": sid, "id": id_, "chat": place.chat, "thread": place.thread}
            record = {**fields, "since_ms": since_ms, **about}
            await self._reader.note_preview(sid, id_, record)

    def remove_later(self, preview: Preview) -> None:
        """Remove `preview` in the background, once its chat is free."""
        self._tasks.create_task(self._remove(preview))

    async def _remove(self, preview: Preview) -> None:
        place = preview.place
        while True:
            await asyncio.sleep(RECHECK_S)
            if not self._budget.is_free(place.chat, "delete"):
                continue
            with self._budget.call(place.chat, "delete"):
                await self._reader.ensure_claim()
                try:
                    await self._adapter.remove(place, preview.message_id)
                except PlatformRefused as refusal:
                    log.warning("a preview can't be removed: %s", refusal)
                except Exception as error:  # noqa: BLE001 - removing is idempotent, so it is retried
                    self.failed(place, error, "delete")
                    continue
            await self._reader.note_preview(preview.sid, preview.message_id, None)
            return

    def failed(self, place: Place, error: Exception, method: Method) -> None:
        """Handle a call that failed: only throttling and a refused account affect the budget."""
        if isinstance(error, PlatformBusy | AccountRefused):
            self._budget.failed(place.chat, error, method)
        elif not isinstance(error, PlatformAway | PlatformRefused):
            log.warning("live text or typing can't be shown in a chat: %s", frames_of(error))


def preview_of(record: Mapping[str, Any]) -> Preview:
    """Return the preview that `record` describes, as stored in Redis."""
    place = Place(record["chat"], record["thread"])
    return Preview(place, record["sid"], record["id"], record["since_ms"])
