"""The time until a parked terminal is live again, compared with the bare CLI that resumes it.

Both are measured until the CLI itself reports that it is ready.
"""

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

from remoteclaw.config.home import private_directory
from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes import create_cli_runtime
from tests.bench.gateway import RowParts
from tests.bench.stage import Stage, becomes
from tests.support.agents import AgentCli
from tests.support.doors import Refused, RpcClient
from tests.support.signed import secret_file, signed
from tests.support.stack import Stack
from tests.support.terminals import used_before
from tests.support.tty import Tty
from tests.support.waiting import eventually

#: The number of terminals resumed at once, with as many workers so that none waits for a worker.
AT_ONCE = 5


async def bench_resume(stack: Stack, cli: AgentCli, directory: Path, rounds: int) -> list[RowParts]:
    """Measure one resumed terminal, and several at once."""
    agent, env = used(cli, directory)
    secret = secret_file(directory)
    cockpit = {"jwt": {"cockpit": {"secret_file": str(secret), "scope": "write"}}}
    async with (
        Stage.set(stack, agent, count=AT_ONCE, gateway=cockpit) as stage,
        stage.door.connected(stage.token) as client,
    ):
        terminals = [await _begun(stage, client, f"t{number}") for number in range(AT_ONCE)]

        async def ours(count: int) -> list[float]:
            # A person may open three terminals at once, so each terminal has its own person.
            people = (signed(secret, sub=f"p{n}", exp=int(time.time()) + 600) for n in range(count))
            resumed = zip(terminals, people, strict=False)
            return await asyncio.gather(*(_live(stage, sid, token) for (sid, _), token in resumed))

        async def bare(count: int) -> list[float]:
            # As with ours, the first ones stay alive, and take time of the others.
            all_ready = asyncio.Barrier(count)
            starts = (
                _bare(cli, env, directory, conversation, all_ready)
                for _, conversation in terminals[:count]
            )
            return await asyncio.gather(*starts)

        async def park() -> None:
            for sid, _ in terminals:
                await parked(client, sid)

        one = await _measured(ours, bare, park, 1, max(3, rounds // 4))
        several = await _measured(ours, bare, park, AT_ONCE, max(2, rounds // 10))
    baseline = f"bare {cli.name}, the same"
    return [
        (f"{cli.name}, resumed until live", baseline, *one, "≤ 1.2 ×"),
        (f"{cli.name}, {AT_ONCE} at once, all", baseline, *several, "≤ 1.2 ×"),
    ]


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


async def _begun(stage: Stage, client: RpcClient, name: str) -> tuple[str, str]:
    """Start a conversation and park its terminal; return the session and the conversation."""
    sid = await stage.open(client, name, prompt="SAY:plum")

    async def conversation() -> str | None:
        conversation_id: str | None = (await becomes(client, sid))["conversation"]
        return conversation_id

    known = str(await eventually(conversation))
    await parked(client, sid)
    return sid, known


async def _live(stage: Stage, sid: str, token: str) -> float:
    """Resume a terminal as its person; return the time at which it was reported as live."""
    async with stage.door.connected(token) as client:
        opened = await client.call("terminals.open", {"session": sid, "cols": 120, "rows": 32})
        assert opened["created"], opened
        state = (await client.call("terminals.watch", {"sid": sid}))["state"]
        while state == "starting":
            state = (await client.event("terminal.state"))["state"]
        assert state == "live", state
        return time.perf_counter()


async def _bare(
    cli: AgentCli,
    env: dict[str, str],
    directory: Path,
    conversation: str,
    all_ready: asyncio.Barrier,
) -> float:
    """Resume a conversation with a bare CLI; return when it was ready, once all CLIs are."""
    program = create_cli_runtime(cli.name).terminal
    assert program is not None
    workspace = str(directory / "workspace")
    spec = AgentSpec(
        cli.name, cli.command, workspace, env, model=cli.model_name, trust_workspace=True
    )
    run_dir = private_directory(directory / uuid.uuid4().hex)
    launch = program.launch(spec, session_id=conversation, prompt="", run_dir=run_dir)
    places = program.places(env)
    watch = program.watch(
        run_dir=run_dir, workspace=workspace, env=places, conversation=conversation
    )
    async with Tty.running(launch, watch):
        await eventually(lambda: watch.is_ready)
        at = time.perf_counter()
        await all_ready.wait()
    return at


async def _measured(
    ours: Callable[[int], Awaitable[list[float]]],
    bare: Callable[[int], Awaitable[list[float]]],
    park: Callable[[], Awaitable[None]],
    count: int,
    rounds: int,
) -> tuple[list[float], list[float]]:
    """Measure both alternately, in seconds until the last one is ready; park all before each."""
    measured: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for side, resume in zip(measured, (ours, bare), strict=True):
            await park()
            started = time.perf_counter()
            last = max(await resume(count))
            if number:
                side.append(last - started)
    return measured
