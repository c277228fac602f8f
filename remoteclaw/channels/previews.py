"""Previews of an account: silent messages that are edited while something goes on.

They are noted in Redis, so that the next process takes over those that this one leaves.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remoteclaw.channels.budget import Budget
from remoteclaw.channels.delivery import Preview
from remoteclaw.clock import now_ms
from remoteclaw.errors import AccountRefused, PlatformAway, PlatformBusy, PlatformRefused
from remoteclaw.fleet.reader import ReplyReader
from remoteclaw.host.logs import frames_of
from remoteclaw.protocols import Live, LiveAdapter, Place

#: How often a chat is looked at again where something can't be shown now, in seconds.
LATER_S = 0.5
#: The longest pause between two edits where a chat is asked too often, in seconds.
SLOWEST_S = 30.0

log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True, slots=True)
class Shown:
    """The preview of one turn or task: its place, its pace, and what it shows."""

    sid: str
    place: Place
    pace_s: float
    """The shortest time between two edits; each refusal of the platform doubles it."""
    words: Live | None = None
    preview: Preview | None = None
    is_hidden: bool = False
    """Whether the chat shows no preview: its platform refuses them, or its id was lost."""


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

    async def show(self, shown: Shown, words: Live, **about: str) -> None:
        """Show words: by a message the first time, which is noted at once, with what it is about.

        What can't be shown is left out.
        """
        before, place, sid = shown.preview, shown.place, shown.sid
        await self._reader.check()
        try:
            id_ = await self._adapter.preview(
                place, words, message_id=before.message_id if before else None
            )
        except (PlatformAway, PlatformBusy, AccountRefused) as problem:
            self.failed(place, problem)
            if isinstance(problem, PlatformBusy):
                shown.pace_s = min(SLOWEST_S, shown.pace_s * 2)
            return
        except Exception as error:  # noqa: BLE001 - a preview must not end the relay
            self.failed(place, error)
            shown.is_hidden = before is None or isinstance(error, PlatformRefused)
            return
        shown.words = words
        if before is None or before.message_id != id_:
            since_ms = before.since_ms if before else now_ms()
            shown.preview = Preview(place, sid, id_, since_ms)
            if before:
                await self._reader.note_preview(sid, before.message_id, None)
            where = {"sid": sid, "id": id_, "chat": place.chat, "thread": place.thread}
            noted = {**where, "since_ms": since_ms, **about}
            await self._reader.note_preview(sid, id_, noted)

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
                self.failed(place, error)
                continue
            await self._reader.note_preview(preview.sid, preview.message_id, None)
            return

    def failed(self, place: Place, error: Exception) -> None:
        """Note that something could not be shown: only what the platform demands has effects."""
        if isinstance(error, PlatformBusy | AccountRefused):
            self._budget.failed(place.chat, error)
        elif not isinstance(error, PlatformAway | PlatformRefused):
            log.warning("something is not shown in a chat: %s", frames_of(error))


def noted_preview(told: Mapping[str, Any]) -> Preview:
    """Return a preview as it was noted."""
    return Preview(Place(told["chat"], told["thread"]), told["sid"], told["id"], told["since_ms"])
