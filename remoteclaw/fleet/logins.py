"""Logins to the page: codes that are good once, each for an operator's token of its own."""

import secrets

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.tokens import Tokens, TokenView
from remoteclaw.host.tokens import digest
from remoteclaw.tools.base import Scope

#: How long a code is good, in seconds: a person follows the link at once.
CODE_S = 600


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
