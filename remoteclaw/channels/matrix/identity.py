"""The account's identity: cross-signing keys of its own, which sign this device.

Clients can be set to withhold room keys from devices that their owner has not signed.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from remoteclaw.channels.matrix.api import Homeserver, MatrixRefused
from remoteclaw.channels.matrix.device import Device, canonical, readable, unpadded
from remoteclaw.errors import PlatformRefused
from remoteclaw.protocols import AdapterState

#: The keys: the first signs the others, the second this device, the third people (none).
USAGES = ("master", "self_signing", "user_signing")
MADE_ELSEWHERE = (
    "The device of {user} is not signed, because the account's identity was made in another "
    "client: people whose client gives its keys to signed devices only can't be read. Run "
    "`remoteclaw channel add matrix --recovery-key`, or verify the device {device} there."
)
UNSIGNED = (
    "The device of {user} is not signed, because the homeserver wants the password for that: run "
    "`remoteclaw channel add matrix` again."
)


class Identity:
    """The cross-signing keys of an account."""

    def __init__(self, user: str, keys: Mapping[str, Ed25519PrivateKey]) -> None:
        self.user = user
        self._keys = keys

    @classmethod
    def made(cls, user: str) -> "Identity":
        """Return a new identity."""
        return cls(user, {usage: Ed25519PrivateKey.generate() for usage in USAGES})

    @classmethod
    def loaded(cls, user: str, value: bytes) -> "Identity":
        """Return a stored identity."""
        return cls.of(user, json.loads(value))

    @classmethod
    def of(cls, user: str, seeds: Mapping[str, str]) -> "Identity":
        """Return the identity of seeds, which are unpadded Base64. Raises `ValueError`."""
        load = Ed25519PrivateKey.from_private_bytes
        return cls(user, {usage: load(unpadded(seeds[usage])) for usage in USAGES})

    @property
    def seeds(self) -> dict[str, str]:
        """What the keys are made from, by usage."""
        return {
            usage: base64.b64encode(key.private_bytes_raw()).decode().rstrip("=")
            for usage, key in self._keys.items()
        }

    async def keep(self, state: AdapterState) -> None:
        """Store the identity in the account's state."""
        await state.write("identity", json.dumps(self.seeds).encode(), is_secret=True)
        await state.settle()

    def public(self, usage: str) -> str:
        """Return a public key."""
        raw = self._keys[usage].public_key().public_bytes_raw()
        return base64.b64encode(raw).decode().rstrip("=")

    def signed(self, usage: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object with the signature of a key, besides those that it has."""
        signature = base64.b64encode(self._keys[usage].sign(canonical(content))).decode()
        signatures = {**content.get("signatures", {})}
        of_user = {**signatures.get(self.user, {})}
        of_user[f"ed25519:{self.public(usage)}"] = signature.rstrip("=")
        return {**content, "signatures": {**signatures, self.user: of_user}}

    def key(self, usage: str) -> dict[str, Any]:
        """Return a public key as it is published; the master key signs the others."""
        public = self.public(usage)
        key = {
            "user_id": self.user,
            "usage": [usage],
            "keys": {f"ed25519:{public}": public},
        }
        return key if usage == "master" else self.signed("master", key)


async def sign_device(
    api: Homeserver, state: AdapterState, device: Device, *, password: str = ""
) -> str:
    """Make the account's identity at the first start, and sign this device with it.

    Return why the device is not signed, as a sentence; empty if it is.
    """
    user = device.user
    known = await api.post("keys", "query", body={"device_keys": {user: []}})
    master = known.get("master_keys", {}).get(user)
    stored = await readable(state, "identity")
    if stored is None and master is not None:
        own = known["device_keys"].get(user, {}).get(device.id, {})
        signers = own.get("signatures", {}).get(user, {})
        is_signed = len(signers) > 1  # by the device, and by an identity
        return "" if is_signed else MADE_ELSEWHERE.format(user=user, device=device.id)
    identity = Identity.loaded(user, stored) if stored else Identity.made(user)
    if master is None:
        await identity.keep(state)
        try:
            await _publish(api, identity, device, password)
        except PlatformRefused:
            return UNSIGNED.format(user=user)
    elif f"ed25519:{identity.public('master')}" not in master["keys"]:
        return MADE_ELSEWHERE.format(user=user, device=device.id)
    signed = identity.signed("self_signing", device.keys)
    await api.post("keys", "signatures", "upload", body={user: {device.id: signed}})
    return ""


async def _publish(api: Homeserver, identity: Identity, device: Device, password: str) -> None:
    """Publish the identity; its first time needs no password on most homeservers."""
    body = {f"{usage}_key": identity.key(usage) for usage in USAGES}
    body["master_key"] = device.signed(body["master_key"])
    path = ("keys", "device_signing", "upload")
    try:
        await api.post(*path, body=body)
    except MatrixRefused as refusal:
        if refusal.status != 401 or not password:
            raise
        auth = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": identity.user},
            "password": password,
            "session": refusal.session,
        }
        await api.post(*path, body={**body, "auth": auth})
