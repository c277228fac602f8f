"""Tells the items of a terminal's transcript to those who follow the session, each once."""

import asyncio
import contextlib
from typing import Any

from remoteclaw.fleet.terminals import Terminals
from remoteclaw.protocols import Transcript, TranscriptItem

__all__ = ["TranscriptTale"]

#: The longest text of one event, in characters: cockpits show it, and ask for more by themselves.
MOST_CHARS = 8000
#: How many pieces of a transcript are read in one look.
MOST_PIECES = 20


class TranscriptTale:
    """Tells the transcript of one terminal."""

    def __init__(self, terminals: Terminals, sid: str, epoch: str, *, started_ms: int) -> None:
        """`epoch` is that of the session's owner, for whom it is told."""
        self._terminals = terminals
        self._sid = sid
        self._epoch = epoch
        self._started_ms = started_ms
        self._conversation: str | None = None
        self._transcript: Transcript | None = None
        self._position: str | None = None
        """How far it was told; None while that is not known."""

    def follow(self, conversation: str | None, transcript: Transcript | None) -> None:
        """Tell the transcript of the conversation that is open now."""
        if conversation != self._conversation:
            self._conversation, self._position = conversation, None
        self._transcript = transcript

    async def tell(self) -> None:
        """Tell what is new. Raises `LeaseLost`, `RedisUnavailable`."""
        if self._conversation is None:
            return
        if self._position is None:
            self._position = await self._begin()
        if self._transcript is None:
            return
        for _ in range(MOST_PIECES):
            with contextlib.suppress(OSError):
                items, behind = await asyncio.to_thread(self._transcript.read, self._position)
                if behind != self._position:
                    told = [_told(item) for item in items if self._is_of_now(item)]
                    before, self._position = self._position, None
                    if await self._terminals.note(
                        self._sid, self._epoch, before=before, position=behind, told=told
                    ):
                        self._position = behind
                        continue
            return

    async def _begin(self) -> str:
        """Return how far the conversation was told; another one than before is new."""
        record = await self._terminals.record(self._sid)
        if record and record.conversation == self._conversation:
            return record.position
        await self._terminals.change(
            self._sid, self._epoch, conversation=self._conversation, position=""
        )
        return ""

    def _is_of_now(self, item: TranscriptItem) -> bool:
        """Whether it was said since the terminal was opened: an older conversation has been."""
        return not item.at_ms or item.at_ms >= self._started_ms


def _told(item: TranscriptItem) -> dict[str, Any]:
    """Return an item as cockpits are told of it."""
    told: dict[str, Any] = {"id": item.id, "text": item.text[:MOST_CHARS], "at": item.at_ms}
    match item.kind:
        case "tool":
            return {"type": "tool", "name": item.name, **told}
        case "notice":
            return {"type": "notice", **told}
        case role:
            return {"type": "message", "role": role, **told}
