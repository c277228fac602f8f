"""Files: the sizes of pictures, and in encrypted rooms the ciphertext that the homeserver has."""

import base64
import hashlib
import json
import os
import struct
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from remoteclaw.channels.matrix.device import unpadded
from remoteclaw.errors import PlatformRefused

#: The markers of JPEG before the size of the picture.
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
#: The marker before a description that may turn the picture.
_EXIF = 0xE1


def dimensions(content: bytes) -> dict[str, int]:
    """Return the width and height of a picture, in pixels, as `w` and `h`; empty if unknown."""
    try:
        if content.startswith(b"\x89PNG\r\n\x1a\n"):
            width, height = struct.unpack_from(">II", content, 16)
        elif content.startswith(b"GIF8"):
            width, height = struct.unpack_from("<HH", content, 6)
        elif content.startswith(b"\xff\xd8"):
            marker, length = struct.unpack_from(">xBH", content, at := 2)
            while marker not in _FRAMES:
                if marker == _EXIF:
                    return {}
                at += 2 + length
                marker, length = struct.unpack_from(">xBH", content, at)
            height, width = struct.unpack_from(">HH", content, at + 5)
        else:
            return {}
    except struct.error:  # it is damaged
        return {}
    return {"w": width, "h": height}


def sealed(content: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return a file's ciphertext, and its `EncryptedFile` without the address."""
    key, start = os.urandom(32), os.urandom(8) + bytes(8)
    ciphertext = Cipher(AES(key), CTR(start)).encryptor().update(content)
    return ciphertext, {
        "v": "v2",
        "key": {
            "kty": "oct",
            "key_ops": ["encrypt", "decrypt"],
            "alg": "A256CTR",
            "k": base64.urlsafe_b64encode(key).decode().rstrip("="),
            "ext": True,
        },
        "iv": _encoded(start),
        "hashes": {"sha256": _encoded(hashlib.sha256(ciphertext).digest())},
    }


def opened(ciphertext: bytes, file: Mapping[str, Any]) -> bytes:
    """Return a file's content by its `EncryptedFile`. Raises `PlatformRefused` if it is damaged."""
    try:
        key = base64.urlsafe_b64decode(file["key"]["k"] + "=" * (-len(file["key"]["k"]) % 4))
        start, expected = unpadded(file["iv"]), unpadded(file["hashes"]["sha256"])
        if hashlib.sha256(ciphertext).digest() != expected:
            raise PlatformRefused("The file is damaged: its content is not what was sent.")
        return Cipher(AES(key), CTR(start)).decryptor().update(ciphertext)
    except (KeyError, TypeError, ValueError):
        raise PlatformRefused("The file can't be decrypted: its keys are malformed.") from None


def address_and_keys(id_: str) -> tuple[str, Mapping[str, Any] | None]:
    """Return a file's address by its id, and its keys if it is encrypted."""
    if not id_.startswith("{"):
        return id_, None
    file = json.loads(id_)
    return str(file["url"]), file


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode().rstrip("=")
