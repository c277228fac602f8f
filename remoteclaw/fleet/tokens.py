"""Operators' tokens for the gateway, and login codes that can be exchanged for a token.

Only digests are stored, so reading Redis gives access to no token or code.
"""

import functools
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import orjson
from pydantic import TypeAdapter

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.host.tokens import digest, is_same, new_operator_token, token_id_of
from remoteclaw.tools.base import Scope

#: The maximum lifetime of a JSON Web Token and one day more, in milliseconds.
MAX_JWT_MS = 367 * 24 * 3600 * 1000
#: The tolerated difference between the clocks of two computers, in milliseconds.
JWT_LEEWAY_MS = 10_000

log = logging.getLogger(__name__)
#: A login code is valid for this long, in seconds: a person follows the link at once.
CODE_S = 600


@dataclass(frozen=True, slots=True)
class TokenView:
    """A token as operators see it."""

    id: str
    name: str
    scope: Scope
    digest: str
    """SHA-256 of the whole token."""
    created_ms: int
    expires_ms: int | None
    is_expired: bool
    agents: tuple[str, ...] | None = None
    """The agents that the token may reach; None for all."""


class Tokens:
    """Creates, reads and revokes tokens."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def create(
        self,
        name: str,
        scope: Scope,
        valid_ms: int | None,
        *,
        agents: Sequence[str] | None = None,
    ) -> tuple[str, TokenView]:
        """Return a new token, which can't be read again, and its stored fields.

        `valid_ms` is None for a token that does not expire. With `agents`, the token reaches only
        these agents.
        """
        token_id, token = new_operator_token()
        now = await self._scripts.now_ms()
        fields = {
            "name": name,
            "scope": scope,
            "digest": digest(token),
            "created_ms": now,
            "expires_ms": None if valid_ms is None else now + valid_ms,
            "agents": None if agents is None else [*agents],
        }
        client = self._scripts.client
        data = orjson.dumps(fields)
        await self._scripts.call(client.hset, keys.TOKENS, token_id, data)
        view = _view(token_id, data, now)
        assert view is not None, "the fields were written above"
        return token, view

    async def list(self) -> list[TokenView]:
        """Return all readable tokens, expired ones included, oldest first."""
        client = self._scripts.client
        stored: dict[bytes, bytes] = await self._scripts.call(client.hgetall, keys.TOKENS)
        now = await self._scripts.now_ms()
        views = [
            _view(token_id.decode(errors="replace"), data, now) for token_id, data in stored.items()
        ]
        return sorted(filter(None, views), key=lambda view: view.created_ms)

    async def revoke(self, token_id: str) -> bool:
        """Revoke a token; return False if no token has this id."""
        return bool(await self._scripts.call(self._scripts.client.hdel, keys.TOKENS, token_id))

    async def revoke_jwt(self, jti: str) -> None:
        """Revoke the JSON Web Tokens with the id `jti`, of any signer."""
        client, now = self._scripts.client, await self._scripts.now_ms()
        await self._scripts.call(client.zremrangebyscore, keys.REVOKED_JWTS, 0, now)
        await self._scripts.call(client.zadd, keys.REVOKED_JWTS, {jti: now + MAX_JWT_MS})

    async def revoke_jwts_of(self, user: str) -> None:
        """Revoke all JSON Web Tokens of a user, KEY/SUB, that were issued until now."""
        client, now = self._scripts.client, await self._scripts.now_ms()
        await self._scripts.call(
            client.zremrangebyscore, keys.REVOKED_JWT_USERS, 0, now - MAX_JWT_MS
        )
        await self._scripts.call(client.zadd, keys.REVOKED_JWT_USERS, {user: now + JWT_LEEWAY_MS})

    async def is_jwt_revoked(self, jti: str | None, *, user: str, issued_ms: int) -> bool:
        """Return whether a JSON Web Token is revoked, by its id `jti` or by its user, KEY/SUB.

        `issued_ms` is the token's `iat`, in milliseconds since 1970.
        """
        client = self._scripts.client
        if jti and await self._scripts.call(client.zscore, keys.REVOKED_JWTS, jti) is not None:
            return True
        until_ms = await self._scripts.call(client.zscore, keys.REVOKED_JWT_USERS, user)
        return until_ms is not None and issued_ms <= until_ms

    async def read(self, token_id: str) -> TokenView | None:
        """Return the token with an id, expired or not; None if it doesn't exist or is damaged."""
        data = await self._scripts.call(self._scripts.client.hget, keys.TOKENS, token_id)
        return _view(token_id, data, await self._scripts.now_ms()) if data else None

    async def find(self, token: str) -> TokenView | None:
        """Return the stored fields of `token`; None if it is invalid or expired."""
        token_id = token_id_of(token)
        view = await self.read(token_id) if token_id else None
        is_valid = view is not None and is_same(view.digest, digest(token)) and not view.is_expired
        return view if is_valid else None


@functools.cache
def _validator() -> TypeAdapter[TokenView]:
    return TypeAdapter(TokenView)


def _view(token_id: str, data: bytes, now: int) -> TokenView | None:
    """Return a token from its stored form; None if that is damaged."""
    try:
        fields = orjson.loads(data)
        expires = fields["expires_ms"]
        is_expired = expires is not None and expires <= now
        return _validator().validate_python({**fields, "id": token_id, "is_expired": is_expired})
    except (KeyError, TypeError, ValueError) as error:
        log.error("the record of token %s is damaged: %s", token_id, type(error).__name__)
        return None


class Logins:
    """Creates and exchanges login codes."""

    def __init__(self, scripts: Scripts, tokens: Tokens) -> None:
        self._scripts = scripts
        self._tokens = tokens

    async def create(self, name: str, scope: Scope, valid_ms: int) -> str:
        """Return a new code for a token of the operator `name` that is valid for `valid_ms`."""
        code = secrets.token_urlsafe(24)
        params = orjson.dumps({"name": name, "scope": scope, "valid_ms": valid_ms})
        client = self._scripts.client
        await self._scripts.call(client.set, keys.login(digest(code)), params, ex=CODE_S)
        return code

    async def exchange(self, code: str) -> tuple[str, TokenView] | None:
        """Return a new token for a code; None if the code is unknown, expired or already used."""
        client = self._scripts.client
        params = await self._scripts.call(client.getdel, keys.login(digest(code)))
        return await self._tokens.create(**orjson.loads(params)) if params else None
