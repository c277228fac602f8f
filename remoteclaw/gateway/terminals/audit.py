"""The audit of terminals: which calls are recorded, under which name, and how often."""

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Literal

from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet.terminals.audit import Audit, AuditEntry
from remoteclaw.gateway.auth.principals import Agent, Operator, Principal
from remoteclaw.host.terminal import one_line
from remoteclaw.tools.base import Result
from remoteclaw.tools.terminals import OpenedTerminal, Terminal

Did = Literal["open", "watch", "take", "park", "end", "type"]
#: Methods that are recorded when they are done and when they are refused.
_DEEDS: Mapping[str, Did] = {
    "terminals.open": "open",
    "terminals.watch": "watch",
    "terminals.take": "take",
    "terminals.park": "park",
    "terminals.end": "end",
}
#: Methods that are recorded only when they are refused; else each key press would be an entry.
_TYPING = frozenset(("terminals.type", "terminals.resize", "terminals.screen"))
#: How long a repeated refusal is not recorded again, in seconds. The log has a fixed length, so the
#: retries of one caller would push out the entries of others.
REPEAT_S = 60.0
#: At most this many refusals are remembered.
MAX_REFUSALS = 1000

log = logging.getLogger(__name__)


class Auditor:
    """Records in the audit log what callers of one gateway do with terminals."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._refused: OrderedDict[tuple[str, ...], float] = OrderedDict()
        """When each recent refusal was recorded."""

    async def note(
        self,
        principal: Principal,
        method: str,
        params: Mapping[str, Any],
        outcome: str,
        result: Result | None,
        address: str,
    ) -> None:
        """Record a call from `address` that was answered or refused, if its method is audited."""
        did: Did | None = _DEEDS.get(method)
        if did is None and method in _TYPING and outcome != "ok":
            did = "type"
        if did is None or (isinstance(result, OpenedTerminal) and not result.created):
            return
        who = principal.name if isinstance(principal, Operator) else _agent(principal)
        session = _session(params, result)
        if outcome != "ok" and self._is_repeated((who, did, session, outcome)):
            return
        deed = AuditEntry(
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

    def _is_repeated(self, refusal: tuple[str, ...]) -> bool:
        """Whether the same refusal was recorded within `REPEAT_S`; if not, remember it."""
        now = boottime()
        if now - self._refused.get(refusal, -REPEAT_S) < REPEAT_S:
            return True
        self._refused[refusal] = now
        self._refused.move_to_end(refusal)
        while len(self._refused) > MAX_REFUSALS:
            self._refused.popitem(last=False)
        return False


def _agent(agent: Agent) -> str:
    return f"the agent of {agent.sid[:8]}"


def _session(params: Mapping[str, Any], result: Result | None) -> str:
    terminal = result.terminal if isinstance(result, OpenedTerminal) else result
    if isinstance(terminal, Terminal):
        return terminal.sid
    named = params.get("sid") or params.get("session") or params.get("agent")
    return one_line(named, max_chars=100) if isinstance(named, str) else ""
