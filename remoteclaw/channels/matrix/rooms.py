"""Facts of rooms: whether they are encrypted, who is in them, and where they have moved."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from remoteclaw.channels.matrix.api import Homeserver, MatrixRefused
from remoteclaw.channels.matrix.device import Event
from remoteclaw.protocols import AdapterState


class Rooms:
    """What is known of the account's rooms. It is asked for once, and kept current by events."""

    def __init__(self, api: Homeserver, state: AdapterState, me: str) -> None:
        self._api, self._state, self._me = api, state, me
        self._plain: set[str] = set()
        """Rooms that were not encrypted when the homeserver was asked."""
        self._members: dict[str, dict[str, str | None]] = {}
        """The display names of the people in a room."""
        self._invited: dict[str, set[str]] = {}
        """The people who are invited to a room; those of large rooms are not asked for."""
        self._kept: dict[str, dict[str, Any]] = {}
        """The values `encrypted`, `moved` and `awaited` of the state, once they are read."""

    def forget(self, room: str | None = None) -> None:
        """Ask again for the facts of a room, or of all rooms."""
        for each in [*self._members, *self._plain] if room is None else [room]:
            self._plain.discard(each)
            self._members.pop(each, None)
            self._invited.pop(each, None)
        if room is None:
            self._kept = {}

    async def encryption(self, room: str) -> Mapping[str, Any] | None:
        """Return the settings of a room's encryption; None if it was never encrypted."""
        known = await self._of("encrypted")
        if room in known:
            return dict(known[room])
        if room in self._plain:
            return None
        try:
            found = await self._api.get("rooms", room, "state", "m.room.encryption")
        except MatrixRefused as refusal:
            if refusal.code != "M_NOT_FOUND":
                raise
            self._plain.add(room)
            return None
        await self._keep("encrypted", room, _settings(found))
        return found

    async def members(self, room: str) -> Mapping[str, str | None]:
        """Return the people in a room, the account included, with their display names."""
        if room not in self._members:
            found = await self._api.get("rooms", room, "joined_members")
            self._members[room] = {
                user: _name(about.get("display_name")) for user, about in found["joined"].items()
            }
        return self._members[room]

    async def is_group(self, room: str) -> bool:
        """Whether more than one person besides the account is in a room, or invited there."""
        joined = await self.members(room)
        if len(joined) > 2:
            return True
        if room not in self._invited:
            found = await self._api.get("rooms", room, "members", membership="invite")
            self._invited[room] = {each["state_key"] for each in found["chunk"]}
        return len(joined.keys() | self._invited[room]) > 2

    async def current(self, room: str) -> str:
        """Return the room to which a room has moved, or the room itself."""
        moved = await self._of("moved")
        passed = {room}
        while room in moved and moved[room] not in passed:
            room = moved[room]
            passed.add(room)
        return room

    async def first(self, room: str) -> str:
        """Return the first id of a room that was upgraded: its conversations keep it."""
        earlier = {after: before for before, after in (await self._of("moved")).items()}
        passed = {room}
        while room in earlier and earlier[room] not in passed:
            room = earlier[room]
            passed.add(room)
        return room

    async def move(self, room: str, to: str) -> None:
        """Record that a room has moved."""
        await self._keep("moved", room, to)

    async def await_invitation(self, room: str, *, instead_of: str) -> None:
        """Expect an invitation to the room that replaces another one, and to no other one."""
        awaited = await self._of("awaited")
        self._kept["awaited"] = {new: old for new, old in awaited.items() if old != instead_of}
        await self._keep("awaited", room, instead_of)

    async def is_awaited(self, room: str) -> bool:
        """Whether a room replaces one in which the account is."""
        return room in await self._of("awaited")

    async def apply(self, room: str, events: Iterable[Event]) -> None:
        """Take facts out of the events of a room."""
        for event in events:
            content = event.get("content")
            if not isinstance(content, dict) or not isinstance(event.get("state_key"), str):
                continue
            if (event["type"], event["state_key"]) == ("m.room.encryption", ""):
                self._plain.discard(room)
                if room not in await self._of("encrypted"):
                    await self._keep("encrypted", room, _settings(content))
            elif event["type"] == "m.room.member" and room in self._members:
                user, membership = event["state_key"], content.get("membership")
                self._members[room].pop(user, None)
                self._invited.get(room, set()).discard(user)
                if membership == "join":
                    self._members[room][user] = _name(content.get("displayname"))
                elif membership == "invite":
                    self._invited.get(room, set()).add(user)

    async def _of(self, name: str) -> dict[str, Any]:
        if name not in self._kept:
            self._kept[name] = json.loads(await self._state.read(name) or b"{}")
        return self._kept[name]

    async def _keep(self, name: str, room: str, value: Any) -> None:
        kept = await self._of(name) | {room: value}
        await self._state.write(name, json.dumps(kept).encode())
        self._kept[name] = kept


def _settings(content: Mapping[str, Any]) -> dict[str, int]:
    """Return when the keys of a room are to be changed: its members choose what else is there."""
    names = ("rotation_period_ms", "rotation_period_msgs")
    return {name: content[name] for name in names if isinstance(content.get(name), int)}


def _name(name: Any) -> str | None:
    return name if isinstance(name, str) else None
