"""Tokens of agents, operators and guests: their creation, parsing, digests and comparison."""

import hashlib
import hmac
import re
import secrets

#: The prefixes of tokens. The owner's id follows the prefix, and the secret follows the id.
AGENT_PREFIX, OPERATOR_PREFIX, GUEST_PREFIX = "rca_", "rct_", "rcg_"
_AGENT_TOKEN = re.compile(rf"{AGENT_PREFIX}([0-9a-f]{{32}})_[0-9a-f]{{64}}")
_OPERATOR_TOKEN = re.compile(rf"{OPERATOR_PREFIX}([0-9a-f]{{12}})_[0-9a-f]{{64}}")
_GUEST_TOKEN = re.compile(rf"{GUEST_PREFIX}([0-9a-f]{{12}})_[0-9a-f]{{64}}")


def new_agent_token(sid: str) -> str:
    """Return a new token for an agent process of a session; it contains the session's id."""
    return f"{AGENT_PREFIX}{sid}_{secrets.token_hex(32)}"


def sid_of(token: str) -> str | None:
    """Return the id of the session in an agent's token; None if it is no agent's token."""
    match = _AGENT_TOKEN.fullmatch(token)
    return match[1] if match else None


def new_operator_token() -> tuple[str, str]:
    """Return the id of a new token for an operator, and the token, which contains the id."""
    token_id = secrets.token_hex(6)
    return token_id, f"{OPERATOR_PREFIX}{token_id}_{secrets.token_hex(32)}"


def token_id_of(token: str) -> str | None:
    """Return the id in an operator's token; None if it is no operator's token."""
    match = _OPERATOR_TOKEN.fullmatch(token)
    return match[1] if match else None


def new_guest_token() -> tuple[str, str]:
    """Return the id of a new link to a terminal, and its token, which contains the id."""
    link_id = secrets.token_hex(6)
    return link_id, f"{GUEST_PREFIX}{link_id}_{secrets.token_hex(32)}"


def link_id_of(token: str) -> str | None:
    """Return the id in a guest's token; None if it is no guest's token."""
    match = _GUEST_TOKEN.fullmatch(token)
    return match[1] if match else None


def digest(token: str) -> str:
    """Return the digest of a token, which is stored and compared in place of the token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def is_same(one: str, other: str) -> bool:
    """Whether two digests are equal, compared in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())
