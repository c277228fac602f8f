"""Sends events, encrypted where they have to be."""

import hashlib
from collections.abc import Mapping
from typing import Any

from remoteclaw.channels.matrix.api import Homeserver, MatrixRefused
from remoteclaw.channels.matrix.encryption import Encryption
from remoteclaw.channels.matrix.rooms import Rooms

#: Events of these types are never encrypted.
PLAIN = ("m.reaction",)


class Sender:
    """Sends the events of an account."""

    def __init__(self, api: Homeserver, rooms: Rooms, encryption: Encryption) -> None:
        self._api, self._rooms, self._encryption = api, rooms, encryption

    async def put(self, room: str, kind: str, content: Mapping[str, Any], txn: str) -> str:
        """Send an event, encrypted in a room that was ever encrypted; return its id.

        The homeserver drops a repetition with the same `txn`.
        """
        room = await self._rooms.current(room)
        settings = None if kind in PLAIN else await self._rooms.encryption(room)
        if settings is not None:
            members = (await self._rooms.members(room)).keys()
            content = await self._encryption.encrypted(
                room, kind, content, members=members, settings=settings
            )
            kind = "m.room.encrypted"
        try:
            answer = await self._api.put("rooms", room, "send", kind, txn, body=content)
        except MatrixRefused as refusal:
            if refusal.code == "M_DUPLICATE_ANNOTATION":
                return ""
            raise
        return str(answer["event_id"])

    async def prepare(self, room: str) -> None:
        """Give the key of the next message to those who will read it, so that it goes out fast."""
        room = await self._rooms.current(room)
        settings = await self._rooms.encryption(room)
        if settings is not None:
            members = (await self._rooms.members(room)).keys()
            await self._encryption.prepare(room, members=members, settings=settings)

    async def redact(self, room: str, event: str) -> None:
        """Remove the content of an event."""
        room = await self._rooms.current(room)
        txn = hashed("redact", event)
        await self._api.put("rooms", room, "redact", event, txn, body={})


def hashed(*parts: str) -> str:
    """Return an id of 32 characters that the same parts always have."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
