"""Agent scopes: operator tokens that are limited to some agents.

Such a token can't see other agents or their sessions. The dispatcher enforces this before it calls
a handler: it passes a configuration without the other agents, answers that their sessions don't
exist, and refuses every method that isn't listed here.
"""

import contextlib
import re
from dataclasses import dataclass
from typing import Self

from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import Fleet
from remoteclaw.gateway.auth.principals import Operator, Principal
from remoteclaw.gateway.conversations import Conversations, person_of
from remoteclaw.messages import SessionKey
from remoteclaw.tools.base import Method, Params
from remoteclaw.tools.sessions import WriteParams

#: The parameter by which each method names a session. If a call leaves it out, the handler chooses
#: among the agents of the narrowed configuration.
_SESSION_PARAMETERS = {
    "chat.files": "session_key",
    "chat.history": "session_key",
    "chat.waiting": "session_key",
    "chat.open": "session_key",
    "chat.send": "session_key",
    "sessions.archive": "session_key",
    "sessions.history": "session_key",
    "sessions.label": "session_key",
    "sessions.send": "session_key",
    "sessions.show": "session_key",
    "sessions.retry": "session_key",
    "sessions.stop": "session_key",
    "sessions.subscribe": "session_key",
    "sessions.unsubscribe": "session_key",
    "sessions.write": "session_key",
    "tasks.tree": "session_key",
    "terminals.drop": "sid",
    "terminals.end": "sid",
    "terminals.get": "sid",
    "terminals.history": "sid",
    "terminals.leave": "sid",
    "terminals.links": "sid",
    "terminals.open": "session",
    "terminals.park": "sid",
    "terminals.resize": "sid",
    "terminals.screen": "sid",
    "terminals.search": "sid",
    "terminals.share": "sid",
    "terminals.take": "sid",
    "terminals.type": "sid",
    "terminals.unshare": "sid",
    "terminals.watch": "sid",
}
#: The parameter by which each method names a run: SESSION_ID-ENTRY.
_RUN_PARAMETERS = {"outcomes.wait": "run_id"}
#: The methods that are safe without a check of a session: they show only the configured agents and
#: the sessions that `may_see()` allows, or nothing about agents. A browser is notified of
#: chats with the agents of its token only.
_SELF_LIMITED = frozenset(
    (
        *("agents.list", "health", "sessions.search", "terminals.list"),
        *("push.key", "push.subscribe", "push.unsubscribe", "push.visible"),
    )
)
#: The methods that send messages to the session's chat or show its messages.
_IN_CHAT = frozenset(("chat.files", "chat.history", "chat.open", "chat.send", "chat.waiting"))
_ALLOWED = frozenset((*_SESSION_PARAMETERS, *_RUN_PARAMETERS, *_SELF_LIMITED))


def may_call(operator: Operator, method: Method) -> bool:
    """Whether an operator's token permits calls of a method at all."""
    return operator.has(method.scope) and (operator.agents is None or method.name in _ALLOWED)


def check_method(operator: Operator, method: Method) -> None:
    """Raise `CallRefused` for a method that tokens with an agent scope can't call."""
    if operator.agents is not None and method.name not in _ALLOWED:
        agents = ", ".join(map(repr, operator.agents))
        raise CallRefused(
            "FORBIDDEN",
            f"This token is only for {agents}, and {method.name} is about others, too.",
        )


def no_session(named: str) -> CallRefused:
    """Return the refusal for a session that doesn't exist or that the caller may not see."""
    return CallRefused("NOT_FOUND", f"There is no session {named[:200]!r} that this token may see.")


@dataclass(frozen=True, slots=True)
class AgentScope:
    """The agents that a narrowed token is limited to, and their sessions."""

    operator: Operator
    fleet: Fleet
    full_config: Config
    """The configuration with all agents."""

    @classmethod
    def of(cls, principal: Principal, fleet: Fleet, config: Config) -> Self | None:
        """Return a principal's agent scope; None if its token is for all agents."""
        if not isinstance(principal, Operator) or principal.agents is None:
            return None
        return cls(principal, fleet, config)

    @property
    def config(self) -> Config:
        """The configuration without the other agents. Raises `CallRefused` if no agent is left."""
        configured = self.full_config.agents.items()
        agents = {name: settings for name, settings in configured if self.operator.is_for(name)}
        if not agents:
            raise CallRefused("FORBIDDEN", "None of the agents of this token is configured here.")
        return self.full_config.model_copy(update={"agents": agents})

    async def check(self, method: Method, params: Params, session_key: str | None) -> None:
        """Raise `CallRefused` for a call that concerns a session of another agent."""
        if method.name == "chat.open" and getattr(params, "sender", None) is not None:
            raise CallRefused(
                "FORBIDDEN", "A token for only some agents can't set `sender` for another chat."
            )
        if isinstance(params, WriteParams) and not params.to_caller:
            raise CallRefused(
                "FORBIDDEN",
                "A token for some agents alone writes in no chat: set `sessionKey` and `toCaller`.",
            )
        sessions = [session_key]
        if parameter := _SESSION_PARAMETERS.get(method.name):
            sessions.append(getattr(params, parameter))
        if parameter := _RUN_PARAMETERS.get(method.name):
            sessions.append(getattr(params, parameter).partition("-")[0])
        for session in sessions:
            if session is not None:
                await self.check_session(session, in_chat=method.name in _IN_CHAT)

    async def check_session(self, named: str, *, in_chat: bool = False) -> None:
        """Raise `CallRefused` unless `named` is the key or the full id of a session in scope.

        Labels and prefixes of ids are refused: they are looked up among the sessions of all agents
        and would reveal them. With `in_chat`, the call reads or writes the chat that the key names,
        which may be a conversation of the operator whose session doesn't exist yet.
        """
        key, is_known = None, False
        with contextlib.suppress(ValueError):
            key = SessionKey.parse(named)
        sid = key.sid if key else named
        if re.fullmatch("[0-9a-f]{32}", sid) and (view := await self.fleet.sessions.view(sid)):
            key, is_known = view.key, True
        if key is None or not self.operator.is_for(key.agent):
            raise no_session(named)
        if in_chat and not is_known:
            person = person_of(self.operator)
            is_known = await Conversations(self.fleet.web, person, self.full_config).has(key)
        if not is_known:
            raise no_session(named)
