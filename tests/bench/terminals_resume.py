"""How soon a parked terminal is live again, beside the bare CLI that resumes the same conversation.

Both are there once the CLI has said so itself.
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
from tests.bench.gateway import Pairs
from tests.bench.stage import Stage, becomes
from tests.support.agents import AgentCli
from tests.support.doors import Refused, RpcClient
from tests.support.signed import secret_file, signed
from tests.support.stack import Stack
from tests.support.terminals import used_before
from tests.support.tty import Tty
from tests.support.waiting import eventually

#: How many are resumed at once, with as many workers: one that waits for a worker starts later.
AT_ONCE = 5


async def bench_resume(stack: Stack, cli: AgentCli, directory: Path, rounds: int) -> list[Pairs]:
    """Measure one, and some at once."""
    agent, env = used(cli, directory)
    secret = secret_file(directory)
    cockpit = {"jwt": {"cockpit": {"secret_file": str(secret), "scope": "write"}}}
    async with (
        Stage.set(stack, agent, count=AT_ONCE, gateway=cockpit) as stage,
        stage.door.connected(stage.token) as client,
    ):
        found = [await _begun(stage, client, f"t{number}") for number in range(AT_ONCE)]

        async def ours(count: int) -> list[float]:
            # A person opens three at once; these are as many people as terminals.
            people = (signed(secret, sub=f"p{n}", exp=int(time.time()) + 600) for n in range(count))
            resumed = zip(found, people, strict=False)
            return await asyncio.gather(*(_live(stage, sid, token) for (sid, _), token in resumed))

        async def bare(count: int) -> list[float]:
            all_ready = asyncio.Barrier(count)  # ours live on as well, which costs the others
            starts = (_bare(cli, env, directory, known, all_ready) for _, known in found[:count])
            return await asyncio.gather(*starts)

        async def park() -> None:
            for sid, _ in found:
                await parked(client, sid)

        one = await _measured(ours, bare, park, 1, max(3, rounds // 4))
        some = await _measured(ours, bare, park, AT_ONCE, max(2, rounds // 10))
    floor = f"bare {cli.name}, the same"
    return [
        (f"{cli.name}, resumed until live", floor, *one, "≤ 1.2 ×"),
        (f"{cli.name}, {AT_ONCE} at once, all", floor, *some, "≤ 1.2 ×"),
    ]


def used(cli: AgentCli, directory: Path) -> tuple[dict[str, object], dict[str, str]]:
    """Return an agent with a CLI that has been used before, and that CLI's environment."""
    workspace = directory / "workspace"
    workspace.mkdir(exist_ok=True)
    env = used_before(cli, directory / "user", workspace)
    agent = cli.config(workspace=str(workspace), env=env, trust_workspace=True)
    whole = {**create_cli_runtime(cli.name).environment(os.environ), **env}
    return agent, whole


async def parked(client: RpcClient, sid: str) -> None:
    """Park a terminal if it is open, and wait until it has ended; also one behind a turn."""

    async def is_over() -> bool:
        state: str = (await client.call("terminals.get", {"sid": sid}))["state"]
        if state not in ("starting", "live"):
            return True
        with contextlib.suppress(Refused):
            await client.call("terminals.park", {"sid": sid, "force": True})
        return False

    await eventually(is_over)


async def _begun(stage: Stage, client: RpcClient, name: str) -> tuple[str, str]:
    """Have a conversation with something in it, parked; return session and conversation."""
    sid = await stage.open(client, name, prompt="SAY:plum")

    async def conversation() -> str | None:
        found: str | None = (await becomes(client, sid))["conversation"]
        return found

    known = str(await eventually(conversation))
    await parked(client, sid)
    return sid, known


async def _live(stage: Stage, sid: str, token: str) -> float:
    """Resume a terminal as its person; return when it was told to be live."""
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
    """Start a CLI with a conversation; return when it was ready, once all of them are."""
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
    """Measure both by turns, in seconds until the last is there, with all parked before each."""
    measured: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for side, one in zip(measured, (ours, bare), strict=True):
            await park()
            started = time.perf_counter()
            last = max(await one(count))
            if number:
                side.append(last - started)
    return measured
