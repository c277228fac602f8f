"""Principals: an operator with a token and its scopes, or the agent of one session.

What a principal may do comes from its token alone, never from what it says of itself.
"""

from dataclasses import dataclass, field

from remoteclaw.tools.base import SCOPES, Scope


@dataclass(frozen=True, slots=True)
class Claims:
    """What a JSON Web Token says that was signed with a key of the configuration."""

    key: str
    """The key's name."""
    secret: str
    """The digest of the secret that it was signed with."""
    subject: str
    scope: Scope
    agents: tuple[str, ...] | None
    issued_s: int
    expires_s: int
    id: str | None
    """By which it can be revoked."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A person, or a program of theirs."""

    name: str
    """What the token is called; "gateway" for the one of the state directory."""
    scope: Scope
    credential: str
    """Identifies the token: a connection lives no longer than its own."""
    agents: tuple[str, ...] | None = None
    """The agents that the token is for; None for all."""
    claims: "Claims | None" = field(default=None, repr=False)
    """What a JSON Web Token says, where it is one."""

    @property
    def known_as(self) -> str:
        """What others are told who it was: a token of the state directory is nobody's own."""
        return self.name if "/" in self.credential else "the operator"

    def has(self, scope: Scope) -> bool:
        """Whether the token's scope is this one or includes it."""
        return SCOPES.index(scope) <= SCOPES.index(self.scope)

    def is_for(self, agent: str) -> bool:
        """Whether the token is for an agent."""
        return self.agents is None or agent in self.agents


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent process, by the token that it was started with."""

    sid: str
    """The session that it works for."""
    digest: str
    """SHA-256 of the token: the session names the one that counts."""


Principal = Operator | Agent
