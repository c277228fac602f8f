"""Tokens: how they are made, stored and compared."""

import hashlib
import hmac
import re
import secrets

#: How a token begins. What follows says whose it is, and then comes what is secret of it.
AGENT_PREFIX, OPERATOR_PREFIX = "rca_", "rct_"
_AGENT_TOKEN = re.compile(rf"{AGENT_PREFIX}([0-9a-f]{{32}})_[0-9a-f]{{64}}")
_OPERATOR_TOKEN = re.compile(rf"{OPERATOR_PREFIX}([0-9a-f]{{12}})_[0-9a-f]{{64}}")


def new_agent_token(sid: str) -> str:
    """Return a token for one agent process of a session; the session's id is a part of it."""
    return f"{AGENT_PREFIX}{sid}_{secrets.token_hex(32)}"


def sid_of(token: str) -> str | None:
    """Return the session that an agent's token is for; None if it is no agent's token."""
    found = _AGENT_TOKEN.fullmatch(token)
    return found[1] if found else None


def new_operator_token() -> tuple[str, str]:
    """Return the id of a new token for an operator, and the token, of which the id is a part."""
    token_id = secrets.token_hex(6)
    return token_id, f"{OPERATOR_PREFIX}{token_id}_{secrets.token_hex(32)}"


def token_id_of(token: str) -> str | None:
    """Return the id of an operator's token; None if it is no operator's token."""
    found = _OPERATOR_TOKEN.fullmatch(token)
    return found[1] if found else None


def digest(token: str) -> str:
    """Return the digest under which a token is kept and compared; it can't be used as a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def is_same(one: str, other: str) -> bool:
    """Compare two digests in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())
