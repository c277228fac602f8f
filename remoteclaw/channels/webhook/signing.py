"""Signs and verifies webhook requests, in both directions.

Two headers of a request hold its time, in seconds since 1970, and its signature: `v1=` and the
HMAC-SHA256 of `TIME.BODY` with the shared token, in hexadecimal digits.
"""

import hashlib
import hmac
from collections.abc import Mapping

TIMESTAMP, SIGNATURE = "X-RemoteClaw-Timestamp", "X-RemoteClaw-Signature"
#: A request's time may differ from the receiver's clock by this much, in seconds.
WINDOW_S = 300


def signed_headers(token: str, body: bytes, *, at_s: int) -> dict[str, str]:
    """Return the signature headers of a request sent at `at_s`, in seconds since 1970."""
    return {TIMESTAMP: str(at_s), SIGNATURE: _signature(token, body, str(at_s))}


def is_signed(headers: Mapping[str, str], token: str, body: bytes, *, now_s: float) -> bool:
    """Whether `headers` have a valid signature of `body` with `token` from the last minutes."""
    at, given = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
    if not (at.isascii() and at.isdecimal() and len(at) <= 12):
        return False
    if abs(now_s - int(at)) > WINDOW_S:
        return False
    return hmac.compare_digest(given.encode(), _signature(token, body, at).encode())


def _signature(token: str, body: bytes, at: str) -> str:
    signed = b".".join((at.encode(), body))
    return "v1=" + hmac.new(token.encode(), signed, hashlib.sha256).hexdigest()
