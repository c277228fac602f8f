"""Methods about access: tokens, pairings, and the audit log of terminals."""

from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Method, NoParams, Params, Result, Scope


class TokenFacts(Result):
    id: str
    name: str
    """The name of its owner."""
    scope: Scope
    agents: tuple[str, ...] | None = None
    """The agents that the token is for; absent for all."""
    created_ms: int
    expires_ms: int | None = None
    """The end of its validity, in milliseconds since 1970; absent if it has none."""
    is_expired: bool


class TokensResult(Result):
    tokens: tuple[TokenFacts, ...]
    """The tokens, oldest first, expired ones included."""


class CreateTokenParams(Params):
    name: Annotated[Id, Field(max_length=64)]
    """The name of its owner."""
    scope: Scope
    days: Annotated[int, Field(ge=1, le=3650)] | None = None
    """How many days it is valid; absent until it is revoked."""
    agents: Annotated[tuple[Id, ...], Field(strict=False)] = ()
    """The agents that it is for; empty for all."""


class CreatedToken(Result):
    id: str
    secret: str
    """The token, which can't be read again."""


class RevokeTokenParams(Params):
    token: Id | None = None
    """The id or the name of a token, or the id of a link to a terminal."""
    jti: Id | None = None
    """Or the id of a JSON Web Token of another application."""
    jwt_user: Annotated[str, Field(pattern="^[^/]+/.+$", max_length=512)] | None = None
    """Or, as KEY/SUB, the user all of whose JSON Web Tokens are revoked."""


class Revoked(Result):
    revoked: str
    """The revoked token, as it was named."""


class Pairing(Result):
    account: str
    """The channel and the name of the account, such as telegram/default."""
    state: Literal["asks", "may write"]
    id: str
    """The id of the person or group on the platform."""
    name: str
    """The name, which people choose themselves."""
    code: str | None = None
    """The code with which the request is approved; absent once it is."""
    by: str | None = None
    """The person who approved the request; absent until then."""
    at_ms: int
    """The time of the request, or of the approval, in milliseconds since 1970."""


class PairingsResult(Result):
    pairings: tuple[Pairing, ...]


class ApproveParams(Params):
    code: Id
    """The code that the person or group has received."""


class RemovePairingParams(Params):
    id: Id
    """The id of a person or group on the platform."""
    channel: Id | None = None
    """Only on this channel; else on all."""


class AuditParams(Params):
    limit: Annotated[int, Field(ge=1, le=10_000)] = 100
    """The maximum number of entries."""


class AuditFacts(Result):
    at_ms: int
    """The time, in milliseconds since 1970."""
    who: str
    """The name of the caller's token, or the agent."""
    did: str
    """`open`, `watch`, `take`, `share`, `unshare`, `park`, `end`, or a refused `type`."""
    session: str
    """The session's id; in a refusal, the name that the caller gave."""
    outcome: str
    """`ok`, or the error code of the refusal."""
    is_forced: bool
    """Whether the caller asked to override another user."""
    address: str
    """The caller's IP address, or `this host`."""


class AuditResult(Result):
    entries: tuple[AuditFacts, ...]
    """The entries, newest first."""


METHODS = (
    Method(
        name="tokens.list",
        description="List the operators' tokens, without their secrets. Only for the token file of "
        "the gateway's state directory.",
        params=NoParams,
        result=TokensResult,
        scope="admin",
    ),
    Method(
        name="tokens.create",
        description="Create a token and return it, once. Only for the token file of the gateway's "
        "state directory: other tokens end, and must not leave others behind.",
        params=CreateTokenParams,
        result=CreatedToken,
        scope="admin",
        effect="system",
    ),
    Method(
        name="tokens.revoke",
        description="Revoke a token; connections that use it are closed. Only for the token file "
        "of the gateway's state directory.",
        params=RevokeTokenParams,
        result=Revoked,
        scope="admin",
        effect="system",
        destroys=True,
    ),
    Method(
        name="pairings.list",
        description="List who has access by a pairing code, and who requests access.",
        params=NoParams,
        result=PairingsResult,
        scope="admin",
    ),
    Method(
        name="pairings.approve",
        description="Give access to the person or group that received a pairing code.",
        params=ApproveParams,
        result=Pairing,
        scope="admin",
        effect="system",
    ),
    Method(
        name="pairings.remove",
        description="Revoke the access of a person or group.",
        params=RemovePairingParams,
        result=PairingsResult,
        scope="admin",
        effect="system",
        destroys=True,
    ),
    Method(
        name="audit.list",
        description="List what people did with terminals, and what was refused.",
        params=AuditParams,
        result=AuditResult,
        scope="admin",
    ),
)
