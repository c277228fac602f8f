"""Narrowed tokens: those of operators that are for some agents alone.

For such a token there are no other agents, and no sessions of theirs. The dispatcher sees to that
before a handler is asked: it hands on a configuration without the other agents, refuses sessions of
theirs as if there were none, and refuses every method that isn't named here.
"""

import contextlib
import re
from dataclasses import dataclass
from typing import Self

from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import Fleet
from remoteclaw.gateway.consoles import CHANNEL, account_of
from remoteclaw.gateway.principals import Operator, Principal
from remoteclaw.messages import SessionKey
from remoteclaw.tools.base import Method, Params

#: The parameter by which a method names a session. Without one it is about none yet, and keeps to
#: the agents of the configuration that it is given.
_BY_SESSION = {
    "chat.history": "session_key",
    "chat.open": "session_key",
    "chat.outcome": "session_key",
    "chat.send": "session_key",
    "sessions.archive": "session_key",
    "sessions.archived": "session_key",
    "sessions.label": "session_key",
    "sessions.send": "session_key",
    "sessions.status": "session_key",
    "sessions.stop": "session_key",
    "sessions.subscribe": "session_key",
    "sessions.tree": "session_key",
    "sessions.unsubscribe": "session_key",
    "terminals.end": "sid",
    "terminals.get": "sid",
    "terminals.history": "sid",
    "terminals.input": "sid",
    "terminals.key": "sid",
    "terminals.leave": "sid",
    "terminals.open": "session",
    "terminals.park": "sid",
    "terminals.paste": "sid",
    "terminals.resize": "sid",
    "terminals.screen": "sid",
    "terminals.take": "sid",
    "terminals.type": "sid",
    "terminals.watch": "sid",
}
#: The methods that name a run: a session's id, and behind it an entry.
_BY_RUN = {"agent.wait": "run_id"}
#: The methods that show no more than the configuration's agents and what `may_see()` lets through,
#: or nothing of any agent. `chat.shown` is about messages that its own connection was sent.
_KEPT_TO = frozenset(("agents.list", "chat.shown", "health", "sessions.list", "terminals.list"))
#: The methods that send to the session's chat, or show what is said there.
_IN_CHAT = frozenset(("chat.open", "chat.outcome", "chat.send"))
_ALLOWED = frozenset((*_BY_SESSION, *_BY_RUN, *_KEPT_TO))


def may_call(operator: Operator, method: Method) -> bool:
    """Whether an operator's token lets them call a method at all."""
    return operator.has(method.scope) and (operator.agents is None or method.name in _ALLOWED)


def check_method(operator: Operator, method: Method) -> None:
    """Raise `CallRefused` for a method that is about more than a narrowed token's agents."""
    if operator.agents is not None and method.name not in _ALLOWED:
        mine = ", ".join(map(repr, operator.agents))
        raise CallRefused(
            "FORBIDDEN",
            f"This token is for {mine} alone, and {method.name} is about others, too.",
        )


def no_session(named: str) -> CallRefused:
    """Return the refusal of a session that there is not, or that the caller may not see."""
    return CallRefused("NOT_FOUND", f"There is no session {named[:200]!r} that this token may see.")


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The view of one narrowed token: its agents, and their sessions."""

    operator: Operator
    fleet: Fleet
    host: str
    whole: Config

    @classmethod
    def of(cls, principal: Principal, fleet: Fleet, host: str, config: Config) -> Self | None:
        """Return a principal's view; None for a token that is for all agents."""
        if not isinstance(principal, Operator) or principal.agents is None:
            return None
        return cls(principal, fleet, host, config)

    @property
    def config(self) -> Config:
        """The configuration without the other agents. Raises `CallRefused` if none is left."""
        agents = {name: it for name, it in self.whole.agents.items() if self.operator.is_for(name)}
        if not agents:
            raise CallRefused("FORBIDDEN", "None of the agents of this token is configured here.")
        return self.whole.model_copy(update={"agents": agents})

    async def check(self, method: Method, params: Params, session_key: str | None) -> None:
        """Raise `CallRefused` for a call that is about more than the token's agents."""
        if method.name == "chat.open" and getattr(params, "sender", None) is not None:
            raise CallRefused(
                "FORBIDDEN", "A token for some agents alone can't set `sender` for another chat."
            )
        named = [session_key]
        if parameter := _BY_SESSION.get(method.name):
            named.append(getattr(params, parameter))
        if parameter := _BY_RUN.get(method.name):
            named.append(getattr(params, parameter).partition("-")[0])
        for one in named:
            if one is not None:
                await self.check_session(one, in_chat=method.name in _IN_CHAT)

    async def check_session(self, named: str, *, in_chat: bool = False) -> None:
        """Raise `CallRefused` unless it is one of the token's, by its key or its whole id.

        Labels and beginnings are looked up among the sessions of all agents, and would tell of
        them. What is `in_chat` is shown in the chat that the key names, which may be another
        agent's: in a console, it is to be this host's with the agent. That alone needs no session.
        """
        key, is_known = None, False
        with contextlib.suppress(ValueError):
            key = SessionKey.parse(named)
        sid = key.sid if key else named
        if re.fullmatch("[0-9a-f]{32}", sid) and (view := await self.fleet.sessions.view(sid)):
            key, is_known = view.key, True
        if key is None or not self.operator.is_for(key.agent):
            raise no_session(named)
        if in_chat and key.provider == CHANNEL:
            is_known = key.agent in self.whole.agents and (
                key.account == account_of(self.host, self.whole, key.agent)
            )
        if not is_known:
            raise no_session(named)
