"""Running turns as the gateway sees them, without a CLI and without a network door."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import Config
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.gateway.auth.principals import Agent, Operator, Principal
from remoteclaw.gateway.call import Handler
from remoteclaw.gateway.dispatch import Dispatcher
from remoteclaw.tools.catalog import METHODS, TOOLS
from tests.support.stack import Stack, message

DIGEST = "5" * 64


@dataclass(slots=True)
class Turn:
    """A session's running turn, and a gateway that its agent can call."""

    id: str
    lease: Lease
    agent: Agent
    gateway: Dispatcher

    async def call(self, name: str, call_id: str | None = None, **params: Any) -> dict[str, Any]:
        """Call a tool or method; return its result as doors send it."""
        return (await self.noted(name, call_id, **params))[0]

    async def noted(
        self, name: str, call_id: str | None = None, **params: Any
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Call a tool; return its result, and the side effects that it reports."""
        return await ask(self.gateway, self.agent, name, call_id, **params)

    async def finish(self) -> None:
        """End the turn, as a worker does."""
        await self.lease.turns.finish("done", reply=[])


async def ask(
    gateway: Dispatcher,
    principal: Principal,
    name: str,
    call_id: str | None = None,
    *,
    session_key: str | None = None,
    **params: Any,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Call a method as a principal; return its result, and the side effects that it reports."""
    result, effects = await gateway.call(
        principal, name, params, call_id=call_id, session_key=session_key
    )
    return result.model_dump(mode="json", exclude_none=True), effects


def gateway(
    fleet: Fleet,
    home: Home,
    handlers: Mapping[str, Handler],
    *,
    config: Config | None = None,
    current_config: Callable[[], Config] | None = None,
) -> Dispatcher:
    """Return a gateway with the methods of `handlers` and the configuration of the state directory.

    `current_config` replaces the configuration, like `CurrentConfig` in a gateway's process.
    """
    methods = {name: one for name, one in METHODS.items() if name in handlers}

    def read() -> Config:
        return config or load_config(home.config_file, {})

    return Dispatcher(fleet, home, current_config or read, handlers, methods=methods)


def operator(scope: Any = "admin") -> Operator:
    """Return the holder of an operator's token."""
    return Operator("olga", scope, "olga's")


async def begin_turn(
    stack: Stack,
    handlers: Mapping[str, Handler],
    *,
    fleet: Fleet | None = None,
    tools: Collection[str] = tuple(TOOLS),
    **fields: Any,
) -> Turn:
    """Begin a turn for a message from Alice; its agent may call `tools`.

    `fleet` is the gateway's fleet, if it differs from that of the stack.
    """
    entry = await stack.fleet.inbound.append(message("hello", **fields), agent="main")
    sid = entry.session.sid
    lease = await stack.fleet.leases.acquire(sid, worker="test", host=stack.home.host_id)
    assert lease is not None
    assert await lease.turns.begin([entry.entry_id])
    await lease.grant(DIGEST, tools)
    door = gateway(fleet or stack.fleet, stack.home, handlers)
    return Turn(entry.entry_id, lease, Agent(sid, DIGEST), door)
