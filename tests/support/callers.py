"""Agents that call tools: a session with a running turn, without a CLI."""

import contextlib
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any

from remoteclaw.config import Config, load_config
from remoteclaw.contract import METHODS
from remoteclaw.credentials import digest, new_agent_token
from remoteclaw.fleet.inbound import Accepted
from remoteclaw.fleet.lease import Lease
from remoteclaw.gateway.dispatch import Dispatcher, Handler
from remoteclaw.gateway.principals import Agent
from remoteclaw.tools import TOOLS
from tests.support.stack import Stack

__all__ = ["ALL_TOOLS", "Calling", "calling", "dispatcher"]

ALL_TOOLS = frozenset(tool.name for tool in TOOLS)


@dataclass
class Calling:
    """An agent whose turn runs."""

    agent: Agent
    lease: Lease
    accepted: Accepted
    token: str

    async def finish(self) -> None:
        """End its turn."""
        await self.lease.finish("done", reply=[{"text": "done", "is_error": False}])


@contextlib.asynccontextmanager
async def calling(
    stack: Stack, *, tools: Collection[str] = ALL_TOOLS, text: str = "hello", **fields: Any
) -> AsyncIterator[Calling]:
    """Have a session of the test's own whose turn runs, and whose agent may call `tools`."""
    accepted = await stack.append(text, **fields)
    lease = await stack.fleet.leases.acquire(accepted.session.sid, worker="test", host="here")
    assert lease is not None
    token = new_agent_token(lease.sid)
    await lease.begin([accepted.entry_id], phase="spawned", detail="test")
    await lease.grant(digest(token), tools)
    yield Calling(Agent(lease.sid, digest(token)), lease, accepted, token)


def dispatcher(
    stack: Stack, *handlers: dict[str, Handler], config: Config | None = None
) -> Dispatcher:
    """Return a dispatcher of the methods that have a handler here."""
    known = {name: handler for some in handlers for name, handler in some.items()}
    methods = {name: method for name, method in METHODS.items() if name in known}
    now = config or load_config(stack.home.config_file, {})
    return Dispatcher(stack.fleet, stack.home, lambda: now, known, methods=methods)
