"""Authentication: a token becomes a principal.

There are three kinds of token: the gateway's own, operators', and those of agent processes. Each is
compared as a whole, by digest. That one is there, begins like one or is as long as one, counts for
nothing, and so does what a client says of itself.
"""

import ipaddress
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from remoteclaw.config.model import is_loopback
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.tokens import TokenView
from remoteclaw.gateway.dispatch import Dispatcher
from remoteclaw.gateway.principals import Agent, Operator, Principal
from remoteclaw.gateway.token_file import TokenFile
from remoteclaw.host.tokens import AGENT_PREFIX, OPERATOR_PREFIX, digest, is_same, sid_of

__all__ = ["Attempts", "Authenticator"]

#: What is longer is no token of any kind.
LONGEST = 1024

#: So many wrong tokens from an address in so many seconds are a search, and it waits so long.
MOST_FAILURES, WITHIN_S, WAIT_S = 10, 60.0, 60.0
#: Of how many addresses failures are remembered: the memory of it is the attacker's to fill.
MOST_ADDRESSES = 1024


class Authenticator:
    """Finds out whose token it is, each time anew."""

    def __init__(self, fleet: Fleet, dispatcher: Dispatcher, files: Sequence[TokenFile]) -> None:
        self._fleet = fleet
        self._dispatcher = dispatcher
        self.files = files
        self.attempts = Attempts()

    async def principal(self, token: str) -> Principal | None:
        """Return whose token it is; None if it is nobody's.

        Raises `RedisUnavailable` or `RedisRefused` where that can't be found out.
        """
        if not token or len(token) > LONGEST:
            return None
        if token.startswith(AGENT_PREFIX):
            sid = sid_of(token)
            return await self._dispatcher.agent(sid, digest(token)) if sid else None
        if token.startswith(OPERATOR_PREFIX):
            view = await self._fleet.tokens.find(token)
            return _operator(view) if view else None
        return self._own(digest(token))

    async def is_valid(self, principal: Principal) -> bool:
        """Whether a principal's token is still worth the same. Raises as `principal()` does."""
        if isinstance(principal, Agent):
            return await self._dispatcher.agent(principal.sid, principal.digest) == principal
        token_id, _, _ = principal.credential.rpartition("/")
        if token_id:
            view = await self._fleet.tokens.read(token_id)
            return view is not None and not view.is_expired and _operator(view) == principal
        return self._own(principal.credential) == principal

    def _own(self, given: str) -> Operator | None:
        """Return whose own token of the gateway's has a digest."""
        for file in self.files:
            own = file.digest()
            if own is not None and is_same(own, given):
                return Operator(file.holder, file.scope, given)
        return None


def _operator(view: TokenView) -> Operator:
    return Operator(view.name, view.scope, f"{view.id}/{view.digest}")


@dataclass(slots=True)
class _Failures:
    at: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_FAILURES))
    waits_until: float = 0.0


class Attempts:
    """Counts wrong tokens by the address that they came from.

    No token can be guessed, so this is against noise. A right token works from this computer at all
    times: there all share one address, and whoever else runs something there could otherwise lock
    the owner and the owner's agents out by being wrong ten times. Other addresses wait.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def must_wait(self, address: str) -> float:
        """Return for how many seconds an address is not even listened to."""
        return 0.0 if is_loopback(address) else self._waits(address)

    def failed(self, address: str) -> float:
        """Note a wrong token; return for how many seconds no more of them should come."""
        name = _network(address)
        failures = self._failures.setdefault(name, _Failures())
        self._failures.move_to_end(name)
        if len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)
        if waits := self._waits(address):
            return waits
        failures.at.append(self._now())
        if len(failures.at) == MOST_FAILURES and failures.at[-1] - failures.at[0] <= WITHIN_S:
            failures.waits_until = self._now() + WAIT_S
            failures.at.clear()
        return 0.0

    def _waits(self, address: str) -> float:
        failures = self._failures.get(_network(address))
        return max(0.0, failures.waits_until - self._now()) if failures else 0.0


def _network(address: str) -> str:
    """Return the part of an address that its owner can't choose at will."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and not found.ipv4_mapped:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
