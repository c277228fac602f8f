"""Tokens: how an agent's is made, and how all of them are kept and compared."""

import hashlib
import hmac
import re
import secrets

__all__ = ["digest", "is_same", "new_agent_token", "sid_of"]

_AGENT_TOKEN = re.compile(r"rca_([0-9a-f]{32})_[0-9a-f]{64}")


def new_agent_token(sid: str) -> str:
    """Return a token for one agent process of a session; the session's id is a part of it."""
    return f"rca_{sid}_{secrets.token_hex(32)}"


def sid_of(token: str) -> str | None:
    """Return the session that an agent's token is for; None if it is no agent's token."""
    found = _AGENT_TOKEN.fullmatch(token)
    return found[1] if found else None


def digest(token: str) -> str:
    """Return how a token is kept and compared: whoever reads that can't use it."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def is_same(one: str, other: str) -> bool:
    """Compare two digests in a time that tells nothing of them."""
    return hmac.compare_digest(one.encode(), other.encode())
