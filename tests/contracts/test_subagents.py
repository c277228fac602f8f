"""Sessions that work together: real agents in stock workers, with a gateway of its own process."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import Accepted
from tests.support.agents import AgentCli
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
    owners = {"test": {"owners": ["alice", "anna"]}}
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


async def test_two_children_and_what_one_was_told_outlive_all_workers(
    stack: Stack, directory: Path, claude: AgentCli
) -> None:
    """Each result comes exactly once, although parent and children are killed.

    They wait for the parent's turn to end, and the person is told of them afterwards.
    """
    workspace = directory / "workspace"
    async with fleet_of(stack, claude, workspace, workers=3):
        parent = await stack.append(" ".join(map(spawn, TASKS)))
        sid = parent.session.sid
        await stack.outcome(parent)
        children = [view.sid for view in await stack.fleet.sessions.children(sid)]

        async def are_at_work() -> bool:
            return all([await begun(stack, child) for child in children])

        await eventually(are_at_work, within_s=2 * HANG_S)  # three cold CLIs
        target = {"action": "tell", "params": {"label": "one"}, "message": "SAY:and-the-images"}
        command = "until [ -e go-parent ]; do sleep 0.05; done; echo parent-ends"
        again = await stack.append(f"TOOL:subagents:{json.dumps(target)} SHELL:{command}")
        client = stack.fleet.scripts.client

        async def is_told() -> bool:
            lengths = [int(await client.xlen(keys.inbound(child))) for child in children]
            return sorted(lengths) == [1, 2]

        await eventually(is_told)
        await kill_all(stack)
        for task in TASKS:
            (workspace / f"go-{task}").touch()

        async def do_results_wait() -> bool:
            return int(await client.xlen(keys.inbound(sid))) > len(TASKS)

        await eventually(do_results_wait)
        (workspace / "go-parent").touch()
        outcome = await stack.outcome(again)
        assert outcome.status == "done"
        assert said(outcome).endswith("DONE parent-ends")
        wanted = [*(f"DONE {task}-is-done" for task in TASKS), "and-the-images"]
        results: list[str] = []

        async def are_results_there() -> bool:
            results[:] = [text for text in await told(stack, sid) if "TOOL:" not in text]
            return all(words in "".join(results) for words in wanted)

        await eventually(are_results_there)
        await stack.until_idle(parent)
        assert results == [text for text in await told(stack, sid) if "TOOL:" not in text]
        views = await stack.fleet.sessions.children(sid)
        view = await stack.fleet.sessions.view(sid)
        assert view is not None
        last = await stack.outcome(Accepted(parent.session, str(view.last_entry), False))

    assert last.status == "done"
    assert '"result_of":{"session":' in said(last)
    assert sorted(view.label or "" for view in views) == sorted(TASKS)
    assert ["".join(results).count(words) for words in wanted[:2]] == [1, 1]


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


async def test_a_task_is_told_something_while_it_works_and_after(
    stack: Stack, directory: Path, codex: AgentCli
) -> None:
    """It takes it in; and after its end, it remembers what it did."""
    workspace = directory / "workspace"
    async with fleet_of(stack, codex, workspace, workers=2, permissions="auto"):
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

    assert (first["taken"], second["taken"]) == ("joined", "continued")
    assert first["runs"][0]["runId"] == f"{child.sid}-{child.task_entry}"
    assert second["runs"][0]["runId"] != first["runs"][0]["runId"]
    assert "one-is-done" in result or "and-the-images" in result  # what it says last
    # Its model was told it, whether or not it counts as a message to the scripted one.
    of_task = [body for body in codex.model.bodies().splitlines() if "TOOL:subagents" not in body]
    assert any("SAY:and-the-images" in body for body in of_task)
    assert recalled.startswith("RECALL")
    assert "echo one-is-done" in recalled


async def test_agents_that_ask_each_other_are_not_stuck(
    stack: Stack, directory: Path, codex: AgentCli
) -> None:
    """One asks another, which asks it back; then two ask, as many as there are workers, at once."""
    async with fleet_of(stack, codex, directory / "workspace", workers=2):
        a, b, c = [await stack.append("SAY:ready", from_=who) for who in ("alice", "bob", "berta")]
        await asyncio.gather(*map(stack.outcome, (a, b, c)))
        back = sending(a, "SAY:and A again")
        answer = await stack.ask(sending(b, back))
        answers = await asyncio.gather(
            stack.ask(sending(b, "SAY:pong")), stack.ask(sending(c, "SAY:pong"), from_="anna")
        )
        # What was not waited for is answered all the same.
        for other in (b, c):
            sid = other.session.sid

            async def is_answered(sid: str = sid) -> bool:
                return "SAY:pong" in await told(stack, sid)

            await eventually(is_answered)

    plain = answer.replace("\\", "")
    assert '"status":"answered"' in plain.replace(" ", "")
    assert "waits for what comes of this turn, or gets it: what you answer goes there" in plain
    for answer in answers:
        plain = answer.replace("\\", "").replace(" ", "")
        has_answer = '"status":"answered"' in plain and "pong" in plain
        assert has_answer or (
            '"status":"accepted"' in plain and "sessions_historyhasitlater" in plain
        )


def sending(to: Accepted, text: str) -> str:
    """Return what has an agent ask another session."""
    asked = {"sessionKey": str(to.session), "message": text, "timeout": 100}
    return f"TOOL:sessions_send:{json.dumps(asked)}"
