"""Authentication: a token becomes a principal.

There are four kinds of token: the gateway's own, operators', those of agent processes, and those
that another cockpit has signed. Each but the last is compared as a whole, by digest. What a client
says of itself counts for nothing.
"""

from collections.abc import Callable, Sequence

from remoteclaw.config.model import GatewayConfig
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.tokens import TokenView
from remoteclaw.gateway.dispatch import Dispatcher
from remoteclaw.gateway.jwt import Jwt, looks_signed
from remoteclaw.gateway.principals import Agent, Operator, Principal
from remoteclaw.gateway.token_file import TokenFile
from remoteclaw.host.tokens import AGENT_PREFIX, OPERATOR_PREFIX, digest, is_same, sid_of

#: What is longer is no token of any kind.
LONGEST = 4096


class Authenticator:
    """Looks up tokens; nothing is cached, so a revoked one counts no more at once."""

    def __init__(
        self,
        fleet: Fleet,
        dispatcher: Dispatcher,
        files: Sequence[TokenFile],
        config: Callable[[], GatewayConfig],
    ) -> None:
        self._fleet = fleet
        self._dispatcher = dispatcher
        self._jwt = Jwt(fleet.tokens, config)
        self.files = files

    async def principal(self, token: str) -> Principal | None:
        """Return whose token it is; None if it is not valid.

        Raises `RedisUnavailable` or `RedisRefused`.
        """
        if not token or len(token) > LONGEST:
            return None
        if looks_signed(token):
            return await self._jwt.principal(token)
        if token.startswith(AGENT_PREFIX):
            sid = sid_of(token)
            return await self._dispatcher.agent_of_token(sid, digest(token)) if sid else None
        if token.startswith(OPERATOR_PREFIX):
            view = await self._fleet.tokens.find(token)
            return _operator(view) if view else None
        return self._own(digest(token))

    async def is_valid(self, principal: Principal) -> bool:
        """Whether a principal's token still gives the same rights. Raises as `principal()` does."""
        if isinstance(principal, Agent):
            return (
                await self._dispatcher.agent_of_token(principal.sid, principal.digest) == principal
            )
        if principal.claims is not None:
            return await self._jwt.holder(principal.claims) == principal
        token_id, _, _ = principal.credential.rpartition("/")
        if token_id:
            view = await self._fleet.tokens.read(token_id)
            return view is not None and not view.is_expired and _operator(view) == principal
        return self._own(principal.credential) == principal

    def _own(self, given: str) -> Operator | None:
        """Return the operator whose token file has a token with a digest."""
        for file in self.files:
            own = file.digest()
            if own is not None and is_same(own, given):
                return Operator(file.holder, file.scope, given)
        return None


def _operator(view: TokenView) -> Operator:
    return Operator(view.name, view.scope, f"{view.id}/{view.digest}", view.agents)
