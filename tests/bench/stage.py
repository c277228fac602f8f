"""A stage for terminals: workers, a gateway, holders, and the program `played`."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remoteclaw.fleet.terminals.state import HeldLease
from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.tty.renewal import end_program
from tests.bench.load import workers
from tests.bench.played import play
from tests.support.agents import AgentCli
from tests.support.command import Process
from tests.support.doors import Door, Refused, RpcClient, gateway_process, own_token
from tests.support.stack import Stack
from tests.support.terminals import used_before
from tests.support.waiting import eventually

RECORDINGS = sorted((Path(__file__).parents[1] / "tty" / "recordings").glob("*.raw"))
#: Limits that no benchmark reaches.
PLENTY = {"max": 64, "max_per_person": 64, "opens_per_minute": 600}


class Stage:
    """Workers and a gateway, with which terminals are opened and watched."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.token = own_token(stack)
        self.door: Door
        self.process: Process
        self._gateway = contextlib.AsyncExitStack()

    @classmethod
    @contextlib.asynccontextmanager
    async def set(
        cls,
        stack: Stack,
        agent: dict[str, Any],
        *,
        count: int = 2,
        agents: Mapping[str, Any] | None = None,
        gateway: Mapping[str, Any] | None = None,
        **terminals: Any,
    ) -> AsyncIterator["Stage"]:
        """Run workers and a gateway for `agent` and `agents`; end all terminals at the exit."""
        limits = {**PLENTY, **terminals}
        options = {"agents": agents, "gateway": gateway or {}, "terminals": limits}
        await workers(stack, count, agent, **options, lease_s=30)
        stage = cls(stack)
        sweeping = asyncio.create_task(stack.fleet.sweeper.run())
        try:
            await stage.begin()
            yield stage
        finally:
            for held in await stage.held():
                await end_program(held, interrupt=False)
            await stage.kill()
            sweeping.cancel()
            await asyncio.wait([sweeping])

    async def begin(self) -> None:
        """Start a gateway."""
        self.door, self.process = await self._gateway.enter_async_context(
            gateway_process(self.stack)
        )

    async def kill(self) -> None:
        """End the gateway with SIGKILL."""
        await self._gateway.aclose()

    async def held(self) -> Sequence[HeldLease]:
        """Return the leases of the running terminals."""
        return await self.stack.fleet.terminals.held(self.stack.home.host_id)

    async def holder(self, sid: str) -> int:
        """Return the process id of a terminal's holder."""
        held = next(each for each in await self.held() if each.sid == sid)
        return int(held.holder.split()[1])

    async def open(
        self, client: RpcClient, name: str = "main", *, agent: str = "main", prompt: str = ""
    ) -> str:
        """Open a terminal, and wait until it is idle."""
        about = {"agent": agent, "name": name, "cols": 120, "rows": 32, "prompt": prompt}
        sid = str((await client.call("terminals.open", about))["terminal"]["sid"])
        await becomes(client, sid)
        return sid


async def becomes(client: RpcClient, sid: str, activity: str = "idle") -> dict[str, Any]:
    """Wait until a terminal is live and its program reports `activity`."""

    async def reached() -> dict[str, Any] | None:
        terminal: dict[str, Any] = await client.call("terminals.get", {"sid": sid})
        assert terminal["state"] in ("starting", "live"), terminal
        is_reached = (terminal["state"], terminal["activity"]) == ("live", activity)
        return terminal if is_reached else None

    terminal: dict[str, Any] = await eventually(reached)
    return terminal


async def shows(client: RpcClient, sid: str, text: str) -> str:
    """Wait until a terminal shows a text; return the whole screen."""

    async def is_shown() -> str | None:
        screen: str = (await client.call("terminals.screen", {"sid": sid}))["text"]
        return screen if text in screen else None

    return str(await eventually(is_shown))


def played(recording: Path = RECORDINGS[0]) -> dict[str, Any]:
    """Return an agent whose terminals run the program `played` with a recording."""
    path = str(Path(play.__code__.co_filename))
    return {"runtime": "codex", "command": [sys.executable, path, str(recording)]}


def used(cli: AgentCli, directory: Path) -> tuple[dict[str, object], dict[str, str]]:
    """Return an agent whose CLI has been used before, and the environment of the CLI."""
    workspace = directory / "workspace"
    workspace.mkdir(exist_ok=True)
    env = used_before(cli, directory / "user", workspace)
    agent = cli.config(workspace=str(workspace), env=env, trust_workspace=True)
    full_env = {**create_cli_runtime(cli.name).environment(os.environ), **env}
    return agent, full_env


async def parked(client: RpcClient, sid: str) -> None:
    """Park a terminal if it is open, and wait until it has ended, also after a running turn."""

    async def is_over() -> bool:
        state: str = (await client.call("terminals.get", {"sid": sid}))["state"]
        if state not in ("starting", "live"):
            return True
        with contextlib.suppress(Refused):
            await client.call("terminals.park", {"sid": sid, "force": True})
        return False

    await eventually(is_over)
