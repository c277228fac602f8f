"""Authentication: returns the principal of a token.

There are four kinds of tokens: those in the state directory's token files, operators' tokens, the
tokens of agent processes, and JSON Web Tokens signed by another application. All but the last are
compared by digest. Nothing else that a client sends about itself is trusted.

The tokens of guests are a fifth kind. `principal()` knows none of them, so a guest can call nothing
through any door; only the door of guests asks for `guest()`.
"""

from collections.abc import Callable, Sequence

from remoteclaw.channels.web.settings import own_name
from remoteclaw.config.model import Config
from remoteclaw.fleet.terminals.guest_links import GuestLink, GuestLinks
from remoteclaw.fleet.tokens import Tokens, TokenView
from remoteclaw.gateway.auth.jwt import Jwt, looks_like_jwt
from remoteclaw.gateway.auth.principals import Agent, Guest, Operator, Principal
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
        links: GuestLinks,
        dispatcher: Dispatcher,
        files: Sequence[TokenFile],
        config: Callable[[], Config],
    ) -> None:
        self._tokens = tokens
        self._links = links
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

    async def guest(self, token: str) -> Guest | None:
        """Return the guest of a link's token; None if it is not valid.

        A link is valid while it has neither expired nor been revoked, and while the user who made
        it may still type in terminals. Raises `RedisUnavailable` or `RedisRefused`.
        """
        link = await self._links.find(token)
        return _guest(link) if link and await self._may_share(link) else None

    async def _may_share(self, link: GuestLink) -> bool:
        """Whether the token of the user who made a link still has the scope `terminal`."""
        token_id, _, token_digest = link.credential.rpartition("/")
        if not token_id:
            user = self._operator_of_file(link.credential)
        else:
            view = await self._tokens.read(token_id)
            is_same_token = view and not view.is_expired and is_same(view.digest, token_digest)
            user = _operator(view) if view and is_same_token else None
        return user is not None and user.has("terminal")

    async def is_valid(self, principal: Principal | Guest) -> bool:
        """Whether a principal's or a guest's token still grants the same rights.

        Raises `RedisUnavailable` or `RedisRefused`.
        """
        if isinstance(principal, Guest):
            link = await self._links.read(principal.credential)
            return link is not None and _guest(link) == principal and await self._may_share(link)
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


def _guest(link: GuestLink) -> Guest:
    return Guest(link.id, link.sid, link.entry, link.by, link.expires_ms)


def _operator(view: TokenView) -> Operator:
    return Operator(view.name, view.scope, f"{view.id}/{view.digest}", view.agents)
