"""Tells the items of a terminal's transcript to those who follow the session, each once."""

import asyncio
from collections.abc import Iterable
from typing import Any

import orjson

from remoteclaw.fleet.terminal_state import TerminalPlace
from remoteclaw.fleet.terminals import Terminals
from remoteclaw.protocols import Transcript, TranscriptItem
from remoteclaw.tty.program import transcript_of

#: The longest text of one event, in characters: cockpits show it, and ask for more by themselves.
MAX_CHARS = 8000
#: How many pieces of a transcript are read in one look.
MAX_PIECES = 20


class TranscriptTale:
    """Tells the transcript of one terminal."""

    def __init__(self, terminals: Terminals, sid: str, epoch: str, place: TerminalPlace) -> None:
        """`epoch` is that of the session's owner, for whom it is told."""
        self._terminals = terminals
        self._sid = sid
        self._epoch = epoch
        self._place = place
        self._conversation: str | None = None
        self._transcript: Transcript | None = None
        self._position: str | None = None
        """How far it was told; None while that is not known."""
        self._copies = Copies()

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
        if self._transcript is not None:
            position, self._position = self._position, None
            self._position = await self._tell(
                self._transcript, position, conversation=self._conversation
            )

    async def _tell(
        self, transcript: Transcript, position: str, *, conversation: str
    ) -> str | None:
        """Tell what is behind a position; return the new one, None if another one is further."""
        for _ in range(MAX_PIECES):
            try:
                items, behind = await asyncio.to_thread(transcript.read, position)
            except OSError:
                break
            if behind == position:
                break
            of_now = [item for item in items if is_of_now(item, self._place)]
            told = [_told(item) for item in self._copies.left_out(of_now, of=conversation)]
            if not await self._terminals.note(
                self._sid, self._epoch, before=position, position=behind, told=told
            ):
                return None
            position = behind
        return position

    async def _begin(self) -> str:
        """Return how far the conversation was told; before another one, end that one's tale."""
        record = await self._terminals.record(self._sid)
        if record and record.conversation == self._conversation:
            return record.position
        earlier = dict(record.earlier) if record else {}
        if record and (before := record.conversation):
            told = await self._tell(
                transcript_of(self._place, before), record.position, conversation=before
            )
            earlier[before] = told or record.position
        assert self._conversation is not None, "there is one to tell"
        position = earlier.pop(self._conversation, "")
        await self._terminals.change(
            self._sid,
            self._epoch,
            conversation=self._conversation,
            position=position,
            earlier=orjson.dumps(earlier).decode(),
        )
        return position


class Copies:
    """The items of several conversations of one terminal: a fork begins with a copy of another."""

    def __init__(self) -> None:
        self._seen: dict[int, str] = {}
        """In which conversation each was first, by a hash: their texts may be long."""

    def left_out(self, items: Iterable[TranscriptItem], *, of: str) -> list[TranscriptItem]:
        """Return the items of a conversation but for those that another one had before."""
        return [
            item
            for item in items
            if not item.at_ms
            or self._seen.setdefault(hash((item.kind, item.name, item.text, item.at_ms)), of) == of
        ]


def is_of_now(item: TranscriptItem, place: TerminalPlace) -> bool:
    """Whether an item was said since the terminal was opened: an older conversation has others."""
    return not item.at_ms or item.at_ms >= place.started_ms


def _told(item: TranscriptItem) -> dict[str, Any]:
    """Return an item as cockpits are told of it."""
    told: dict[str, Any] = {"id": item.id, "text": item.text[:MAX_CHARS], "at": item.at_ms}
    match item.kind:
        case "tool":
            return {"type": "tool", "name": item.name, **told}
        case "notice":
            return {"type": "notice", **told}
        case role:
            return {"type": "message", "role": role, **told}
