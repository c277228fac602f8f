"""The messages that a room or a thread has, as their senders have edited them last."""

import contextlib

from remoteclaw.channels.matrix.api import Homeserver, MatrixRefused
from remoteclaw.channels.matrix.device import Event
from remoteclaw.channels.matrix.events import relation_of
from remoteclaw.channels.matrix.rooms import Rooms
from remoteclaw.channels.matrix.sync import Sync
from remoteclaw.protocols import Place


class History:
    """Reads what is in the rooms of an account."""

    def __init__(self, api: Homeserver, rooms: Rooms, sync: Sync) -> None:
        self._api, self._rooms, self._sync = api, rooms, sync

    async def messages(self, place: Place, most: int) -> list[Event]:
        """Return the messages among the newest `most` events, newest first, decrypted."""
        room, thread = await self._rooms.current(place.chat), place.thread
        if thread is None:
            page = await self._api.get("rooms", room, "messages", dir="b", limit=most)
        else:
            page = await self._api.get(
                "rooms", room, "relations", thread, "m.thread", version="v1", limit=most
            )
        events = page.get("chunk", [])
        if thread is not None and len(events) < most:
            with contextlib.suppress(MatrixRefused):  # it is older than what the account may see
                events = [*events, await self._api.get("rooms", room, "event", thread)]
        found = []
        for each in events:
            event = await self._sync.read(room, each)
            relation = relation_of(event).get("rel_type")
            is_there = relation != "m.replace" and (thread is not None or relation != "m.thread")
            if event["type"] == "m.room.message" and event["content"] and is_there:
                found.append(await self._edited(room, event))
        return found

    async def _edited(self, room: str, event: Event) -> Event:
        """Return a message with what its sender has changed last."""
        bundled = (event.get("unsigned") or {}).get("m.relations") or {}
        named = bundled.get("m.replace") or {}
        if "content" in named:
            edit: Event | None = await self._sync.read(room, named)
        else:  # there is none, or an older homeserver only names it
            edit = await self._sync.event(room, named.get("event_id"))
        if edit is None or edit["sender"] != event["sender"]:
            return event
        new = edit["content"].get("m.new_content")
        return {**event, "content": {**event["content"], **new}} if isinstance(new, dict) else event
