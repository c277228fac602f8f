"""Principals: operators with a token of some scope, and agents of sessions; and guests.

The rights of a principal come only from its token, never from other data that it sends.
"""

from dataclasses import dataclass, field

from remoteclaw.tools.base import SCOPES, Scope


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a JSON Web Token that was signed with a key of the configuration."""

    key: str
    """The key's name."""
    secret: str
    """The digest of the secret that signed the token."""
    subject: str
    scope: Scope
    agents: tuple[str, ...] | None
    """The agents that the token is for; None for all agents of the key."""
    issued_s: int
    expires_s: int
    id: str | None
    """The id by which the token can be revoked, if it has one."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A person, or a program of theirs."""

    name: str
    """The name of the token's owner. The owner of the state directory's token file is the user who
    runs the gateway (`own_name`); that of the connector's is "connector"."""
    scope: Scope
    credential: str
    """Identifies the token. A connection is closed when its token is no longer valid."""
    agents: tuple[str, ...] | None = None
    """The agents that the token is for; None for all."""
    claims: "Claims | None" = field(default=None, repr=False)
    """The claims of a JSON Web Token; None for other tokens."""

    @property
    def is_local(self) -> bool:
        """Whether the token is a file of the state directory, which only its user can read."""
        return self.claims is None and "/" not in self.credential

    def has(self, scope: Scope) -> bool:
        """Whether the token's scope is `scope` or includes it."""
        return SCOPES.index(scope) <= SCOPES.index(self.scope)

    def is_for(self, agent: str) -> bool:
        """Whether the token is for an agent."""
        return self.agents is None or agent in self.agents


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent process, identified by the token that it was started with."""

    sid: str
    """The id of the agent's session."""
    digest: str
    """SHA-256 of the token. The session stores the digest of its current agent's token."""


@dataclass(frozen=True, slots=True)
class Guest:
    """A person with a link to one terminal, who sees its screen and calls no method.

    A guest is no `Principal`: nothing that answers calls accepts one.
    """

    credential: str
    """Identifies the link."""
    sid: str
    """The id of the terminal's session."""
    entry: str
    """The id of the entry that opened the terminal."""
    by: str
    """The name of the user who shares the terminal."""
    expires_ms: int


Principal = Operator | Agent
