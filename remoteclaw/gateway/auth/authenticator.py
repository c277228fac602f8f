"""Authentication: returns the principal of a token.

There are four kinds of tokens: those in the state directory's token files, operators' tokens, the
tokens of agent processes, and JSON Web Tokens signed by another application. All but the last are
compared by digest. Nothing else that a client sends about itself is trusted.
"""

from collections.abc import Callable, Sequence

from remoteclaw.channels.web.settings import own_name
from remoteclaw.config.model import Config
from remoteclaw.fleet.tokens import Tokens, TokenView
from remoteclaw.gateway.auth.jwt import Jwt, looks_like_jwt
from remoteclaw.gateway.auth.principals import Agent, Operator, Principal
from remoteclaw.gateway.auth.token_file import TokenFile
from remoteclaw.gateway.dispatch import Dispatcher
from remoteclaw.host.tokens import AGENT_PREFIX, OPERATOR_PREFIX, digest, is_same, sid_of

#: The maximum length of a token of any kind.
MAX_TOKEN_CHARS = 4096


class Authenticator:
    """Looks up tokens, without a cache, so that a revoked token stops working at once."""

    def __init__(
        self,
        tokens: Tokens,
        dispatcher: Dispatcher,
        files: Sequence[TokenFile],
        config: Callable[[], Config],
    ) -> None:
        self._tokens = tokens
        self._dispatcher = dispatcher
        self._config = config
        self._jwt = Jwt(tokens, lambda: config().gateway)
        self.files = files

    async def principal(self, token: str) -> Principal | None:
        """Return the principal that `token` authenticates; None if it is not valid.

        Raises `RedisUnavailable` or `RedisRefused`.
        """
        if not token or len(token) > MAX_TOKEN_CHARS:
            return None
        if looks_like_jwt(token):
            return await self._jwt.principal(token)
        if token.startswith(AGENT_PREFIX):
            sid = sid_of(token)
            return await self._dispatcher.agent_of_token(sid, digest(token)) if sid else None
        if token.startswith(OPERATOR_PREFIX):
            view = await self._tokens.find(token)
            return _operator(view) if view else None
        return self._operator_of_file(digest(token))

    async def is_valid(self, principal: Principal) -> bool:
        """Whether a principal's token still grants the same rights.

        Raises `RedisUnavailable` or `RedisRefused`.
        """
        if isinstance(principal, Agent):
            return (
                await self._dispatcher.agent_of_token(principal.sid, principal.digest) == principal
            )
        if principal.claims is not None:
            return await self._jwt.operator_of(principal.claims) == principal
        token_id, _, _ = principal.credential.rpartition("/")
        if token_id:
            view = await self._tokens.read(token_id)
            return view is not None and not view.is_expired and _operator(view) == principal
        return self._operator_of_file(principal.credential) == principal

    def _operator_of_file(self, token_digest: str) -> Operator | None:
        """Return the operator whose token file has the token with this digest; None if none has."""
        for file in self.files:
            file_digest = file.digest()
            if file_digest is not None and is_same(file_digest, token_digest):
                name = own_name(self._config()) if file.scope == "admin" else file.holder
                return Operator(name, file.scope, token_digest)
        return None


def _operator(view: TokenView) -> Operator:
    return Operator(view.name, view.scope, f"{view.id}/{view.digest}", view.agents)
