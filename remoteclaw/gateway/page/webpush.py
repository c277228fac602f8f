"""Web Push: encrypts messages for a browser, and signs requests to its push service.

RFC 8291 defines the encryption, which the push service can't read. RFC 8292 (VAPID) defines the
signature, which shows the service that the browser has subscribed to this server.
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

#: The order of the curve P-256: a private key is a number from 1 to `_ORDER` - 1.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
#: The size of a record, in bytes. A message is one record, and services accept no larger ones.
_RECORD_BYTES = 4096
#: How long a signature is valid, in seconds; services accept at most a day.
SIGNED_S = 12 * 3600


class ServerKey:
    """The key pair that identifies a gateway to push services."""

    def __init__(self, secret: str) -> None:
        """The key pair is derived from `secret`, a random text."""
        number = int.from_bytes(hashlib.sha256(secret.encode()).digest())
        self._key = ec.derive_private_key(number % (_ORDER - 1) + 1, ec.SECP256R1())
        self.public = _text(_point(self._key.public_key()))

    def authorization(self, endpoint: str, *, contact: str, now_s: float) -> str:
        """Return the header `Authorization` for an endpoint.

        `contact` is an https: address, under which the service can contact the operator.
        """
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


def are_valid_keys(public_key: str, auth: str) -> bool:
    """Return whether messages can be encrypted for a browser's keys."""
    try:
        encrypt_message(b"", public_key, auth)
    except ValueError:
        return False
    return len(_bytes(auth)) == 16


def encrypt_message(
    content: bytes,
    public_key: str,
    auth: str,
    *,
    own: ec.EllipticCurvePrivateKey | None = None,
    salt: bytes | None = None,
) -> bytes:
    """Return `content` encrypted for the browser with these keys.

    `own` and `salt` are generated if they are None. Raises `ValueError` for invalid keys.
    """
    own, salt = own or ec.generate_private_key(ec.SECP256R1()), salt or os.urandom(16)
    theirs, ours = _bytes(public_key), _point(own.public_key())
    shared = own.exchange(
        ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), theirs)
    )
    secret = _derived(shared, _bytes(auth), b"WebPush: info\0" + theirs + ours, 32)
    key = _derived(secret, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derived(secret, salt, b"Content-Encoding: nonce\0", 12)
    head = salt + _RECORD_BYTES.to_bytes(4) + bytes((len(ours),)) + ours
    return head + AESGCM(key).encrypt(nonce, content + b"\2", None)  # 2 marks the last record


def _derived(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)


def _point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
