"""The audit of terminals: which calls are recorded, under which name, and how often."""

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Literal

from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet.terminals.audit import Audit, AuditEntry
from remoteclaw.gateway.auth.principals import Agent, Guest, Operator, Principal
from remoteclaw.host.terminal import one_line
from remoteclaw.tools.base import Result
from remoteclaw.tools.terminals import OpenedTerminal, Terminal

Did = Literal["open", "watch", "take", "share", "unshare", "park", "end", "type"]
#: Methods that are recorded when they are done and when they are refused.
_DEEDS: Mapping[str, Did] = {
    "terminals.open": "open",
    "terminals.watch": "watch",
    "terminals.take": "take",
    "terminals.share": "share",
    "terminals.unshare": "unshare",
    "terminals.park": "park",
    "terminals.end": "end",
}
#: Methods that are recorded only when they are refused; else each key press would be an entry.
_TYPING = frozenset(("terminals.type", "terminals.resize", "terminals.screen"))
#: How long a repeated refusal, or a guest who connects again, is not recorded again, in seconds:
#: the log has a fixed length, so the retries of one caller would push out the entries of others.
REPEAT_S = 60.0
#: At most this many of them are remembered.
MAX_REMEMBERED = 1000

log = logging.getLogger(__name__)


class Auditor:
    """Records in the audit log what callers of one gateway do with terminals."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._recorded: OrderedDict[tuple[str, ...], float] = OrderedDict()
        """When each recent refusal, and each watching of a guest, was recorded."""

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
        is_forced = params.get("force") is True
        await self._add(who, did, session, outcome, address, is_forced=is_forced)

    async def note_guest(self, guest: Guest, address: str) -> None:
        """Record that a guest watches, once per `REPEAT_S` for a link and an address."""
        if not self._is_repeated((guest.credential, address)):
            await self._add(f"a guest of {guest.by}", "watch", guest.sid, "ok", address)

    async def _add(
        self,
        who: str,
        did: Did,
        session: str,
        outcome: str,
        address: str,
        *,
        is_forced: bool = False,
    ) -> None:
        entry = AuditEntry(
            at_ms=now_ms(),
            who=who,
            did=did,
            session=session,
            outcome=outcome,
            is_forced=is_forced,
            address=address,
        )
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            await self._audit.add(entry)

    def _is_repeated(self, about: tuple[str, ...]) -> bool:
        """Whether the same was recorded within `REPEAT_S`; if not, remember it."""
        now = boottime()
        if now - self._recorded.get(about, -REPEAT_S) < REPEAT_S:
            return True
        self._recorded[about] = now
        self._recorded.move_to_end(about)
        while len(self._recorded) > MAX_REMEMBERED:
            self._recorded.popitem(last=False)
        return False


def _agent(agent: Agent) -> str:
    return f"the agent of {agent.sid[:8]}"


def _session(params: Mapping[str, Any], result: Result | None) -> str:
    terminal = result.terminal if isinstance(result, OpenedTerminal) else result
    if isinstance(terminal, Terminal):
        return terminal.sid
    named = params.get("sid") or params.get("session") or params.get("agent")
    return one_line(named, max_chars=100) if isinstance(named, str) else ""
