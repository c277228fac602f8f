"""The records of conversations, current and archived."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.messages import SessionKey


@dataclass(frozen=True, slots=True)
class ArchivedConversation:
    """A conversation that has ended, and whose record is kept for a while."""

    at_ms: int
    """The end of the conversation, in milliseconds on Redis' clock."""
    why: str
    """The reason of the end: the command that a person sent, or another reason."""
    record: bytes
    """The conversation's record, as lines of JSON (`session.record`)."""


class Records:
    """Reads and deletes the records of conversations, lines of JSON (`session.record`)."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def of(self, sid: str) -> bytes:
        """Return the record of the session's current conversation; empty if there is none."""
        client = self._scripts.client
        return await self._scripts.call(client.get, keys.record(sid)) or b""

    async def has(self, sid: str) -> bool:
        """Return whether the session has a record, current or archived."""
        return bool(await self.of(sid) or await self.ended(sid))

    async def of_all(self, sids: Sequence[str]) -> Sequence[bytes]:
        """Return the records of the current conversations of several sessions."""
        names = [keys.record(sid) for sid in sids]
        records = await self._scripts.call(self._scripts.client.mget, names) if names else []
        return [record or b"" for record in records]

    async def sizes(self, sids: Sequence[str]) -> Sequence[int]:
        """Return the lengths of these records, in bytes."""
        return await self._scripts.run_pipeline(
            lambda ask: [ask.strlen(keys.record(sid)) for sid in sids]
        )

    async def ended(self, sid: str) -> Sequence[ArchivedConversation]:
        """Return the session's archived conversations, newest first."""
        client, name = self._scripts.client, keys.archive(sid)

        async def read_archive() -> tuple[Any, Any]:
            lines: Any = await client.lrange(name, 0, -1)
            names = [f"{name}:{line.decode().partition(' ')[0]}" for line in lines]
            return lines, await client.mget(names) if names else []

        archived = []
        lines, records = await self._scripts.call(read_archive)
        for line, record in zip(lines, records, strict=True):
            if record:  # None once it has expired
                _, at_ms, why = line.decode().split(" ", 2)
                archived.append(ArchivedConversation(int(at_ms), why, record))
        return archived

    async def forget(self, sid: str) -> bool:
        """Delete the session's records, current and archived, and the history of its chat.

        Returns False if there was nothing to delete.
        """
        key = await self._scripts.call(self._scripts.client.hget, keys.state(sid), "key")
        place = SessionKey.parse(key.decode()).place if key else None
        history = keys.history(place.provider, place.account, place.chat) if place else None
        return bool(await self._scripts.run("forget_session", sid=sid, history=history))
