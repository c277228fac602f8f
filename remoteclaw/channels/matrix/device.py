"""This device of the account: its keys, and its Olm sessions with other devices.

Keys and sessions are values of the account's state. A session that encrypts is one that this
process has begun or received: it goes on in memory, so that no crash of Redis or of another process
takes it back to a state in which it encrypts with a key that it has used.
"""

import base64
import binascii
import json
import logging
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vodozemac import (
    Account,
    AnyOlmMessage,
    Curve25519PublicKey,
    Ed25519PublicKey,
    Ed25519Signature,
    Session,
)

from remoteclaw.channels.matrix.api import MALFORMED, Homeserver, json_of
from remoteclaw.errors import AccountRefused, ConfigError
from remoteclaw.protocols import AdapterState

OLM, MEGOLM = "m.olm.v1.curve25519-aes-sha2", "m.megolm.v1.aes-sha2"
ONE_TIME = "signed_curve25519"
#: This many one-time keys are on the homeserver; a new session of another device takes one.
ONE_TIME_KEYS = 50
#: A key for sessions that begin while there is no other one is replaced at most once in this time,
#: in seconds: only the last two work, and anybody can use them.
FALLBACK_S = 24 * 3600.0
#: This many sessions with a device are kept: it may use any of them.
MAX_SESSIONS = 3
#: The state encrypts its secrets, so that what is stored there needs no key of its own.
PICKLE_KEY = bytes(32)

KEYS_LOST = (
    "The keys of this device are lost, so nobody could write to it in encrypted rooms: run "
    "`remoteclaw channel add matrix` to log in with a new device."
)

Event = Mapping[str, Any]
log = logging.getLogger(__name__)


class CantDecrypt(Exception):
    """Raised for a message to this device that no session of its sender decrypts."""


@dataclass(frozen=True, slots=True)
class OtherDevice:
    """A device of a person."""

    user: str
    id: str
    curve25519: str
    """Its identity key, with which Olm sessions begin."""
    ed25519: str
    """The key that signs what it publishes."""


async def readable(state: AdapterState, name: str) -> bytes | None:
    """Return a value; None also for one that was encrypted with a key that is lost.

    The keys of this device are read first, with `state.read()`. If they can be read, such a value
    is of an earlier device, and a new one was logged in because the key was lost.
    """
    try:
        return await state.read(name)
    except ConfigError:
        return None


class Device:
    """This device of the account `user`."""

    def __init__(self, api: Homeserver, state: AdapterState, user: str, device: str) -> None:
        self._api, self._state = api, state
        self.user, self.id = user, device
        self._account = Account()
        self._sessions: dict[str, list[Session]] = {}
        """The sessions with other devices, newest first, by the identity key of the device."""
        self._usable: dict[str, Session] = {}
        """The sessions that encrypt."""
        self._changed: set[str] = set()
        self._is_changed = False
        """Whether the account's keys have changed since they were stored."""
        self._fallback_at = -math.inf
        """When a fallback key was published."""
        self._opened = b""
        """What this process has written when it loaded the keys."""

    async def open(self) -> None:
        """Load the keys, or make them at the first start, and publish what is not published yet.

        Raises `AccountRefused` if the homeserver has keys of this device that are lost.
        """
        self._sessions, self._usable, self._changed = {}, {}, set()
        self._opened = uuid.uuid4().bytes
        await self._state.write("opened", self._opened)
        if stored := await self._state.read("device"):
            self._account = Account.from_pickle(stored.decode(), PICKLE_KEY)
        else:
            known = await self._api.post("keys", "query", body={"device_keys": {self.user: []}})
            if self.id in known.get("device_keys", {}).get(self.user, {}):
                raise AccountRefused(KEYS_LOST)
            self._account = Account()
        await self._publish(0, with_device=True)

    async def is_current(self) -> bool:
        """Whether no other process has used the keys since this one has loaded them."""
        return await self._state.read("opened") == self._opened

    def forget(self) -> None:
        """Load the keys again before they are used."""
        self._opened = b""

    @property
    def curve25519(self) -> str:
        """The identity key."""
        return self._account.curve25519_key.to_base64()

    @property
    def ed25519(self) -> str:
        """The key that signs, which people compare as the device's fingerprint."""
        return self._account.ed25519_key.to_base64()

    def signed(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object with this device's signature."""
        signature = self._account.sign(canonical(content)).to_base64()
        signatures = {**content.get("signatures", {})}
        of_user = {**signatures.get(self.user, {}), f"ed25519:{self.id}": signature}
        return {**content, "signatures": {**signatures, self.user: of_user}}

    @property
    def keys(self) -> dict[str, Any]:
        """The keys that this device publishes, with its signature."""
        keys = {f"curve25519:{self.id}": self.curve25519, f"ed25519:{self.id}": self.ed25519}
        return self.signed(
            {
                "user_id": self.user,
                "device_id": self.id,
                "algorithms": [OLM, MEGOLM],
                "keys": keys,
            }
        )

    @property
    def may_replace_fallback(self) -> bool:
        """Whether the last key for sessions that begin without a one-time key is old enough."""
        return time.monotonic() - self._fallback_at >= FALLBACK_S

    async def refill(self, left: int, *, with_fallback: bool) -> None:
        """Publish one-time keys, of which the homeserver has `left`, and perhaps a fallback key.

        Others use that one when no one-time key is left: anybody can take them.
        """
        await self._publish(left, with_fallback=with_fallback)
        if with_fallback:
            self._fallback_at = time.monotonic()

    async def _publish(
        self, left: int, *, with_device: bool = False, with_fallback: bool = False
    ) -> None:
        """Publish keys, once they are stored: nobody may use a key that is lost.

        They count as published before they are, because a kill could let them be published twice,
        and the homeserver give one of them to two devices.
        """
        if with_device:
            counted = await self._api.post("keys", "upload", body={})
            left = counted.get("one_time_key_counts", {}).get(ONE_TIME, 0)
        self._account.generate_one_time_keys(max(0, ONE_TIME_KEYS - left))
        made = {
            f"{ONE_TIME}:{name}": self.signed({"key": key.to_base64()})
            for name, key in self._account.one_time_keys.items()
        }
        fallback: dict[str, Any] = {}
        if with_fallback:
            account: Any = self._account  # the stubs of the library lack these methods
            account.generate_fallback_key()
            for name, key in account.fallback_key.items():
                signed = self.signed({"key": key.to_base64(), "fallback": True})
                fallback[f"{ONE_TIME}:{name}"] = signed
        self._account.mark_keys_as_published()
        self._is_changed = True
        await self.save()
        await self._state.settle()
        body: dict[str, Any] = {"one_time_keys": made, "fallback_keys": fallback}
        body |= {"device_keys": self.keys} if with_device else {}
        await self._api.post("keys", "upload", body=body)

    async def save(self) -> None:
        """Store what has changed, the sessions first: a key may go once its session is there."""
        for key in sorted(self._changed):
            kept = [session.pickle(PICKLE_KEY) for session in self._sessions[key][:MAX_SESSIONS]]
            await self._state.write(f"olm/{key}", json.dumps(kept).encode(), is_secret=True)
            self._changed.discard(key)
        if self._is_changed:
            pickle = self._account.pickle(PICKLE_KEY).encode()
            await self._state.write("device", pickle, is_secret=True)
            self._is_changed = False

    # -- messages to devices -------------------------------------------------------------------

    async def decrypted(self, event: Event) -> dict[str, Any]:
        """Return what another device has sent to this one. `save()` stores the new state.

        Raises `CantDecrypt`, also for a message that was decrypted before.
        """
        content = event["content"]
        if content.get("algorithm") != OLM:
            raise CantDecrypt("another algorithm")
        mine = content["ciphertext"].get(self.curve25519)
        if mine is None:
            raise CantDecrypt("not for this device")
        sender_key = str(content["sender_key"])
        message = AnyOlmMessage.from_parts(int(mine["type"]), unpadded(mine["body"]))
        payload = json.loads(await self._plaintext(sender_key, message))
        said = payload["sender"], payload["recipient"], payload["recipient_keys"]["ed25519"]
        if said != (event["sender"], self.user, self.ed25519):
            raise CantDecrypt("it names another sender or recipient")
        return dict(payload) | {"sender_key": sender_key}

    async def _plaintext(self, sender_key: str, message: AnyOlmMessage) -> bytes:
        sessions = await self._known(sender_key)
        pre_key = message.to_pre_key()
        for session in sessions:
            if pre_key is not None and not session.session_matches(pre_key):
                continue
            try:
                plaintext = session.decrypt(message)
            except ValueError as error:
                if pre_key is not None:
                    raise CantDecrypt(str(error)) from None
                continue
            self._changed.add(sender_key)
            return plaintext
        if pre_key is None:
            raise CantDecrypt("no session decrypts it")
        sender = Curve25519PublicKey.from_base64(sender_key)
        try:
            session, plaintext = self._account.create_inbound_session(sender, pre_key)
        except ValueError as error:
            raise CantDecrypt(str(error)) from None
        self._begin(sender_key, session)
        self._is_changed = True  # the one-time key is used up
        return plaintext

    async def _known(self, key: str) -> list[Session]:
        """Return the sessions with a device; none are remembered of a key that anybody invents."""
        if key not in self._sessions and (stored := await readable(self._state, f"olm/{key}")):
            pickles = json.loads(stored)
            self._sessions[key] = [Session.from_pickle(each, PICKLE_KEY) for each in pickles]
        return self._sessions.get(key, [])

    def _begin(self, key: str, session: Session) -> None:
        self._sessions[key] = [session, *self._sessions.get(key, ())][:MAX_SESSIONS]
        self._usable[key] = session
        self._changed.add(key)

    async def begin(self, devices: Sequence[OtherDevice]) -> None:
        """Begin a session with each device to which this one can't encrypt yet.

        A device whose one-time keys are used up stays without one. The sessions are on Redis' disk
        then, because the devices will write with them.
        """
        missing = [each for each in devices if each.curve25519 not in self._usable]
        if not missing:
            return
        wanted: dict[str, dict[str, str]] = {}
        for each in missing:
            wanted.setdefault(each.user, {})[each.id] = ONE_TIME
        claimed = await self._api.post("keys", "claim", body={"one_time_keys": wanted})
        for each in missing:
            found = claimed.get("one_time_keys", {}).get(each.user, {}).get(each.id, {})
            for key in found.values():
                if not isinstance(key, dict) or not is_signed(key, each.user, each.id, each):
                    log.warning("a key of %s's device %s is not signed by it", each.user, each.id)
                    continue
                try:
                    session = self._account.create_outbound_session(
                        Curve25519PublicKey.from_base64(each.curve25519),
                        Curve25519PublicKey.from_base64(key["key"]),
                    )
                except MALFORMED:
                    log.warning("a key of %s's device %s is malformed", each.user, each.id)
                    continue
                await self._known(each.curve25519)
                self._begin(each.curve25519, session)
        await self.save()
        await self._state.settle()

    def distrust(self, device: OtherDevice) -> None:
        """Encrypt nothing with the session with a device any more: it can't decrypt that."""
        self._usable.pop(device.curve25519, None)

    def encrypted(
        self, to: OtherDevice, kind: str, content: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return an event for a device, encrypted; None if there is no session with it.

        `save()` has to store the new state before the event is sent.
        """
        session = self._usable.get(to.curve25519)
        if session is None:
            return None
        payload = {
            "type": kind,
            "content": content,
            "sender": self.user,
            "sender_device": self.id,
            "keys": {"ed25519": self.ed25519},
            "recipient": to.user,
            "recipient_keys": {"ed25519": to.ed25519},
        }
        number, body = session.encrypt(json_of(payload)).to_parts()
        self._changed.add(to.curve25519)
        message = {"type": number, "body": base64.b64encode(body).decode().rstrip("=")}
        return {
            "algorithm": OLM,
            "sender_key": self.curve25519,
            "ciphertext": {to.curve25519: message},
        }


def canonical(content: Mapping[str, Any]) -> bytes:
    """Return an object as it is signed: as canonical JSON, without its signatures."""
    signed = {name: value for name, value in content.items() if name not in _UNSIGNED}
    return json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


_UNSIGNED = ("signatures", "unsigned")


def is_signed(content: Mapping[str, Any], user: str, device: str, by: OtherDevice) -> bool:
    """Whether an object has the valid signature of a device."""
    try:
        signature = content["signatures"][user][f"ed25519:{device}"]
        key = Ed25519PublicKey.from_base64(by.ed25519)
        key.verify_signature(canonical(content), Ed25519Signature.from_base64(signature))
    except MALFORMED:
        return False
    return True


def unpadded(text: str) -> bytes:
    """Return the bytes of unpadded Base64. Raises `ValueError`."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
