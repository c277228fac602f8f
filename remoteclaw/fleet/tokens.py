"""Operators' tokens for the gateway (scope, lifetime, digest), and codes that are good for one.

Only their digests are kept, and a digest from Redis is no token.
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

#: The longest time that a JSON Web Token can be valid, in milliseconds, and a day more.
LONGEST_JWT_MS = 367 * 24 * 3600 * 1000
#: How much the clocks of two computers may differ, in milliseconds.
JWT_LEEWAY_MS = 10_000

log = logging.getLogger(__name__)
#: How long a code is good, in seconds: a person follows the link at once.
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
    """The tokens that were given out, by their ids."""

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
        """Return a new token, which can't be read again, and what is kept of it.

        With `agents`, it is for these alone.
        """
        token_id, token = new_operator_token()
        now = await self._scripts.now_ms()
        kept = {
            "name": name,
            "scope": scope,
            "digest": digest(token),
            "created_ms": now,
            "expires_ms": None if valid_ms is None else now + valid_ms,
            "agents": None if agents is None else [*agents],
        }
        client = self._scripts.client
        await self._scripts.call(client.hset, keys.TOKENS, token_id, orjson.dumps(kept))
        view = _view(token_id, orjson.dumps(kept), now)
        assert view is not None, "it was made here"
        return token, view

    async def list(self) -> list[TokenView]:
        """Return all there are, oldest first, those included that are valid no more.

        A damaged one is none.
        """
        client = self._scripts.client
        found: dict[bytes, bytes] = await self._scripts.call(client.hgetall, keys.TOKENS)
        now = await self._scripts.now_ms()
        views = [
            _view(token_id.decode(errors="replace"), data, now) for token_id, data in found.items()
        ]
        return sorted(filter(None, views), key=lambda view: view.created_ms)

    async def revoke(self, token_id: str) -> bool:
        """Make a token valid no more; False if there is none with this id."""
        return bool(await self._scripts.call(self._scripts.client.hdel, keys.TOKENS, token_id))

    async def revoke_jwt(self, jti: str) -> None:
        """Make the JSON Web Tokens with an id valid no more, whoever has signed them."""
        client, now = self._scripts.client, await self._scripts.now_ms()
        await self._scripts.call(client.zremrangebyscore, keys.JWT_GONE, 0, now)
        await self._scripts.call(client.zadd, keys.JWT_GONE, {jti: now + LONGEST_JWT_MS})

    async def revoke_jwts_of(self, user: str) -> None:
        """Make all JSON Web Tokens of a user, as KEY/SUB, valid no more that were signed by now."""
        client, now = self._scripts.client, await self._scripts.now_ms()
        await self._scripts.call(client.zremrangebyscore, keys.JWT_USERS, 0, now - LONGEST_JWT_MS)
        await self._scripts.call(client.zadd, keys.JWT_USERS, {user: now + JWT_LEEWAY_MS})

    async def is_jwt_revoked(self, jti: str | None, *, user: str, issued_ms: int) -> bool:
        """Return whether a JSON Web Token is revoked, by its id or with all of its user, KEY/SUB.

        `issued_ms` is its `iat`, in milliseconds since 1970.
        """
        client = self._scripts.client
        if jti and await self._scripts.call(client.zscore, keys.JWT_GONE, jti) is not None:
            return True
        until_ms = await self._scripts.call(client.zscore, keys.JWT_USERS, user)
        return until_ms is not None and issued_ms <= until_ms

    async def read(self, token_id: str) -> TokenView | None:
        """Return what is kept of a token; None if there is none with this id."""
        data = await self._scripts.call(self._scripts.client.hget, keys.TOKENS, token_id)
        return _view(token_id, data, await self._scripts.now_ms()) if data else None

    async def find(self, token: str) -> TokenView | None:
        """Return whose token this is; None unless it is valid, as a whole, now."""
        token_id = token_id_of(token)
        view = await self.read(token_id) if token_id else None
        is_valid = view is not None and is_same(view.digest, digest(token)) and not view.is_expired
        return view if is_valid else None


@functools.cache
def _shape() -> TypeAdapter[TokenView]:
    return TypeAdapter(TokenView)


def _view(token_id: str, data: bytes, now: int) -> TokenView | None:
    """Return what is kept of a token; None if it is damaged: then it is no token."""
    try:
        kept = orjson.loads(data)
        expires = kept["expires_ms"]
        is_expired = expires is not None and expires <= now
        return _shape().validate_python({**kept, "id": token_id, "is_expired": is_expired})
    except (KeyError, TypeError, ValueError) as error:
        log.error("the record of token %s is damaged: %s", token_id, type(error).__name__)
        return None


class Logins:
    """Codes that were printed, by their digests: one that is read from Redis opens nothing."""

    def __init__(self, scripts: Scripts, tokens: Tokens) -> None:
        self._scripts = scripts
        self._tokens = tokens

    async def create(self, name: str, scope: Scope, valid_ms: int) -> str:
        """Return a code; who has it becomes the operator `name`, for so long."""
        code = secrets.token_urlsafe(24)
        kept = orjson.dumps({"name": name, "scope": scope, "valid_ms": valid_ms})
        client = self._scripts.client
        await self._scripts.call(client.set, keys.login(digest(code)), kept, ex=CODE_S)
        return code

    async def exchange(self, code: str) -> tuple[str, TokenView] | None:
        """Return a new token for a code; None if it is not known, or too old, or was used."""
        client = self._scripts.client
        kept = await self._scripts.call(client.getdel, keys.login(digest(code)))
        return await self._tokens.create(**orjson.loads(kept)) if kept else None
