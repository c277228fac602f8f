"""Signatures of requests, of both directions.

A request has its time and its signature in headers: HMAC-SHA256 of `TIME.BODY` with the shared
token, in hexadecimal digits behind `v1=`.
"""

import hashlib
import hmac
from collections.abc import Mapping

TIMESTAMP, SIGNATURE = "X-RemoteClaw-Timestamp", "X-RemoteClaw-Signature"
#: How old a request may be, and how far ahead a sender's clock, in seconds.
WINDOW_S = 300


def signed_headers(token: str, body: bytes, *, at_s: int) -> dict[str, str]:
    """Return the headers of a request that is sent at a time, in seconds since 1970."""
    return {TIMESTAMP: str(at_s), SIGNATURE: _signature(token, body, str(at_s))}


def is_signed(headers: Mapping[str, str], token: str, body: bytes, *, now_s: float) -> bool:
    """Whether a request was signed with a token, and not long ago."""
    at, given = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
    if not (at.isascii() and at.isdecimal() and len(at) <= 12):
        return False
    if abs(now_s - int(at)) > WINDOW_S:
        return False
    return hmac.compare_digest(given.encode(), _signature(token, body, at).encode())


def _signature(token: str, body: bytes, at: str) -> str:
    signed = b".".join((at.encode(), body))
    return "v1=" + hmac.new(token.encode(), signed, hashlib.sha256).hexdigest()
