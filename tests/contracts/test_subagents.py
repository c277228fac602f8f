"""Sessions that work together: real agents in stock workers, with a gateway of its own process."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import Accepted
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.doors import gateway_process
from tests.support.kills import kill_all
from tests.support.stack import Stack, said
from tests.support.waiting import HANG_S, eventually

TASKS = ("one", "two")


@contextlib.asynccontextmanager
async def fleet_of(
    stack: Stack, cli: AgentCli, workspace: Path, *, workers: int, **agent: Any
) -> AsyncIterator[None]:
    """Have a gateway, and so many workers."""
    workspace.mkdir()
    settings = cli.config(sees_sessions="all", workspace=str(workspace), **agent)
    owners = {"test": {"owners": ["alice", "anna", "berta"]}}
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


async def told(stack: Stack, sid: str) -> list[str]:
    """Return what a session was told, oldest first."""
    lines = (await stack.fleet.records.of(sid)).splitlines()
    return [line["text"] for line in map(orjson.loads, lines) if line["role"] == "user"]


async def test_two_children_through_two_kills(
    stack: Stack, directory: Path, claude: AgentCli
) -> None:
    """Each result comes exactly once, although parent and children are killed twice."""
    workspace = directory / "workspace"
    async with fleet_of(stack, claude, workspace, workers=3):
        text = " ".join(map(spawn, TASKS)) + " SHELL:until [ -e go-parent ]; do sleep 0.05; done"
        accepted = await stack.append(text)
        sid = accepted.session.sid
        for attempt in (1, 2):

            async def are_all_begun(attempt: int = attempt) -> bool:
                views = await stack.fleet.sessions.children(sid)
                busy = [sid, *(view.sid for view in views)]
                return len(busy) == 3 and all([await begun(stack, s) == attempt for s in busy])

            await eventually(are_all_begun, within_s=2 * HANG_S)  # three cold CLIs
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
    assert len(results) == len(TASKS)
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


async def telling(stack: Stack, text: str) -> dict[str, Any]:
    """Have the parent's agent tell the task something; return what the tool says."""
    target = {"action": "tell", "params": {"label": "one"}, "message": text}
    answer = await stack.ask("TOOL:subagents:" + json.dumps(target))
    plain = answer.replace("\\", "")
    found: dict[str, Any] = json.loads(plain[plain.index("{") : plain.rindex("}") + 1])
    return found


async def results_of(stack: Stack, sid: str, count: int) -> list[str]:
    """Return the results that a session was told, once there are so many."""
    found: list[str] = []

    async def are_there() -> bool:
        found[:] = [text for text in await told(stack, sid) if "TOOL:" not in text]
        return len(found) >= count

    await eventually(are_there)
    return found


@pytest.mark.parametrize(("name", "taken"), [("codex", "joined")])
async def test_a_task_is_told_something_while_it_works_and_after(
    stack: Stack, directory: Path, name: str, taken: str, model_server: ModelServerProcess
) -> None:
    """It takes it in, or answers it next; and after its end, it remembers what it did."""
    workspace = directory / "workspace"
    cli = required(name, model_server)
    async with fleet_of(stack, cli, workspace, workers=2, permissions="auto"):
        parent = await stack.append(spawn("one"))
        sid = parent.session.sid
        await stack.outcome(parent)
        (child,) = await stack.fleet.sessions.children(sid)

        async def is_at_work() -> bool:
            return await begun(stack, child.sid) == 1

        await eventually(is_at_work)
        first = await telling(stack, "SAY:and-the-images")
        (workspace / "go-one").touch()
        (result,) = await results_of(stack, sid, 1)
        second = await telling(stack, "RECALL")
        _, recalled = await results_of(stack, sid, 2)

    assert (first["taken"], second["taken"]) == (taken, "continued")
    assert first["runs"][0]["runId"] == f"{child.sid}-{child.task_entry}"
    assert second["runs"][0]["runId"] != first["runs"][0]["runId"]
    assert "one-is-done" in result or "and-the-images" in result  # what it says last
    assert result.endswith("and-the-images") or taken == "joined"
    # Its model was told it, whether or not it counts as a message to the scripted one.
    of_task = [body for body in model_server.bodies().splitlines() if "TOOL:subagents" not in body]
    assert any("SAY:and-the-images" in body for body in of_task)
    if name == "gemini":  # it destroys its conversations: it goes on from our record
        assert recalled.endswith("RECALL []")
        assert '"said":"SAY:and-the-images"' in of_task[-1].replace("\\", "")
    else:
        assert recalled.startswith("RECALL")
        assert "echo one-is-done" in recalled


async def test_what_a_task_was_told_outlives_all_workers(
    stack: Stack, directory: Path, claude: AgentCli
) -> None:
    """Those of the task and of the session that has started it are killed."""
    workspace = directory / "workspace"
    async with fleet_of(stack, claude, workspace, workers=3):
        parent = await stack.append(spawn("one"))
        sid = parent.session.sid
        await stack.outcome(parent)
        (child,) = await stack.fleet.sessions.children(sid)

        async def is_at_work(attempt: int) -> bool:
            return await begun(stack, child.sid) == attempt

        await eventually(lambda: is_at_work(1))
        target = {"action": "tell", "params": {"label": "one"}, "message": "SAY:and-the-images"}
        command = "until [ -e go-parent ]; do sleep 0.05; done; echo parent-ends"
        again = await stack.append(f"TOOL:subagents:{json.dumps(target)} SHELL:{command}")
        at_child = keys.inbound(child.sid)
        client = stack.fleet.scripts.client

        async def is_told() -> bool:
            return int(await client.xlen(at_child)) == 2

        await eventually(is_told)
        await kill_all(stack)
        (workspace / "go-parent").touch()
        (workspace / "go-one").touch()
        await stack.outcome(again)
        results = await results_of(stack, sid, 1)
        await stack.until_idle(parent)
        texts = [text for text in await told(stack, sid) if "TOOL:" not in text]

    assert texts == results
    assert "DONE one-is-done" in "".join(texts)
    assert "and-the-images" in "".join(texts)


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
    """With two workers, two agents each ask a session of their own, at once."""
    names = ("anna", "berta")
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
