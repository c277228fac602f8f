"""Publishes a terminal's transcript items to the session's subscribers, each exactly once."""

import asyncio
from collections.abc import Iterable
from typing import Any

import orjson

from remoteclaw.fleet.terminals.state import TerminalPlace
from remoteclaw.fleet.terminals.terminals import Terminals
from remoteclaw.protocols import Transcript, TranscriptItem
from remoteclaw.tty.program import transcript_of

#: The longest text of an event, in characters; a longer text is cut.
MAX_CHARS = 8000
#: How many times the transcript is read for one `publish()`; each read returns a few hundred items.
MAX_READS = 20


class TranscriptPublisher:
    """Publishes the transcript of one terminal."""

    def __init__(self, terminals: Terminals, sid: str, epoch: str, place: TerminalPlace) -> None:
        """`epoch` is that of the session's lease; writes with an older one are refused."""
        self._terminals = terminals
        self._sid = sid
        self._epoch = epoch
        self._place = place
        self._conversation: str | None = None
        self._transcript: Transcript | None = None
        self._position: str | None = None
        """The transcript position up to which items are published; None until read from Redis."""
        self._copies = CopyFilter()

    def follow(self, conversation: str | None, transcript: Transcript | None) -> None:
        """Set the conversation that is open now, and its transcript, None if it has none yet."""
        if conversation != self._conversation:
            self._conversation, self._position = conversation, None
        self._transcript = transcript

    async def publish(self) -> None:
        """Publish the new items. Raises `LeaseLost`, `RedisUnavailable`."""
        if self._conversation is None:
            return
        if self._position is None:
            self._position = await self._start_position()
        if self._transcript is not None:
            position, self._position = self._position, None
            self._position = await self._publish_items(
                self._transcript, position, conversation=self._conversation
            )

    async def _publish_items(
        self, transcript: Transcript, position: str, *, conversation: str
    ) -> str | None:
        """Publish the items after `position`.

        Return the new position, or None if another gateway has already advanced it.
        """
        for _ in range(MAX_READS):
            try:
                items, next_position = await asyncio.to_thread(transcript.read, position)
            except OSError:
                break
            if next_position == position:
                break
            new = [item for item in items if is_of_terminal(item, self._place)]
            originals = self._copies.without_copies(new, conversation=conversation)
            events = [_event_of(item) for item in originals]
            if not await self._terminals.publish(
                self._sid, self._epoch, before=position, position=next_position, events=events
            ):
                return None
            position = next_position
        return position

    async def _start_position(self) -> str:
        """Return the position up to which the open conversation is published, as Redis has it.

        If Redis names another conversation, publish the rest of that one first and then record the
        open conversation instead.
        """
        record = await self._terminals.record(self._sid)
        if record and record.conversation == self._conversation:
            return record.position
        earlier = dict(record.earlier) if record else {}
        if record and (before := record.conversation):
            end = await self._publish_items(
                transcript_of(self._place, before), record.position, conversation=before
            )
            earlier[before] = end or record.position
        assert self._conversation is not None, "a conversation is open"
        position = earlier.pop(self._conversation, "")
        await self._terminals.change(
            self._sid,
            self._epoch,
            conversation=self._conversation,
            position=position,
            earlier=orjson.dumps(earlier).decode(),
        )
        return position


class CopyFilter:
    """Filters items that several conversations of a terminal share.

    A conversation that is forked from another one begins with copies of its items.
    """

    def __init__(self) -> None:
        self._first_in: dict[int, str] = {}
        """The conversation that had each item first, by the item's hash: its text may be long."""

    def without_copies(
        self, items: Iterable[TranscriptItem], *, conversation: str
    ) -> list[TranscriptItem]:
        """Return the items of `conversation` that no other conversation had before."""
        return [
            item
            for item in items
            if not item.at_ms
            or self._first_in.setdefault(
                hash((item.kind, item.name, item.text, item.at_ms)), conversation
            )
            == conversation
        ]


def is_of_terminal(item: TranscriptItem, place: TerminalPlace) -> bool:
    """Whether an item was recorded after the terminal was opened, or has no time.

    A conversation that the terminal resumed also has older items.
    """
    return not item.at_ms or item.at_ms >= place.started_ms


def _event_of(item: TranscriptItem) -> dict[str, Any]:
    """Return the event that publishes an item."""
    fields: dict[str, Any] = {"id": item.id, "text": item.text[:MAX_CHARS], "at": item.at_ms}
    match item.kind:
        case "tool":
            return {"type": "tool", "name": item.name, **fields}
        case "notice":
            return {"type": "notice", **fields}
        case role:
            return {"type": "message", "role": role, **fields}
