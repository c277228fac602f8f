"""Authentication: a token becomes a principal.

There are three kinds of token: the gateway's own, operators', and those of agent processes. Each is
compared as a whole, by digest. What a client says of itself counts for nothing.
"""

from collections.abc import Sequence

from remoteclaw.fleet import Fleet
from remoteclaw.fleet.tokens import TokenView
from remoteclaw.gateway.dispatch import Dispatcher
from remoteclaw.gateway.principals import Agent, Operator, Principal
from remoteclaw.gateway.token_file import TokenFile
from remoteclaw.host.tokens import AGENT_PREFIX, OPERATOR_PREFIX, digest, is_same, sid_of

__all__ = ["Authenticator"]

#: What is longer is no token of any kind.
LONGEST = 1024


class Authenticator:
    """Looks up tokens; nothing is cached, so a revoked one counts no more at once."""

    def __init__(self, fleet: Fleet, dispatcher: Dispatcher, files: Sequence[TokenFile]) -> None:
        self._fleet = fleet
        self._dispatcher = dispatcher
        self.files = files

    async def principal(self, token: str) -> Principal | None:
        """Return whose token it is; None if it is not valid.

        Raises `RedisUnavailable` or `RedisRefused`.
        """
        if not token or len(token) > LONGEST:
            return None
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
