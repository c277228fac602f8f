"""Who calls: an operator with a token and its scopes, or the agent of one session.

What a principal may do comes from its token alone, never from what it says of itself.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from remoteclaw.contract import Scope
from remoteclaw.messages import SessionKey

__all__ = [
    "AGENT_PREFIX",
    "Agent",
    "Operator",
    "Principal",
    "digest",
    "is_same",
    "new_agent_token",
    "sid_of",
]

#: How the token of an agent process begins; the session's id follows.
AGENT_PREFIX = "rca_"
_AGENT_TOKEN = re.compile(rf"{AGENT_PREFIX}([0-9a-f]{{32}})_[0-9a-f]{{64}}")

#: What each scope includes.
_INCLUDES: dict[Scope, frozenset[Scope]] = {
    "read": frozenset(("read",)),
    "write": frozenset(("read", "write")),
    "admin": frozenset(("read", "write", "admin")),
}


@dataclass(frozen=True, slots=True)
class Operator:
    """A person, or a program of theirs."""

    name: str
    """What the token is called; "gateway" for the one of the state directory."""
    scope: Scope
    credential: str
    """Tells tokens apart: a connection lives no longer than its own."""

    def has(self, scope: Scope) -> bool:
        """Whether the token's scope is this one or includes it."""
        return scope in _INCLUDES[self.scope]


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent process, by the token that it was started with."""

    sid: str
    """The session that it works for."""
    digest: str
    """SHA-256 of the token: the session names the one that counts."""


Principal = Operator | Agent


def digest(token: str) -> str:
    """Return how a token is kept and compared: whoever reads that can't use it."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def is_same(one: str, other: str) -> bool:
    """Compare two digests in a time that tells nothing of them."""
    return hmac.compare_digest(one.encode(), other.encode())


def new_agent_token(session: SessionKey) -> str:
    """Return a token for one agent process of a session."""
    return f"{AGENT_PREFIX}{session.sid}_{secrets.token_hex(32)}"


def sid_of(token: str) -> str | None:
    """Return the session that an agent's token is for; None if it is no agent's token."""
    found = _AGENT_TOKEN.fullmatch(token)
    return found[1] if found else None
