"""Web Push: what is sent to a browser is encrypted for it, and signed as ours.

RFC 8291 says how a message is encrypted, so that the browser's push service can't read it, and RFC
8292 how the service knows that it comes from the server that the browser has subscribed to (VAPID).
"""

import base64
import hashlib
import os
from urllib.parse import urlsplit

import orjson
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

#: How many keys the curve P-256 has: a private one is a number from 1 to below it.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
#: The size of a record, in bytes: a message is one, and services take no longer ones.
_RECORD = 4096
#: How long a signature is good, in seconds: a day is the most that services take.
SIGNED_S = 12 * 3600


class ServerKey:
    """The key by which push services know a gateway."""

    def __init__(self, secret: str) -> None:
        """`secret` is a random word: the same one is the same key."""
        number = int.from_bytes(hashlib.sha256(secret.encode()).digest())
        self._key = ec.derive_private_key(number % (_ORDER - 1) + 1, ec.SECP256R1())
        self.public = _text(_point(self._key.public_key()))

    def authorization(self, endpoint: str, *, contact: str, now_s: float) -> str:
        """Return the header `Authorization` for an endpoint. `contact` is an https: address."""
        service = urlsplit(endpoint)
        claims = {
            "aud": f"{service.scheme}://{service.netloc}",
            "exp": int(now_s) + SIGNED_S,
            "sub": contact,
        }
        parts = ({"typ": "JWT", "alg": "ES256"}, claims)
        text = ".".join(_text(orjson.dumps(part)) for part in parts)
        numbers = decode_dss_signature(self._key.sign(text.encode(), ec.ECDSA(SHA256())))
        signature = _text(b"".join(number.to_bytes(32) for number in numbers))
        return f"vapid t={text}.{signature}, k={self.public}"


def are_keys(public_key: str, auth: str) -> bool:
    """Whether a browser's keys are such as a message can be encrypted for."""
    try:
        sealed(b"", public_key, auth)
    except ValueError:
        return False
    return len(_bytes(auth)) == 16


def sealed(
    content: bytes,
    public_key: str,
    auth: str,
    *,
    own: ec.EllipticCurvePrivateKey | None = None,
    salt: bytes | None = None,
) -> bytes:
    """Return a message as it is sent to a browser with these keys, which alone can read it.

    Raises ValueError if they are none. `own` and `salt` are new for each message.
    """
    own, salt = own or ec.generate_private_key(ec.SECP256R1()), salt or os.urandom(16)
    theirs, ours = _bytes(public_key), _point(own.public_key())
    shared = own.exchange(
        ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), theirs)
    )
    secret = _derived(shared, _bytes(auth), b"WebPush: info\0" + theirs + ours, 32)
    key = _derived(secret, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derived(secret, salt, b"Content-Encoding: nonce\0", 12)
    head = salt + _RECORD.to_bytes(4) + bytes((len(ours),)) + ours
    return head + AESGCM(key).encrypt(nonce, content + b"\2", None)  # 2: the last record


def _derived(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)


def _point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
