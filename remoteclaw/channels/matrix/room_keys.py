"""The keys of encrypted rooms: Megolm sessions, of which each device of a sender has its own.

The sessions of others are values of the account's state. A session that encrypts is in memory alone
and ends with the process, so that no key is used twice.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vodozemac import (
    ExportedSessionKey,
    GroupSession,
    InboundGroupSession,
    MegolmMessage,
    SessionKey,
)

from remoteclaw.channels.matrix.api import MALFORMED
from remoteclaw.channels.matrix.device import MEGOLM, Event, OtherDevice, readable
from remoteclaw.errors import StateTooLarge
from remoteclaw.protocols import AdapterState

#: The maximum size of the keys of a room, in bytes, so that they fit into a value of the state when
#: they are encrypted; the oldest are dropped, of the person who has most of them.
MAX_BYTES = 180_000
#: A room with fewer keys keeps them all when the account's state is full.
MANY = 20
#: This many messages are remembered, so that none is accepted as another one.
MAX_SEEN = 20_000
#: A session ends after this many messages, and after this time, in milliseconds, unless the room
#: says otherwise.
MOST_MESSAGES, MOST_MS = 100, 7 * 24 * 3600 * 1000

log = logging.getLogger(__name__)


class Undecryptable(Exception):
    """Raised for an event that can't be decrypted; its text says why, for people."""

    def __init__(self, session: str, why: str) -> None:
        super().__init__(why)
        self.session = session
        """The id of the session whose key is missing."""


@dataclass(slots=True)
class Outbound:
    """The session with which this process encrypts in a room."""

    session: GroupSession = field(default_factory=GroupSession)
    since: float = field(default_factory=time.monotonic)
    has: set[OtherDevice] = field(default_factory=set)
    """The devices that have its key."""
    tried: dict[OtherDevice, float] = field(default_factory=dict)
    """When a device could not be given the key."""

    def is_over(self, settings: Mapping[str, Any], devices: Sequence[OtherDevice]) -> bool:
        """Whether a new session has to begin, also because a device that has its key has gone."""
        messages = _positive(settings.get("rotation_period_msgs"), MOST_MESSAGES)
        most_s = _positive(settings.get("rotation_period_ms"), MOST_MS) / 1000
        is_old = time.monotonic() - self.since > most_s
        return self.session.message_index >= messages or is_old or not self.has <= {*devices}

    @property
    def key(self) -> dict[str, Any]:
        """The key from the next message on."""
        return {
            "algorithm": MEGOLM,
            "session_id": self.session.session_id,
            "session_key": self.session.session_key.to_base64(),
        }


class RoomKeys:
    """The sessions of rooms, which decrypt."""

    def __init__(self, state: AdapterState) -> None:
        self._state = state
        self._known: dict[str, dict[tuple[str, str], InboundGroupSession]] = {}
        """The sessions of each room, by their ids and the people from whose devices the keys came:
        everybody in a room has the keys of the others, and may send them as well."""
        self._changed: set[str] = set()
        self._seen: dict[tuple[str, str, int], str] = {}
        """The event of each message of a session, so that no message is repeated as another one."""
        self.withheld: dict[str, str] = {}
        """Why a key was not given, as the sender's client says, by session."""

    def forget(self) -> None:
        """Read the keys from the state again."""
        self._known, self._changed = {}, set()

    async def _of(self, room: str) -> dict[tuple[str, str], InboundGroupSession]:
        if room not in self._known:
            stored = json.loads(await readable(self._state, f"keys/{room}") or b"[]")
            self._known[room] = {
                (id_, sender): InboundGroupSession.import_session(ExportedSessionKey(key))
                for id_, key, sender in stored
            }
        return self._known[room]

    async def add(self, room: str, session: InboundGroupSession, sender: str) -> None:
        """Add a key; `save()` stores it. One that decrypts earlier messages is kept instead."""
        known = await self._of(room)
        before = known.get((session.session_id, sender))
        if before and before.first_known_index <= session.first_known_index:
            return
        known[session.session_id, sender] = session
        self._changed.add(room)

    async def save(self) -> None:
        """Store the keys that were added."""
        for room in sorted(self._changed):
            while len(self._value(room)) > MAX_BYTES:
                self._drop(room, part=10)
            try:
                await self._write(room)
            except StateTooLarge:
                await self.make_space()
                await self._write(room)
            self._changed.discard(room)

    async def make_space(self) -> None:
        """Drop half of what the account's fullest room has, because the account's state is full.

        Raises `StateTooLarge` if no room has many keys.
        """
        for room in json.loads(await self._state.read("encrypted") or b"{}"):
            await self._of(room)
        room = max(self._known, key=lambda each: len(self._known[each]), default="")
        if len(self._known.get(room, ())) < MANY:
            raise StateTooLarge("The account's state is full, and not of the keys of rooms.")
        log.warning("the account has too many keys: the oldest of the room %s are dropped", room)
        self._drop(room, part=2)
        await self._write(room)

    async def _write(self, room: str) -> None:
        await self._state.write(f"keys/{room}", self._value(room), is_secret=True)

    def _value(self, room: str) -> bytes:
        """Return the keys of a room as they are stored."""
        stored = []
        for (id_, sender), session in self._known[room].items():
            exported = session.export_at(session.first_known_index)
            assert exported is not None, "a session has the key of its first known message"
            stored.append([id_, exported.to_base64(), sender])
        return json.dumps(stored).encode()

    def _drop(self, room: str, *, part: int) -> None:
        """Drop the oldest keys, one in `part`, of the person with most keys of a room."""
        known = self._known[room]
        most = Counter(sender for _, sender in known).most_common(1)[0][0]
        of_most = [each for each in known if each[1] == most]
        for each in of_most[: len(of_most) // part + 1]:
            del known[each]

    async def decrypted(self, room: str, event: Event) -> dict[str, Any]:
        """Return an event with the type and content of its plaintext. Raises `Undecryptable`."""
        content = event["content"]
        session = str(content.get("session_id", ""))
        if content.get("algorithm") != MEGOLM:
            raise Undecryptable(session, "it is encrypted with an algorithm that is not known here")
        known = (await self._of(room)).get((session, event["sender"]))
        if known is None:
            raise Undecryptable(session, self.withheld.get(session) or "its key has not come")
        try:
            found = known.decrypt(MegolmMessage.from_base64(content["ciphertext"]))
            payload = json.loads(found.plaintext)
            is_here = payload["room_id"] == room
            inner, kind = dict(payload["content"]), str(payload["type"])
        except MALFORMED as error:
            raise Undecryptable(session, f"it is damaged ({type(error).__name__})") from None
        while len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        message = session, event["sender"], found.message_index
        if not is_here or self._seen.setdefault(message, event["event_id"]) != event["event_id"]:
            raise Undecryptable(session, "it is a copy of another message")
        if "m.relates_to" in content:
            inner.setdefault("m.relates_to", content["m.relates_to"])
        return {**event, "type": kind, "content": inner}


def session_of(content: Mapping[str, Any], *, is_forwarded: bool) -> InboundGroupSession:
    """Return the session of a key that a device has sent. Raises `ValueError` and `KeyError`."""
    key = content["session_key"]
    if is_forwarded:
        return InboundGroupSession.import_session(ExportedSessionKey(key))
    return InboundGroupSession(SessionKey(key))


def own_session(outbound: Outbound) -> InboundGroupSession:
    """Return the session with which this account reads what it writes."""
    return InboundGroupSession(outbound.session.session_key)


def _positive(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and value > 0 else otherwise
