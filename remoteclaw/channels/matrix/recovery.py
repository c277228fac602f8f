"""The recovery key of an account: it opens the keys of the account's identity.

Secret storage is that of the specification: the homeserver keeps the encrypted keys as data of the
account. So a recovery key of Element opens an identity here, and one that is made here works there.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from remoteclaw.channels.matrix.api import Homeserver, MatrixRefused
from remoteclaw.channels.matrix.device import unpadded
from remoteclaw.channels.matrix.identity import USAGES, Identity
from remoteclaw.errors import ConfigError

_STORAGE, _ALGORITHM = "m.secret_storage", "m.secret_storage.v1.aes-hmac-sha2"
#: How a recovery key begins, and the digits in which it is written.
_PREFIX, _BASE58 = b"\x8b\x01", "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

NO_RECOVERY = (
    "The account has no recovery key: set up recovery in the client that made its identity (in "
    "Element: Settings, Encryption), and use the key that it shows."
)
WRONG_KEY = "This is not the account's recovery key, which has 48 letters and digits."
OUTDATED = (
    "The recovery key opens an identity that the account has no more: make another one in the "
    "client that made the present identity (in Element: Settings, Encryption)."
)


class Recovery:
    """The secret storage of an account."""

    def __init__(self, api: Homeserver, user: str) -> None:
        self._api, self._user = api, user

    async def has_key(self) -> bool:
        """Whether some client has made a recovery key for the account."""
        return bool(await self._data(f"{_STORAGE}.default_key"))

    async def make_key(self, identity: Identity) -> str:
        """Store an identity, encrypted; return the recovery key, which is stored nowhere.

        Only for an account without one, because the earlier one may open more.
        """
        key, name = secrets.token_bytes(32), secrets.token_hex(16)
        check = _encrypted(key, "", bytes(32))
        about = {"algorithm": _ALGORITHM, "iv": check["iv"], "mac": check["mac"]}
        await self._set_data(f"{_STORAGE}.key.{name}", about)
        for usage, seed in identity.seeds.items():
            secret = _encrypted(key, f"m.cross_signing.{usage}", seed.encode())
            await self._set_data(f"m.cross_signing.{usage}", {"encrypted": {name: secret}})
        await self._set_data(f"{_STORAGE}.default_key", {"key": name})
        return recovery_key(key)

    async def identity(self, text: str) -> Identity:
        """Return the account's identity, which a recovery key opens.

        Raises `ConfigError` if the key is wrong, or opens no identity of the account.
        """
        key = key_of(text)
        name = (await self._data(f"{_STORAGE}.default_key")).get("key")
        about = await self._data(f"{_STORAGE}.key.{name}") if name else {}
        if about.get("algorithm") != _ALGORITHM:
            raise ConfigError(NO_RECOVERY)
        if "mac" in about:
            check = _encrypted(key, "", bytes(32), iv=_bytes(str(about.get("iv"))))
            if check["mac"] != str(about["mac"]).rstrip("="):
                raise ConfigError(WRONG_KEY)
        seeds = {}
        for usage in USAGES:
            kind = f"m.cross_signing.{usage}"
            secret = (await self._data(kind)).get("encrypted", {}).get(name)
            if not secret:
                raise ConfigError(NO_RECOVERY)
            seeds[usage] = _decrypted(key, kind, secret).decode(errors="replace").rstrip("=")
        try:
            identity = Identity.of(self._user, seeds)
        except ValueError:
            raise ConfigError(OUTDATED) from None
        body: dict[str, Any] = {"device_keys": {self._user: []}}
        known = await self._api.post("keys", "query", body=body)
        for usage in USAGES:
            public = known.get(f"{usage}_keys", {}).get(self._user, {}).get("keys", {})
            if f"ed25519:{identity.public(usage)}" not in public:
                raise ConfigError(OUTDATED)
        return identity

    async def _data(self, kind: str) -> dict[str, Any]:
        """Return data that the homeserver keeps for the account; empty if there is none."""
        try:
            return await self._api.get("user", self._user, "account_data", kind)
        except MatrixRefused as refused:
            if refused.code != "M_NOT_FOUND":
                raise
            return {}

    async def _set_data(self, kind: str, content: Mapping[str, Any]) -> None:
        await self._api.put("user", self._user, "account_data", kind, body=content)


def recovery_key(key: bytes) -> str:
    """Return a key as people write it down: in groups of four characters."""
    content = _PREFIX + key
    number = int.from_bytes(content + bytes([_parity(content)]))
    text = ""
    while number:
        number, digit = divmod(number, 58)
        text = _BASE58[digit] + text
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def key_of(text: str) -> bytes:
    """Return the key that a person has written. Raises `ConfigError` if it is none."""
    number = 0
    try:
        for letter in "".join(text.split()):
            number = number * 58 + _BASE58.index(letter)
        content = number.to_bytes(len(_PREFIX) + 33)
    except (ValueError, OverflowError):
        raise ConfigError(WRONG_KEY) from None
    if not content.startswith(_PREFIX) or _parity(content):
        raise ConfigError(WRONG_KEY)
    return content[len(_PREFIX) : -1]


def _parity(content: bytes) -> int:
    parity = 0
    for byte in content:
        parity ^= byte
    return parity


def _derived(key: bytes, name: str) -> tuple[bytes, bytes]:
    """Return the keys that encrypt and that authenticate a secret."""
    both = HKDF(algorithm=SHA256(), length=64, salt=bytes(32), info=name.encode()).derive(key)
    return both[:32], both[32:]


def _encrypted(key: bytes, name: str, content: bytes, *, iv: bytes = b"") -> dict[str, str]:
    """Return a secret in the form of the specification."""
    if not iv:
        iv = secrets.token_bytes(16)
        iv = iv[:8] + bytes([iv[8] & 0x7F]) + iv[9:]  # some implementations count with 63 bits
    aes, mac = _derived(key, name)
    encryptor = Cipher(AES(aes), CTR(iv)).encryptor()
    hidden = encryptor.update(content) + encryptor.finalize()
    return {
        "iv": _base64(iv),
        "ciphertext": _base64(hidden),
        "mac": _base64(hmac.digest(mac, hidden, hashlib.sha256)),
    }


def _decrypted(key: bytes, name: str, secret: Mapping[str, str]) -> bytes:
    """Return the content of a secret. Raises `ConfigError` if the key does not open it."""
    try:
        aes, mac = _derived(key, name)
        iv, hidden, tag = (_bytes(secret[part]) for part in ("iv", "ciphertext", "mac"))
        if not hmac.compare_digest(hmac.digest(mac, hidden, hashlib.sha256), tag):
            raise ConfigError(WRONG_KEY)
        decryptor = Cipher(AES(aes), CTR(iv)).decryptor()
        return decryptor.update(hidden) + decryptor.finalize()
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError(WRONG_KEY) from None


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return unpadded(text.rstrip("="))
