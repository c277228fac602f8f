"""Sessions that work together: real agents in stock workers, with a gateway of its own process."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import Accepted
from remoteclaw.host.process import is_alive
from tests.support.agents import AgentCli
from tests.support.doors import gateway_process
from tests.support.processes import children
from tests.support.stack import Stack, said
from tests.support.waiting import HANG_S, eventually

TASKS = ("one", "two", "three")


@contextlib.asynccontextmanager
async def fleet_of(
    stack: Stack, cli: AgentCli, workspace: Path, *, workers: int, **agent: Any
) -> AsyncIterator[None]:
    """Have a gateway, and so many workers."""
    workspace.mkdir()
    settings = cli.config(sees_sessions="all", workspace=str(workspace), **agent)
    owners = {"test": {"owners": ["alice", "anna", "berta", "carla"]}}
    queue = {"mode": "collect", "debounce_ms": 0, "cap": 0}
    stack.configure(settings, queue=queue, channels=owners)
    async with gateway_process(stack):
        for _ in range(workers):
            await stack.start_worker()
        yield


def spawn(task: str) -> str:
    """Return what has a session started that works until a file is there."""
    command = f"until [ -e go-{task} ]; do sleep 0.05; done; echo {task}-is-done"
    return "TOOL:sessions_spawn:" + json.dumps({"prompt": f"SHELL:{command}", "label": task})


async def begun(stack: Stack, sid: str) -> int:
    """Return how many attempts a session's running turn has had, once its agent was asked."""
    state: Any = await stack.fleet.scripts.client.hgetall(keys.state(sid))
    return int(state.get(b"attempt", 0)) if state.get(b"phase") == b"tool" else 0


async def kill_all(stack: Stack) -> None:
    """Kill every work-horse, and let their sessions be taken over at once."""
    horses = [horse for worker in stack.workers for horse in children(worker.pid)]
    for horse in horses:
        os.kill(horse, signal.SIGKILL)
    released = 0

    async def are_all_released() -> bool:
        nonlocal released
        released += await stack.fleet.sweeper.release_dead(stack.home.host_id, is_alive)
        return released >= len(horses)

    await eventually(are_all_released)
    await stack.fleet.sweeper.sweep()


async def told(stack: Stack, sid: str) -> list[str]:
    """Return what a session was told, oldest first."""
    lines = (await stack.fleet.sessions.record(sid)).splitlines()
    return [line["text"] for line in map(orjson.loads, lines) if line["role"] == "user"]


async def test_three_children_through_two_kills(
    stack: Stack, directory: Path, claude: AgentCli
) -> None:
    """Each result comes exactly once, although parent and children are killed twice."""
    workspace = directory / "workspace"
    async with fleet_of(stack, claude, workspace, workers=4):
        text = " ".join(map(spawn, TASKS)) + " SHELL:until [ -e go-parent ]; do sleep 0.05; done"
        accepted = await stack.append(text)
        sid = accepted.session.sid
        for attempt in (1, 2):

            async def are_all_begun(attempt: int = attempt) -> bool:
                views = await stack.fleet.sessions.children(sid)
                busy = [sid, *(view.sid for view in views)]
                return len(busy) == 4 and all([await begun(stack, s) == attempt for s in busy])

            await eventually(are_all_begun, within_s=2 * HANG_S)  # four cold CLIs
            await kill_all(stack)
        (workspace / "go-parent").touch()
        assert (await stack.outcome(accepted)).status == "done"
        for task in TASKS:
            (workspace / f"go-{task}").touch()

        async def are_results_there() -> bool:
            texts = "".join(await told(stack, sid))
            return all(f"DONE {task}-is-done" in texts for task in TASKS)

        await eventually(are_results_there)
        await stack.until_idle(accepted)
        results = (await told(stack, sid))[1:]
        views = await stack.fleet.sessions.children(sid)

    assert sorted(view.label or "" for view in views) == sorted(TASKS)
    assert len(results) == 3
    for task in TASKS:
        assert sum(f"DONE {task}-is-done" in result for result in results) == 1


async def test_a_result_comes_while_the_parent_works(
    stack: Stack, directory: Path, claude: AgentCli
) -> None:
    """It waits for the turn to end, interrupts nothing, and is told to the person afterwards."""
    workspace = directory / "workspace"
    async with fleet_of(stack, claude, workspace, workers=2):
        (workspace / "go-one").touch()
        text = f"{spawn('one')} SHELL:until [ -e go-parent ]; do sleep 0.05; done; echo parent-ends"
        accepted = await stack.append(text)

        async def is_result_there() -> bool:
            waiting = await stack.fleet.scripts.client.xlen(keys.inbound(accepted.session.sid))
            return int(waiting) == 2

        await eventually(is_result_there)
        (workspace / "go-parent").touch()
        outcome = await stack.outcome(accepted)
        view = await stack.fleet.sessions.view(accepted.session.sid)
        assert view is not None
        result = await stack.outcome(Accepted(accepted.session, str(view.last_entry), False))

    assert said(outcome) == "DONE parent-ends"
    assert result.status == "done"
    assert '"result_of":{"session":' in said(result)


async def test_a_asks_b_which_asks_a(stack: Stack, directory: Path, claude: AgentCli) -> None:
    async with fleet_of(stack, claude, directory / "workspace", workers=2):
        a = await stack.append("SAY:this is A")
        b = await stack.append("SAY:this is B", from_="bob")
        await asyncio.gather(stack.outcome(a), stack.outcome(b))
        back = {"sessionKey": str(a.session), "message": "SAY:and A again", "timeout": 60}
        ask = {
            "sessionKey": str(b.session),
            "message": f"TOOL:sessions_send:{json.dumps(back)}",
            "timeout": 60,
        }
        answer = await stack.ask(f"TOOL:sessions_send:{json.dumps(ask)}")

    plain = answer.replace("\\", "")
    assert '"status":"answered"' in plain.replace(" ", "")
    assert "waits for what comes of this turn, or gets it: what you answer goes there" in plain


async def test_as_many_wait_as_there_are_workers_and_nobody_is_stuck(
    stack: Stack, directory: Path, claude: AgentCli
) -> None:
    """With two workers, three agents each ask a session of their own, at once."""
    names = ("anna", "berta", "carla")
    async with fleet_of(stack, claude, directory / "workspace", workers=2):
        others = [await stack.append("SAY:ready", from_=f"{name}-2") for name in names]
        await asyncio.gather(*map(stack.outcome, others))
        asked = [
            {"sessionKey": str(other.session), "message": "SAY:pong", "timeout": 100}
            for other in others
        ]
        answers = await asyncio.gather(
            *(
                stack.ask(f"TOOL:sessions_send:{json.dumps(one)}", from_=name)
                for name, one in zip(names, asked, strict=True)
            )
        )
        # What was not waited for is answered all the same.
        for other in others:
            sid = other.session.sid

            async def is_answered(sid: str = sid) -> bool:
                return "SAY:pong" in await told(stack, sid)

            await eventually(is_answered)

    for answer in answers:
        plain = answer.replace("\\", "").replace(" ", "")
        has_answer = '"status":"answered"' in plain and "pong" in plain
        assert has_answer or (
            '"status":"accepted"' in plain and "sessions_historyhasitlater" in plain
        )
