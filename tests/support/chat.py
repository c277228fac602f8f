"""A chat in a terminal, with a gateway and a worker but without the rest of `up`."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.support.command import REMOTECLAW, Process
from tests.support.doors import gateway_process
from tests.support.stack import Stack
from tests.support.terminal import Terminal

__all__ = ["chatting", "demo"]


def demo(command: tuple[str, ...]) -> dict[str, Any]:
    """Return the configuration of an agent that a test has written."""
    return {"runtime": "demo", "command": list(command)}


@contextlib.asynccontextmanager
async def chatting(
    stack: Stack,
    agent: dict[str, Any] | None = None,
    *,
    colour: dict[str, str] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Terminal, Process]]:
    """Open a chat with an agent, with a gateway; `up` would start four more programs."""
    stack.configure(agent)
    await stack.start_worker()
    async with gateway_process(stack) as (_, gateway):
        env = stack.env(**(colour or {}))
        with Terminal.running(REMOTECLAW, "chat", env=env, **options) as screen:
            screen.see("›")
            yield screen, gateway
