"""The dispatcher: validates and authorises a call, and passes it to its handler.

Every door calls `Dispatcher.call()` for calls and `Dispatcher.tools()` for lists of tools.

An agent may call a tool that was granted to its process and that the policy allows for the running
turn. There are four sets of tools:

- *listed*: tools that the policy lists for the session, the same in every turn
  (`tool_policy.listed_tools`);
- *granted*: tools that were listed when the agent's process started, stored as its grant;
- *shown*: tools that are both granted and still listed; `Dispatcher.tools()` returns them;
- *allowed*: tools that the policy allows for the running turn, decided at each call (`rights.py`).
"""

import asyncio
import contextlib
import hashlib
import logging
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.config.tool_policy import listed_tools
from remoteclaw.errors import (
    CallRefused,
    ConfigError,
    MessageRefused,
    NotFound,
    RemoteClawError,
    ScheduleRefused,
)
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.turns.caller import Caller
from remoteclaw.gateway.agent_scope import AgentScope, check_method, may_call
from remoteclaw.gateway.auth.principals import Agent, Operator, Principal
from remoteclaw.gateway.call import Call, GatewayParts, Handler, Subscriber
from remoteclaw.gateway.limits import Transfers, Waiting
from remoteclaw.gateway.rights import check_allowed, check_branch
from remoteclaw.host.logs import frames_of
from remoteclaw.host.tokens import is_same
from remoteclaw.messages import SessionKey
from remoteclaw.tools.base import Method, Params, Result, Tool
from remoteclaw.tools.catalog import METHODS

log = logging.getLogger(__name__)


class Dispatcher:
    """Answers the calls that one gateway receives."""

    def __init__(
        self,
        fleet: Fleet,
        home: Home,
        config: Callable[[], Config],
        handlers: Mapping[str, Handler],
        *,
        methods: Mapping[str, Method] = METHODS,
        restart: asyncio.Event | None = None,
        parts: GatewayParts | None = None,
    ) -> None:
        """`config` returns the current configuration; `restart` is set to restart this process.

        Raises `RuntimeError` for a method without a handler or a handler without a method.
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
        self._tools = {each.tool: each for each in methods.values() if isinstance(each, Tool)}
        self._restart = restart
        self._parts = parts
        self.transfers = Transfers()

    async def agent_of_token(self, sid: str, digest: str) -> Agent | None:
        """Return the agent whose token has `digest`; None once the session has a newer agent."""
        agent = Agent(sid, digest)
        return agent if await self._session_of_agent(agent) else None

    async def tools(self, principal: Principal) -> list[Tool]:
        """Return the tools that a principal is shown. An agent is shown the same in every turn."""
        with _errors_as_refusals("tools"):
            caller = await self._caller(principal)
            if isinstance(principal, Agent):
                await self._fleet.calls.note_listing(principal.sid, principal.digest)
        if isinstance(principal, Operator):
            return [tool for tool in self._tools.values() if may_call(principal, tool)]
        assert caller is not None, "an agent has a session"
        config = await self._config_for(caller)
        shown = self._shown(caller, config)
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
        waiting: Waiting = contextlib.nullcontext,
    ) -> tuple[Result, list[dict[str, Any]]]:
        """Answer one call of a method or tool; return its result and its side effects.

        Calls with the same `call_id` have one effect. Operators may set `session_key` to the
        session that the call is about. `waiting` is for a part of the call that only waits.
        Raises `CallRefused`.
        """
        method = self._methods.get(name) or self._tools.get(name)
        if method is None:
            raise CallRefused("NOT_FOUND", f"There is no method {name[:100]!r}.")
        with _errors_as_refusals(method.name):
            caller = await self._caller(principal)
            await self._authorize(principal, caller, method)
            checked_params = checked(method, params, caller)
            config = await self._config_for(caller)
            agent_scope = AgentScope.of(principal, self._fleet, config)
            if agent_scope:
                await agent_scope.check(method, checked_params, session_key)
                config = agent_scope.config
            call = Call(
                id=_call_id_of(principal, method, checked_params, call_id),
                method=method,
                principal=principal,
                caller=caller,
                session=await self._session(caller, session_key),
                config=config,
                current_config=self._config,
                fleet=self._fleet,
                home=self._home,
                transfers=self.transfers,
                subscriber=subscriber,
                waiting=waiting,
                restart=self._restart,
                gateway_parts=self._parts,
            )
            return await self._handlers[method.name](call, checked_params), call.side_effects

    async def _caller(self, principal: Principal) -> Caller | None:
        """Return the session of a calling agent; None for operators."""
        if isinstance(principal, Operator):
            return None
        caller = await self._session_of_agent(principal)
        if caller is None:
            raise CallRefused("UNAUTHORIZED", "This token is not valid any more.")
        return caller

    async def _session_of_agent(self, agent: Agent) -> Caller | None:
        """Return an agent's session; None once the session has a newer agent."""
        caller = await self._fleet.calls.caller(agent.sid)
        if caller is None or caller.grant is None or not is_same(caller.grant.digest, agent.digest):
            return None
        return caller

    async def _config_for(self, caller: Caller | None) -> Config:
        """Return the configuration, which knows what contains the chat of an agent's session."""
        config = self._config()
        return await self._fleet.chats.config_of(config, caller.session) if caller else config

    async def _authorize(self, principal: Principal, caller: Caller | None, method: Method) -> None:
        """Raise `CallRefused` unless the principal may call the method now."""
        if isinstance(principal, Operator):
            if not principal.has(method.scope):
                raise CallRefused(
                    "FORBIDDEN",
                    f"{method.name} needs a token with the scope {method.scope}; "
                    f"this one has {principal.scope}.",
                )
            check_method(principal, method)
            return
        assert caller is not None, "an agent has a session"
        if not isinstance(method, Tool):
            raise CallRefused("FORBIDDEN", f"{method.name} is for operators.")
        if caller.turn is None:
            raise CallRefused("NO_TURN", "No turn is running for this agent: tools work in a turn.")
        config = await self._config_for(caller)
        check_allowed(config, caller, method)
        check_branch(config, caller, method)

    def _shown(self, caller: Caller, config: Config) -> frozenset[str]:
        """Return the names of tools that are granted to an agent's process and still listed."""
        if caller.grant is None:
            return frozenset()
        tools = self._tools.values()
        try:
            session, limits = caller.state.launch_of
            still_listed = listed_tools(config, session, tools, limits)
        except ConfigError:  # the agent is not configured any more
            return frozenset()
        return still_listed & caller.grant.tools

    async def _session(self, caller: Caller | None, session_key: str | None) -> SessionKey | None:
        """Return the session that a call is about if its parameters name none.

        None for an operator's call without `session_key`.
        """
        if caller is not None:
            if session_key is not None and session_key != str(caller.session):
                raise CallRefused("FORBIDDEN", "An agent calls only for its own session.")
            return caller.session
        if session_key is None:
            return None
        try:
            return (await self._fleet.sessions.named(session_key)).key
        except NotFound as error:
            raise CallRefused("NOT_FOUND", str(error)) from None


@contextlib.contextmanager
def _errors_as_refusals(name: str) -> Iterator[None]:
    """Convert every exception of the block into a `CallRefused`."""
    try:
        yield
    except CallRefused:
        raise
    except (NotFound, MessageRefused, ScheduleRefused, ConfigError) as error:
        raise CallRefused("INVALID_REQUEST", str(error)) from None
    except RemoteClawError as error:
        raise CallRefused("UNAVAILABLE", str(error)) from None
    except Exception as error:  # noqa: BLE001 - a bug in one method must not stop the gateway
        log.error("%s: %s", name, frames_of(error))
        raise CallRefused(
            "INTERNAL", "The call failed in the gateway. Its log has the reason."
        ) from None


def _call_id_of(principal: Principal, method: Method, params: Params, call_id: str | None) -> str:
    """Return the internal id of a call.

    The caller's `call_id` is scoped to the caller and the method. For agents it is also scoped to
    the parameters, because some models reuse ids within a turn.
    """
    if call_id is None:
        return secrets.token_hex(16)
    owner = principal.credential if isinstance(principal, Operator) else principal.sid
    scope = "" if isinstance(principal, Operator) else params.model_dump_json()
    name = f"{owner}\0{method.name}\0{scope}\0{call_id}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(name).hexdigest()[:32]


#: A refusal lists at most this many problems.
MAX_PROBLEMS = 5
#: The beginning of pydantic's messages, which the parameter's own name replaces.
_SUBJECT = re.compile(r"^(Input|String|Tuple|Value) should ")
#: Messages in terms of JSON, for pydantic's error types whose messages use terms of Python.
_JSON_MESSAGES = {
    "extra_forbidden": "is no parameter",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}


def checked(method: Method, params: Mapping[str, Any], caller: Caller | None) -> Params:
    """Return the validated parameters. Raises `CallRefused`, which lists the problems."""
    try:
        if caller and isinstance(method, Tool):  # operators may have more parameters
            method.listed_params.model_validate(params)
        return method.params.model_validate(params)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        problems = [_problem(each["type"], each["loc"], each["msg"]) for each in errors]
        omitted = len(problems) - MAX_PROBLEMS
        more = f" (and {omitted} more)" if omitted > 0 else ""
        listed_problems = "; ".join(problems[:MAX_PROBLEMS])
        name = method.tool or method.name
        raise CallRefused("INVALID_REQUEST", f"{name}: {listed_problems}{more}.") from None


def _problem(error_type: str, location: Sequence[str | int], message: str) -> str:
    """Return a pydantic error as a clause that begins with the parameter's name."""
    clause = _SUBJECT.sub("must ", message.removeprefix("Value error, "))
    # Parts such as `constrained-str` name a type of a union, no parameter.
    names = [str(part) for part in location if "constrained-" not in str(part)]
    return f"{'.'.join(names)[:100]} {_JSON_MESSAGES.get(error_type, clause)}".strip()
