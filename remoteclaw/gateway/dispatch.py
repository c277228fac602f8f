"""The dispatcher: checks a call, authorises it, and hands it to its method.

All doors come through `Dispatcher.call()`, and lists of tools through `Dispatcher.tools()`.
What an agent may call is the narrower of what its process was started with and of what the policy
says of the running turn at this moment. What it is shown doesn't depend on the turn.
"""

import asyncio
import hashlib
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, get_args

from pydantic import ValidationError

from remoteclaw.config import tool_policy
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.cron.store import Cron
from remoteclaw.errors import (
    CallRefused,
    ConfigError,
    MessageRefused,
    RedisRefused,
    RedisUnavailable,
    RemoteClawError,
    UnknownSession,
)
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.effects import Caller, RunningTurn
from remoteclaw.gateway.principals import Agent, Operator, Principal
from remoteclaw.gateway.transfers import Transfers
from remoteclaw.host.logs import frames_of
from remoteclaw.host.tokens import is_same
from remoteclaw.messages import SessionKey, people_of, person
from remoteclaw.tools.catalog import METHODS, Method, Params, Result, Tool

__all__ = [
    "Call",
    "Dispatcher",
    "Handler",
    "Restart",
    "Subscriber",
    "is_allowed",
    "is_for_owner",
    "not_allowed",
]

log = logging.getLogger(__name__)


class Subscriber(Protocol):
    """A connection over which events of sessions can be sent."""

    async def subscribe(self, sid: str, session_key: str) -> None:
        """Send a session's events from now on."""

    def unsubscribe(self, sid: str) -> None:
        """Send no more of them."""


@dataclass(frozen=True, slots=True)
class Restart:
    """What has a gateway's process start anew."""

    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once that is so."""
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever asks, so that several at once ask for one restart."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a method's handler is given beside its parameters."""

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
    """What held when it was asked."""
    now: Callable[[], Config]
    """Returns what holds at this moment."""
    fleet: Fleet
    home: Home
    effects: list[dict[str, Any]]
    """What the call did besides answering, as it was noted with its turn."""
    transfers: Transfers
    """Where it waits to hold a file."""
    subscriber: Subscriber | None = None
    """The connection that the call came over, if events can be sent over it."""
    restart: Restart | None = None
    """How the process that answers starts anew; None if that is no gateway's."""

    @property
    def current(self) -> CurrentConfig | None:
        """What knows whether the file is what holds, after a look at it; None in a test."""
        if not isinstance(self.now, CurrentConfig):
            return None
        self.now()
        return self.now

    def has_lost(self, content: bytes) -> bool:
        """Whether what holds is not what the file has: it was there, and can't be used now."""
        current = self.current
        if current is None:
            return False
        return current.problem is not None or (current.had_content and not content)

    @property
    def cron(self) -> Cron:
        """The cron jobs."""
        return Cron(self.fleet.scripts)

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

    def people(self, session: SessionKey) -> tuple[str, ...]:
        """Return on whose behalf a session does later what the call asks of it.

        For an operator with the scope admin that is the session's user, as with the method `agent`:
        of what is said in the session nothing gets more rights than its user has. Others speak for
        no person.
        """
        if self.caller is not None:
            return people_of(self.turn.entries)
        assert isinstance(self.principal, Operator), "an agent has a session"
        may_speak = self.principal.has("admin")
        return (person(session.provider, session.user),) if may_speak else ()


Handler = Callable[[Call, Any], Awaitable[Result]]


class Dispatcher:
    """Answers calls of one gateway."""

    def __init__(
        self,
        fleet: Fleet,
        home: Home,
        config: Callable[[], Config],
        handlers: Mapping[str, Handler],
        *,
        methods: Mapping[str, Method] = METHODS,
        restart: Restart | None = None,
    ) -> None:
        """`config` returns the configuration of now; `restart` has the gateway start anew.

        Raises `RuntimeError` for a method without a handler or a handler without a method: such a
        gateway does not start.
        """
        if missing := sorted(set(methods) - set(handlers)):
            raise RuntimeError(f"methods without a handler: {', '.join(missing)}")
        if unknown := sorted(set(handlers) - set(methods)):
            raise RuntimeError(f"handlers without a method: {', '.join(unknown)}")
        self._fleet = fleet
        self._home = home
        self._config = config
        self._handlers = handlers
        self._methods = methods
        self._tools = {one.tool: one for one in methods.values() if isinstance(one, Tool)}
        self._restart = restart
        self._transfers = Transfers()

    async def agent(self, sid: str, digest: str) -> Agent | None:
        """Return the agent that a token is for, if it is the session's one of now."""
        agent = Agent(sid, digest)
        return agent if await self._granted(agent) else None

    async def tools(self, principal: Principal) -> list[Tool]:
        """Return the tools that a principal is shown: an agent the same ones in every turn."""
        caller = await self._caller(principal)
        if isinstance(principal, Operator):
            return [tool for tool in self._tools.values() if principal.has(tool.scope)]
        assert caller is not None, "an agent has one"
        shown = self._shown(caller)
        return [tool for name, tool in self._tools.items() if name in shown]

    async def call(
        self,
        principal: Principal,
        name: str,
        params: Mapping[str, Any],
        *,
        call_id: str | None = None,
        session_key: str | None = None,
        subscriber: Subscriber | None = None,
    ) -> tuple[Result, list[dict[str, Any]]]:
        """Answer one call of a method or tool; return also what it did besides.

        `call_id` names the call: with the same one, what was done is not done again. Operators may
        say by `session_key` which session the call is about. Raises `CallRefused`.
        """
        method = self._methods.get(name) or self._tools.get(name)
        if method is None:
            raise CallRefused("NOT_FOUND", f"There is no method {name[:100]!r}.")
        caller = await self._caller(principal)
        self._authorize(principal, caller, method)
        checked = _checked(method, params)
        session = await self._session(principal, caller, session_key)
        call = Call(
            id=_name_of(principal, method, checked, call_id),
            method=method,
            principal=principal,
            caller=caller,
            session=session,
            config=self._config(),
            now=self._config,
            fleet=self._fleet,
            home=self._home,
            effects=[],
            transfers=self._transfers,
            subscriber=subscriber,
            restart=self._restart,
        )
        try:
            return await self._handlers[method.name](call, checked), call.effects
        except CallRefused:
            raise
        except (UnknownSession, MessageRefused, ConfigError) as error:
            raise CallRefused("INVALID_REQUEST", str(error)) from None
        except RemoteClawError as error:
            raise CallRefused("UNAVAILABLE", str(error)) from None
        except Exception as error:  # noqa: BLE001 - a bug of one method is not the end of all
            log.error("%s: %s", method.name, frames_of(error))
            raise CallRefused("INTERNAL", "It failed here; the gateway's log has why.") from None

    async def _caller(self, principal: Principal) -> Caller | None:
        if isinstance(principal, Operator):
            return None
        try:
            caller = await self._granted(principal)
        except (RedisUnavailable, RedisRefused) as error:
            raise CallRefused("UNAVAILABLE", str(error)) from None
        if caller is None:
            raise CallRefused("UNAUTHORIZED", "This token is not valid any more.")
        return caller

    async def _granted(self, agent: Agent) -> Caller | None:
        """Return what is known of an agent's session, if the agent is its one of now."""
        caller = await self._fleet.effects.caller(agent.sid)
        if caller is None or caller.grant is None or not is_same(caller.grant.digest, agent.digest):
            return None
        return caller

    # -- what is permitted ---------------------------------------------------------------------

    def _authorize(self, principal: Principal, caller: Caller | None, method: Method) -> None:
        """Raise `CallRefused` unless the principal may call the method now."""
        if isinstance(principal, Operator):
            if not principal.has(method.scope):
                raise CallRefused(
                    "FORBIDDEN",
                    f"{method.name} needs a token with the scope {method.scope}; "
                    f"this one has {principal.scope}.",
                )
            return
        assert caller is not None, "an agent has one"
        if not isinstance(method, Tool):
            raise CallRefused("FORBIDDEN", f"{method.name} is for operators.")
        if caller.turn is None:
            raise CallRefused("NO_TURN", "No turn is running for this agent: tools work in a turn.")
        if caller.grant is None or method.tool not in caller.grant.tools:
            raise not_allowed(method)
        if not is_allowed(config := self._config(), caller, method):
            raise not_allowed(method, is_owners=is_for_owner(config, caller))

    def _shown(self, caller: Caller) -> frozenset[str]:
        """Return the tools that an agent's process was given, as far as they are still offered."""
        if caller.grant is None:
            return frozenset()
        try:
            listed = tool_policy.listed(
                self._config(), caller.session, self._tools.values(), depth=caller.depth
            )
        except ConfigError:  # the agent is not configured any more
            return frozenset()
        return listed & caller.grant.tools

    async def _session(
        self, principal: Principal, caller: Caller | None, session_key: str | None
    ) -> SessionKey | None:
        if caller is not None:
            if session_key is not None and session_key != str(caller.session):
                raise CallRefused("FORBIDDEN", "An agent calls for its own session alone.")
            return caller.session
        if session_key is None:
            return None
        try:
            sid = await self._fleet.sessions.find(session_key)
        except UnknownSession as error:
            raise CallRefused("NOT_FOUND", str(error)) from None
        except (RedisUnavailable, RedisRefused) as error:
            raise CallRefused("UNAVAILABLE", str(error)) from None
        view = await self._fleet.sessions.view(sid)
        return view.key if view else None


def is_allowed(config: Config, caller: Caller, tool: Tool) -> bool:
    """Whether a configuration's policy allows a tool to the turn that a caller is in."""
    assert caller.turn is not None, "only a turn has senders"
    subject = tool_policy.subject_of(caller.session, caller.turn.entries, depth=caller.depth)
    try:
        (ruling,) = tool_policy.rule(config, subject, [tool])
    except ConfigError:  # the agent is not configured any more
        return False
    # Who can't be read may have had fewer rights than those who can.
    return ruling.allowed and caller.turn.is_whole


def is_for_owner(config: Config, caller: Caller) -> bool:
    """Whether the turn that a caller is in is on behalf of owners alone."""
    assert caller.turn is not None, "only a turn has senders"
    subject = tool_policy.subject_of(caller.session, caller.turn.entries, depth=caller.depth)
    return tool_policy.is_owner(config, subject)


def not_allowed(tool: Tool, *, is_owners: bool = True) -> CallRefused:
    """Return the refusal of a tool; of one for owners, it says so where the turn isn't theirs."""
    why = "."
    if not is_owners and tool.owner_only:
        why = (
            ": it answers only to an owner, and this turn is not, or not only, an owner's. "
            "Say so in your answer."
        )
    return CallRefused("FORBIDDEN", f"The policy doesn't allow {tool.tool} here{why}")


def _name_of(principal: Principal, method: Method, params: Params, call_id: str | None) -> str:
    """Return the name of a call: no two callers, and no two methods, mean the same by one id.

    Some models repeat their ids within a turn: from agents, no two sets of parameters do either.
    """
    if call_id is None:
        return secrets.token_hex(16)
    whose = principal.credential if isinstance(principal, Operator) else principal.sid
    asked = "" if isinstance(principal, Operator) else params.model_dump_json()
    name = f"{whose}\0{method.name}\0{asked}\0{call_id}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(name).hexdigest()[:32]


#: What pydantic calls a parameter, whose name stands before.
_SUBJECT = re.compile(r"^(Input|String|Tuple|Value) should ")
#: What it says in Python's words, in JSON's.
_PLAIN = {
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}


def _checked(method: Method, params: Mapping[str, Any]) -> Params:
    """Return the parameters; raises `CallRefused` with what is wrong with them, and where."""
    try:
        return method.params.model_validate(params)
    except ValidationError as error:
        problems = []
        for problem in error.errors(include_url=False, include_input=False, include_context=False):
            where = ".".join(str(part) for part in problem["loc"])
            why = problem["msg"].removeprefix("Value error, ")
            if problem["type"] == "extra_forbidden":
                has = ", ".join(_names(method.params, problem["loc"])) or "none"
                why = f"is no parameter; there are {has}"
            why = _PLAIN.get(problem["type"]) or _SUBJECT.sub("must ", why)
            problems.append(f"{where[:100]} {why}".strip())
        name = method.tool or method.name
        more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        told = "; ".join(problems[:5])
        raise CallRefused("INVALID_REQUEST", f"{name}: {told}{more}.") from None


def _names(params: type[Params], where: Sequence[str | int]) -> list[str]:
    """Return the names of the parameters beside the one that is somewhere in them."""
    for name in where[:-1]:
        fields = params.model_fields.values()
        found = next(field for field in fields if field.alias == name)
        kinds = (found.annotation, *get_args(found.annotation))
        params = next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Params))
    return [field.alias or name for name, field in params.model_fields.items()]
