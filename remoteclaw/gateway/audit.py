"""Auditing of calls: which are written down, of whom, and how often."""

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Literal

from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet.audit import Audit, Deed
from remoteclaw.gateway.principals import Agent, Operator, Principal
from remoteclaw.host.terminal import one_line
from remoteclaw.tools.base import Result
from remoteclaw.tools.terminals import OpenedTerminal, Terminal

Did = Literal["open", "watch", "take", "park", "end", "type"]
#: What is written down when it is done, and when it is refused.
_DEEDS: Mapping[str, Did] = {
    "terminals.open": "open",
    "terminals.watch": "watch",
    "terminals.take": "take",
    "terminals.park": "park",
    "terminals.end": "end",
}
#: What is written down when it is refused alone: each key would be a line.
_TYPING = frozenset(
    f"terminals.{name}" for name in ("input", "key", "type", "paste", "resize", "screen")
)
#: For how long the same refusal is not written down again, in seconds, and how many are remembered:
#: whoever asks a thousand times is not to push out what others did.
AGAIN_S, REMEMBERED = 60.0, 1000

log = logging.getLogger(__name__)


class Auditing:
    """Writes down what is done with terminals through one gateway."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._refused: OrderedDict[tuple[str, ...], float] = OrderedDict()

    async def note(
        self,
        principal: Principal,
        method: str,
        params: Mapping[str, Any],
        outcome: str,
        result: Result | None,
        address: str,
    ) -> None:
        """Write down a call from an address that was answered, or refused."""
        did: Did | None = _DEEDS.get(method)
        if did is None and method in _TYPING and outcome != "ok":
            did = "type"
        if did is None or (isinstance(result, OpenedTerminal) and not result.created):
            return
        who = principal.known_as if isinstance(principal, Operator) else _agent(principal)
        session = _session(params, result)
        if outcome != "ok" and self._is_known((who, did, session, outcome)):
            return
        deed = Deed(
            at_ms=now_ms(),
            who=who,
            did=did,
            session=session,
            outcome=outcome,
            is_forced=params.get("force") is True,
            address=address,
        )
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            await self._audit.add(deed)

    def _is_known(self, refusal: tuple[str, ...]) -> bool:
        """Whether the same was refused a moment ago."""
        now = boottime()
        if now - self._refused.get(refusal, -AGAIN_S) < AGAIN_S:
            return True
        self._refused[refusal] = now
        self._refused.move_to_end(refusal)
        while len(self._refused) > REMEMBERED:
            self._refused.popitem(last=False)
        return False


def _agent(agent: Agent) -> str:
    return f"the agent of {agent.sid[:8]}"


def _session(params: Mapping[str, Any], result: Result | None) -> str:
    terminal = result.terminal if isinstance(result, OpenedTerminal) else result
    if isinstance(terminal, Terminal):
        return terminal.sid
    named = params.get("sid") or params.get("session") or params.get("agent")
    return one_line(named, most=100) if isinstance(named, str) else ""
