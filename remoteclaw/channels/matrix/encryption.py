"""Encryption in rooms: what comes to this device, and who gets the keys of what it writes.

What a response of `/sync` brings is stored before its position is: the homeserver deletes messages
to this device when it is asked for what comes after them. Room keys are stored first, then the Olm
sessions that brought them: after a crash between the two, the same message brings the key again.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

from remoteclaw.channels.matrix.api import MALFORMED, Homeserver, json_of
from remoteclaw.channels.matrix.device import (
    MEGOLM,
    ONE_TIME,
    ONE_TIME_KEYS,
    CantDecrypt,
    Device,
    Event,
    OtherDevice,
)
from remoteclaw.channels.matrix.device_lists import DeviceLists
from remoteclaw.channels.matrix.room_keys import Outbound, RoomKeys, own_session, session_of
from remoteclaw.errors import AccountRefused, LeaseLost, RemoteClawError, StateTooLarge
from remoteclaw.protocols import AdapterState

#: Messages are sent to this many devices with one call.
MAX_DEVICES = 100
#: A device that could not be given a key is tried again after this time, in seconds.
AGAIN_S = 60.0
#: A new session with a device that sends what can't be decrypted begins once in this time, in
#: seconds.
UNWEDGED_S = 3600.0
#: This much is remembered of what anybody may send, with ids of this many characters.
MAX_KEPT, MAX_ID = 1000, 255
NO_VERIFICATION = (
    "it asks for a verification, and a program can't compare emoji. The device {device} is "
    "signed by its own identity, and has the fingerprint {fingerprint}"
)

log = logging.getLogger(__name__)


class Encryption:
    """The encryption of an account on this device."""

    def __init__(self, api: Homeserver, state: AdapterState, user: str, device: str) -> None:
        self.device = Device(api, state, user, device)
        self._api, self._state = api, state
        self._keys = RoomKeys(state)
        self._lists = DeviceLists(api)
        self._outbound: dict[str, Outbound] = {}
        self._working = asyncio.Lock()
        """Held while keys are used: their order is that of what is stored."""
        self._asked: dict[str, tuple[str, str]] = {}
        """The room and the sender of each session whose key was asked for."""
        self._unwedged: dict[str, float] = {}
        self._is_unsettled = False

    @contextlib.asynccontextmanager
    async def _using(self) -> AsyncIterator[None]:
        """Use the keys alone. They are loaded again if what is stored is not what is in memory."""
        async with self._working:
            try:
                yield
            except LeaseLost:
                self.device.forget()
                raise

    async def open(self) -> None:
        """Load this device's keys, or make and publish them. Drops what is only in memory."""
        async with self._using():
            await self._open()

    async def _open(self) -> None:
        self._keys.forget()
        self._lists.forget()
        self._outbound.clear()
        await self.device.open()

    async def _ensure_current(self) -> None:
        """Load the keys again if another process had the account meanwhile."""
        if not await self.device.is_current():
            await self._open()

    @property
    def about_verification(self) -> str:
        """Why this device takes no part in a verification, for people."""
        return NO_VERIFICATION.format(device=self.device.id, fingerprint=self.device.ed25519)

    # -- what comes ----------------------------------------------------------------------------

    async def take(self, response: Mapping[str, Any]) -> set[str]:
        """Take keys out of a response of `/sync`; return the ids of the sessions that they are of.

        They are stored then. It is harmless to take the same response again.
        """
        async with self._using():
            lists = response.get("device_lists", {})
            self._lists.forget([*lists.get("changed", ()), *lists.get("left", ())])
            if response.get("to_device", {}).get("events"):
                await self._ensure_current()
            found: set[str] = set()
            lost: set[tuple[str, str]] = set()
            for event in response.get("to_device", {}).get("events", ()):
                try:
                    found |= await self._take(event)
                except CantDecrypt as error:
                    log.info("a message to this device can't be decrypted: %s", error)
                    lost.add((str(event.get("sender")), str(event["content"].get("sender_key"))))
                except MALFORMED as error:
                    log.warning("a message to this device is malformed: %s", type(error).__name__)
            try:
                await self._save()
            except StateTooLarge:
                await self._keys.make_space()
                await self._save()
            self._is_unsettled |= bool(response.get("to_device", {}).get("events"))
            left = response.get("device_one_time_keys_count", {}).get(ONE_TIME)
            left = left if isinstance(left, int) else ONE_TIME_KEYS
            unused = response.get("device_unused_fallback_key_types")
            is_used = isinstance(unused, list) and ONE_TIME not in unused
            needs_fallback = is_used and self.device.may_replace_fallback
            if left < ONE_TIME_KEYS // 2 or needs_fallback:
                await self._ensure_current()
                await self.device.refill(left, with_fallback=needs_fallback)
            await self._unwedge(lost)
            return found

    async def _save(self) -> None:
        await self._keys.save()
        await self.device.save()

    async def settled(self) -> None:
        """Wait until what was taken survives a crash of Redis, if anything was."""
        if self._is_unsettled:
            async with self._using():
                await self._state.settle()
            self._is_unsettled = False

    async def _take(self, event: Event) -> set[str]:
        """Take one message to this device; return the session whose key it has."""
        match event["type"]:
            case "m.room.encrypted":
                inside = await self.device.decrypted(event)
                content, sender = inside["content"], inside["sender"]
                is_forwarded = inside["type"] == "m.forwarded_room_key"
                if not is_forwarded and inside["type"] != "m.room_key":
                    return set()
                room, id_ = str(content["room_id"]), str(content["session_id"])
                if content["algorithm"] != MEGOLM:
                    return set()
                if is_forwarded and self._asked.get(id_) != (room, sender):
                    log.warning("%s sends a key that nobody has asked for", sender)
                    return set()
                session = session_of(content, is_forwarded=is_forwarded)
                if session.session_id == id_:
                    await self._keys.add(room, session, sender)
                    self._asked.pop(id_, None)
                    return {id_}
            case "m.room_key.withheld":
                content = event["content"]
                why = "your client gives its keys to verified devices only"
                if content.get("code") not in ("m.unverified", "m.blacklisted"):
                    why = "your client has not given its key"
                self._keys.withheld[str(content.get("session_id"))[:MAX_ID]] = why
                _bound(self._keys.withheld)
            case "m.key.verification.request":
                await self._decline(event)
        return set()

    async def _decline(self, event: Event) -> None:
        """Decline a verification: there is nobody to compare emoji."""
        content = event["content"]
        body = {
            "transaction_id": content["transaction_id"],
            "code": "m.user",
            "reason": self.about_verification,
        }
        messages = {event["sender"]: {str(content["from_device"]): body}}
        try:
            await self._send("m.key.verification.cancel", messages)
        except AccountRefused:
            raise
        except RemoteClawError as error:  # anybody can ask: no room may wait for that
            log.warning("a verification of %s is not declined: %s", event["sender"], error)

    async def _unwedge(self, lost: Collection[tuple[str, str]]) -> None:
        """Begin new sessions with devices whose messages can't be decrypted, so that they use them.

        It is so after a loss of what Redis had stored last. A device is named by its person and its
        key, of which anybody may send any: those that no device has cost a single call together.
        """
        now = time.monotonic()
        for key in [key for key, at in self._unwedged.items() if now - at >= UNWEDGED_S]:
            del self._unwedged[key]
        try:
            for device in await self._lists.of({user for user, _ in lost}):
                key = device.curve25519
                if (device.user, key) in lost and key not in self._unwedged:
                    self._unwedged[key] = now
                    self.device.distrust(device)
                    await self.device.begin([device])
                    await self._give([device], "m.dummy", {})
        except LeaseLost:
            raise
        except RemoteClawError as error:
            log.warning("no new session begins with a device: %s", error)

    async def decrypted(self, room: str, event: Event) -> dict[str, Any]:
        """Return an event with the type and content of its plaintext. Raises `Undecryptable`."""
        async with self._working:
            return await self._keys.decrypted(room, event)

    async def ask_for_key(self, room: str, event: Event) -> None:
        """Ask the devices of an event's sender for its key."""
        content = event["content"]
        session = str(content.get("session_id"))
        self._asked[session] = room, event["sender"]
        _bound(self._asked)
        body = {
            "action": "request",
            "body": {
                "algorithm": MEGOLM,
                "room_id": room,
                "sender_key": content.get("sender_key", ""),
                "session_id": session,
            },
            "request_id": session,
            "requesting_device_id": self.device.id,
        }
        await self._send("m.room_key_request", {event["sender"]: {"*": body}})

    # -- what goes out -------------------------------------------------------------------------

    async def encrypted(
        self,
        room: str,
        kind: str,
        content: Mapping[str, Any],
        *,
        members: Collection[str],
        settings: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the content of an encrypted event for the devices of a room's members.

        `settings` are those of the room's encryption. What the event relates to stays readable.
        """
        async with self._using():
            outbound = await self._shared(room, members, settings)
            payload = {"room_id": room, "type": kind, "content": content}
            message = {
                "algorithm": MEGOLM,
                "sender_key": self.device.curve25519,
                "device_id": self.device.id,
                "session_id": outbound.session.session_id,
                "ciphertext": outbound.session.encrypt(json_of(payload)).to_base64(),
            }
        relation = content.get("m.relates_to")
        return message | ({"m.relates_to": relation} if relation else {})

    async def prepare(
        self, room: str, *, members: Collection[str], settings: Mapping[str, Any]
    ) -> None:
        """Do of `encrypted()` what takes calls of the homeserver."""
        async with self._using():
            await self._shared(room, members, settings)

    async def _shared(
        self, room: str, members: Collection[str], settings: Mapping[str, Any]
    ) -> Outbound:
        """Return a session whose key the devices of a room's members have."""
        own = self.device.curve25519
        devices = [each for each in await self._lists.of(members) if each.curve25519 != own]
        outbound = self._outbound.get(room)
        if outbound is None or not {*devices} <= outbound.has:
            await self._ensure_current()
            outbound = self._outbound.get(room)
        if outbound is None or outbound.is_over(settings, devices):
            outbound = Outbound()
            await self._keys.add(room, own_session(outbound), self.device.user)
            await self._keys.save()
            self._outbound[room] = outbound
        await self._share(room, outbound, devices)
        return outbound

    async def _share(self, room: str, outbound: Outbound, devices: Sequence[OtherDevice]) -> None:
        """Give the key of a session to the devices that don't have it."""
        now = time.monotonic()
        missing = [
            each
            for each in devices
            if each not in outbound.has and now - outbound.tried.get(each, -AGAIN_S) >= AGAIN_S
        ]
        if not missing:
            return
        await self.device.begin(missing)
        given = await self._give(missing, "m.room_key", {"room_id": room, **outbound.key})
        outbound.has.update(given)
        outbound.tried |= {each: now for each in missing if each not in outbound.has}

    async def _give(
        self, devices: Sequence[OtherDevice], kind: str, content: Mapping[str, Any]
    ) -> list[OtherDevice]:
        """Send an encrypted message to devices; return those with which there is a session."""
        given = []
        for start in range(0, len(devices), MAX_DEVICES):
            messages: dict[str, dict[str, Any]] = defaultdict(dict)
            for each in devices[start : start + MAX_DEVICES]:
                if message := self.device.encrypted(each, kind, content):
                    messages[each.user][each.id] = message
                    given.append(each)
            if messages:
                await self.device.save()
                await self._send("m.room.encrypted", messages)
        return given

    async def _send(self, kind: str, messages: Mapping[str, Mapping[str, Any]]) -> None:
        await self._api.put("sendToDevice", kind, uuid.uuid4().hex, body={"messages": messages})


def _bound(kept: dict[str, Any]) -> None:
    """Drop what is remembered first once there is too much."""
    while len(kept) > MAX_KEPT:
        del kept[next(iter(kept))]
