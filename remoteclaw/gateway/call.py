"""A call of a method, as its handler sees it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.caller import Caller, RunningTurn
from remoteclaw.gateway.consoles import Consoles
from remoteclaw.gateway.host_terminals import HostTerminals
from remoteclaw.gateway.limits import Transfers
from remoteclaw.gateway.page.chats import PageChats
from remoteclaw.gateway.principals import Operator, Principal
from remoteclaw.gateway.viewers import Watcher
from remoteclaw.messages import SessionKey, people_of, person
from remoteclaw.tools.base import Method, Result, Tool


class Subscriber(Watcher, Protocol):
    """A connection over which events of sessions can be sent."""

    @property
    def is_page(self) -> bool:
        """Whether a browser that has logged in to the page is at its other end."""

    async def subscribe(self, sid: str, session_key: str) -> None:
        """Send a session's events from now on."""

    def unsubscribe(self, sid: str) -> None:
        """Send no more of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayParts:
    """The parts of a running gateway that handlers use."""

    terminals: HostTerminals
    """The terminals of this host."""
    consoles: Consoles
    page_chats: PageChats


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Everything that a handler is given beside the parameters."""

    id: str
    """Its name: the same call again has the same one, and does nothing again."""
    method: Method
    principal: Principal
    caller: Caller | None
    """The session whose agent calls, with its running turn; None for operators."""
    session: SessionKey | None
    """The session that the call is about where it names none: the caller's, or the one that an
    operator named beside the parameters."""
    config: Config
    """The configuration when the call began."""
    current_config: Callable[[], Config]
    """Returns the current configuration."""
    fleet: Fleet
    home: Home
    transfers: Transfers
    """Where it waits to hold a file."""
    side_effects: list[dict[str, Any]] = field(default_factory=list)
    """What the call did besides answering, as it was noted with its turn."""
    subscriber: Subscriber | None = None
    """The connection that the call came over, if events can be sent over it."""
    restart: asyncio.Event | None = None
    """Set to restart this process; None where it is no gateway's."""
    gateway_parts: GatewayParts | None = None
    """None where no gateway runs: on the command line."""

    @property
    def watched_config(self) -> CurrentConfig | None:
        """The configuration that follows its file, just read again; None in a test."""
        if not isinstance(self.current_config, CurrentConfig):
            return None
        self.current_config()
        return self.current_config

    @property
    def tool(self) -> Tool:
        """The method as the tool that an agent calls."""
        assert isinstance(self.method, Tool), "agents call tools alone"
        return self.method

    @property
    def turn(self) -> RunningTurn:
        """The caller's running turn."""
        assert self.caller is not None, "an operator has no turn"
        assert self.caller.turn is not None, "it was checked"
        return self.caller.turn

    @property
    def events(self) -> Subscriber:
        """The connection that the call came over. Raises `CallRefused` if it carries no events."""
        if self.subscriber is None:
            raise CallRefused("INVALID_REQUEST", "Events are sent over WebSocket alone.")
        return self.subscriber

    @property
    def operator(self) -> Operator:
        """The operator who calls a method that is no tool."""
        assert isinstance(self.principal, Operator), "agents have no such tool"
        return self.principal

    @property
    def parts(self) -> GatewayParts:
        """The parts of the gateway that is called."""
        assert self.gateway_parts is not None, "only a gateway has this method"
        return self.gateway_parts

    @property
    def terminals(self) -> HostTerminals:
        """The terminals of this host."""
        return self.parts.terminals

    @property
    def is_from_page(self) -> bool:
        """Whether a person on the page calls."""
        return self.subscriber is not None and self.subscriber.is_page

    def note(self, note: dict[str, Any]) -> None:
        """Tell the caller what the call did besides answering."""
        self.side_effects.append({**note, "callId": self.id})

    def people(self, session: SessionKey) -> tuple[str, ...]:
        """Return on whose behalf a session does later what the call asks of it.

        For an operator with the scope admin that is the session's user, as with the method `agent`:
        of what is said in the session nothing gets more rights than its user has. Others speak for
        no person.
        """
        if self.caller is not None:
            return people_of(self.turn.entries)
        may_speak = self.operator.has("admin")
        return (person(session.provider, session.user),) if may_speak else ()


#: Answers a call; its second argument is what the method's `params` makes of the parameters.
Handler = Callable[[Call, Any], Awaitable[Result]]
