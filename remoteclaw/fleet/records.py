"""The records of conversations, running and ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.messages import SessionKey


@dataclass(frozen=True, slots=True)
class Ended:
    """A conversation that was ended, and is kept for a while."""

    at_ms: int
    """When it was ended, on Redis' clock."""
    why: str
    """What ended it: the word that a person wrote, or another reason."""
    record: bytes
    """The conversation's record, as lines of JSON (`session.record`)."""


class Records:
    """What is recorded of conversations, as lines of JSON (`session.record`)."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def of(self, sid: str) -> bytes:
        """Return the record of the conversation; nothing if there is none."""
        client = self._scripts.client
        return await self._scripts.call(client.get, keys.record(sid)) or b""

    async def has(self, sid: str) -> bool:
        """Whether anything is recorded of the session."""
        return bool(await self.of(sid) or await self.ended(sid))

    async def of_all(self, sids: Sequence[str]) -> Sequence[bytes]:
        """Return the records of several sessions."""
        names = [keys.record(sid) for sid in sids]
        found = await self._scripts.call(self._scripts.client.mget, names) if names else []
        return [record or b"" for record in found]

    async def sizes(self, sids: Sequence[str]) -> Sequence[int]:
        """Return how long the records of sessions are, in bytes."""
        return await self._scripts.together(
            lambda ask: [ask.strlen(keys.record(sid)) for sid in sids]
        )

    async def ended(self, sid: str) -> Sequence[Ended]:
        """Return the session's ended conversations that are kept, the newest first."""
        client, name = self._scripts.client, keys.archive(sid)

        async def look() -> tuple[Any, Any]:
            lines: Any = await client.lrange(name, 0, -1)
            names = [f"{name}:{line.decode().partition(' ')[0]}" for line in lines]
            return lines, await client.mget(names) if names else []

        found = []
        lines, records = await self._scripts.call(look)
        for line, record in zip(lines, records, strict=True):
            if record:  # else its time is over
                _, at_ms, why = line.decode().split(" ", 2)
                found.append(Ended(int(at_ms), why, record))
        return found

    async def forget(self, sid: str) -> bool:
        """Remove what is recorded, ended conversations and its chat's history included.

        False if nothing was.
        """
        key = await self._scripts.call(self._scripts.client.hget, keys.state(sid), "key")
        place = SessionKey.parse(key.decode()).place if key else None
        names = {
            "record": keys.record(sid),
            "archive": keys.archive(sid),
            "beside": keys.beside(sid),
            "history": keys.history(place.provider, place.account, place.chat) if place else None,
        }
        return bool(await self._scripts.run("forget", keys=names))
