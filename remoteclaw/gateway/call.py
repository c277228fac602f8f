"""A call of a method, as its handler receives it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.turns.caller import Caller, CallerTurn
from remoteclaw.gateway.auth.principals import Operator, Principal
from remoteclaw.gateway.chats import Chats
from remoteclaw.gateway.conversations import Conversations, person_of
from remoteclaw.gateway.limits import Transfers, Waiting
from remoteclaw.gateway.terminals.host_terminals import HostTerminals
from remoteclaw.gateway.terminals.viewers import ViewerConnection
from remoteclaw.messages import ChatPlace, SessionKey, people_of
from remoteclaw.tools.base import Method, Result, Tool


class Subscriber(ViewerConnection, Protocol):
    """A connection that can subscribe to sessions' events."""

    @property
    def is_page(self) -> bool:
        """Whether the client is a browser that has logged in to the page."""

    async def subscribe(self, sid: str, session_key: str) -> None:
        """Start sending the session's events."""

    def unsubscribe(self, sid: str) -> None:
        """Stop sending the session's events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayParts:
    """The parts of a running gateway that handlers use."""

    terminals: HostTerminals
    """The terminals of this host."""
    chats: Chats


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The context of a call: everything that a handler receives besides the parameters."""

    id: str
    """Identifies the call: a repeated call has the same id and no second effect."""
    method: Method
    principal: Principal
    caller: Caller | None
    """The session of the calling agent, with its running turn; None for operators."""
    session: SessionKey | None
    """The session that the call is about unless its parameters name another one: the caller's own,
    or the one that an operator sent next to the parameters; None if an operator sent none."""
    config: Config
    """The configuration when the call began."""
    current_config: Callable[[], Config]
    """Returns the current configuration."""
    fleet: Fleet
    home: Home
    transfers: Transfers
    """Limits how many files are held in memory at once."""
    side_effects: list[dict[str, Any]] = field(default_factory=list)
    """The call's side effects, in the form in which they are recorded with the turn."""
    subscriber: Subscriber | None = None
    """The connection of the call, if it can carry events."""
    waiting: Waiting = contextlib.nullcontext
    """Gives up the call's place among the running calls, while it waits for others and after."""
    restart: asyncio.Event | None = None
    """Set to restart this process; None if this process is not a gateway."""
    gateway_parts: GatewayParts | None = None
    """None if no gateway runs, as on the command line."""

    @property
    def watched_config(self) -> CurrentConfig | None:
        """The configuration that follows its file, just reloaded; None in a test."""
        if not isinstance(self.current_config, CurrentConfig):
            return None
        self.current_config()
        return self.current_config

    @property
    def tool(self) -> Tool:
        """The tool that an agent calls."""
        assert isinstance(self.method, Tool), "agents can only call tools"
        return self.method

    @property
    def turn(self) -> CallerTurn:
        """The caller's running turn."""
        assert self.caller is not None, "an operator has no turn"
        assert self.caller.turn is not None, "the dispatcher checked it"
        return self.caller.turn

    @property
    def place(self) -> ChatPlace | None:
        """The chat of the caller's turn; for an operator, that of the session of the call."""
        if self.caller is not None:
            return self.turn.place
        return self.session.place if self.session else None

    @property
    def events(self) -> Subscriber:
        """The connection of the call. Raises `CallRefused` if it can't carry events."""
        if self.subscriber is None:
            raise CallRefused("INVALID_REQUEST", "Events are sent only over WebSocket.")
        return self.subscriber

    @property
    def operator(self) -> Operator:
        """The operator who calls. Only for methods that are not tools of agents."""
        assert isinstance(self.principal, Operator), "agents can only call tools"
        return self.principal

    @property
    def parts(self) -> GatewayParts:
        """The parts of the gateway that received the call. Raises `CallRefused` without one."""
        if self.gateway_parts is None:
            raise CallRefused(
                "UNAVAILABLE",
                "No gateway answers here: start RemoteClaw with `remoteclaw up`.",
            )
        return self.gateway_parts

    @property
    def terminals(self) -> HostTerminals:
        """The terminals of this host."""
        return self.parts.terminals

    @property
    def is_from_page(self) -> bool:
        """Whether the caller is a person on the page."""
        return self.subscriber is not None and self.subscriber.is_page

    def note(self, note: dict[str, Any]) -> None:
        """Report a side effect of the call to the caller."""
        self.side_effects.append({**note, "callId": self.id})

    @property
    def conversations(self) -> Conversations:
        """The conversations of the operator."""
        person = person_of(self.operator)
        return Conversations(self.fleet.web, person, self.current_config(), self.config)

    def people(self, session: SessionKey) -> tuple[str, ...]:
        """Return the people on whose behalf `session` later does what the call asks for.

        For an agent they are the people of its turn. For an operator with the scope admin it is the
        session's user, so that nothing in the session gets more rights than its user has, as with
        a message in that user's name. Other operators act for nobody.
        """
        if self.caller is not None:
            return people_of(self.turn.entries)
        may_speak = self.operator.has("admin")
        return (session.person,) if may_speak else ()


#: Answers a call. The second argument is an instance of the method's `params` model.
Handler = Callable[[Call, Any], Awaitable[Result]]
