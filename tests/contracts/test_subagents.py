"""Sessions that work together: real agents in stock workers, with a gateway process."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
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
    """Run a gateway and a number of workers."""
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
    """Return a directive that starts a session, which works until a file exists."""
    command = f"until [ -e go-{task} ]; do sleep 0.05; done; echo {task}-is-done"
    return "TOOL:sessions_spawn:" + json.dumps({"prompt": f"SHELL:{command}", "label": task})


async def attempt_of(stack: Stack, sid: str) -> int:
    """Return the attempt number of a session's running turn, or 0 until its tool runs."""
    state: Any = await stack.fleet.scripts.client.hgetall(keys.state(sid))
    return int(state.get(b"attempt", 0)) if state.get(b"phase") == b"tool" else 0


async def messages_to(stack: Stack, sid: str) -> list[str]:
    """Return the messages that a session has received, oldest first."""
    lines = (await stack.fleet.records.of(sid)).splitlines()
    return [line["text"] for line in map(orjson.loads, lines) if line["role"] == "user"]


@pytest.mark.thorough
async def test_two_tasks_and_a_message_to_one_survive_the_death_of_all_workers(
    stack: Stack, directory: Path, claude: AgentCli
) -> None:
    """Each result arrives exactly once, although the workers of parent and tasks are killed.

    The results wait for the end of the parent's turn, and are then reported to the person.
    """
    workspace = directory / "workspace"
    async with fleet_of(stack, claude, workspace, workers=3, permissions="auto"):
        parent = await stack.append(" ".join(map(spawn, TASKS)))
        sid = parent.session.sid
        await stack.outcome(parent)
        children = [view.sid for view in await stack.fleet.sessions.children(sid)]

        async def are_at_work() -> bool:
            return all([await attempt_of(stack, child) for child in children])

        await eventually(are_at_work, within_s=2 * HANG_S)  # three cold CLIs
        target = {"action": "tell", "params": {"label": "one"}, "message": "SAY:and-the-images"}
        command = "until [ -e go-parent ]; do sleep 0.05; done; echo parent-ends"
        again = await stack.append(f"TOOL:subagents:{json.dumps(target)} SHELL:{command}")
        client = stack.fleet.scripts.client

        async def has_message() -> bool:
            lengths = [int(await client.xlen(keys.inbound(child))) for child in children]
            return sorted(lengths) == [1, 2]

        await eventually(has_message)
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

        async def have_results_arrived() -> bool:
            results[:] = [text for text in await messages_to(stack, sid) if "TOOL:" not in text]
            return all(words in "".join(results) for words in wanted)

        await eventually(have_results_arrived)
        await stack.until_idle(parent)
        assert results == [text for text in await messages_to(stack, sid) if "TOOL:" not in text]
        views = await stack.fleet.sessions.children(sid)
        view = await stack.fleet.sessions.view(sid)
        assert view is not None
        last = await stack.outcome(Accepted(parent.session, str(view.last_entry), False))

    assert last.status == "done"
    assert '"result_of":{"session":' in said(last)
    assert sorted(view.label or "" for view in views) == sorted(TASKS)
    assert ["".join(results).count(words) for words in wanted[:2]] == [1, 1]


async def send_to_task(stack: Stack, text: str) -> dict[str, Any]:
    """Let the parent's agent send the task a message; return the tool's result."""
    target = {"action": "tell", "params": {"label": "one"}, "message": text}
    answer = await stack.ask("TOOL:subagents:" + json.dumps(target))
    plain = answer.replace("\\", "")
    found: dict[str, Any] = json.loads(plain[plain.index("{") : plain.rindex("}") + 1])
    return found


async def results_of(stack: Stack, sid: str, count: int) -> list[str]:
    """Return the results that a session has received, once there are `count`."""
    found: list[str] = []

    async def have_arrived() -> bool:
        found[:] = [text for text in await messages_to(stack, sid) if "TOOL:" not in text]
        return len(found) >= count

    await eventually(have_arrived)
    return found


async def test_a_task_gets_messages_while_it_works_and_after_its_end(
    stack: Stack, directory: Path, codex: AgentCli
) -> None:
    """The first message joins its turn; after its end, the task still knows its conversation."""
    workspace = directory / "workspace"
    async with fleet_of(stack, codex, workspace, workers=2, permissions="auto"):
        parent = await stack.append(spawn("one"))
        sid = parent.session.sid
        await stack.outcome(parent)
        (child,) = await stack.fleet.sessions.children(sid)

        async def is_at_work() -> bool:
            return await attempt_of(stack, child.sid) == 1

        await eventually(is_at_work)
        first = await send_to_task(stack, "SAY:and-the-images")
        (workspace / "go-one").touch()
        (result,) = await results_of(stack, sid, 1)
        second = await send_to_task(stack, "RECALL")
        _, recalled = await results_of(stack, sid, 2)

    assert (first["taken"], second["taken"]) == ("joined", "continued")
    assert first["runs"][0]["runId"] == f"{child.sid}-{child.task_entry}"
    assert second["runs"][0]["runId"] != first["runs"][0]["runId"]
    assert "one-is-done" in result or "and-the-images" in result  # the last text of the task
    # The task's model got the text, even if the scripted model did not answer it.
    of_task = [body for body in codex.model.bodies().splitlines() if "TOOL:subagents" not in body]
    assert any("SAY:and-the-images" in body for body in of_task)
    assert recalled.startswith("RECALL")
    assert "echo one-is-done" in recalled


async def test_agents_that_ask_each_other_do_not_deadlock(
    stack: Stack, directory: Path, codex: AgentCli
) -> None:
    """One agent asks another, which asks back; then as many ask at once as there are workers."""
    async with fleet_of(stack, codex, directory / "workspace", workers=2):
        a, b, c = [await stack.append("SAY:ready", from_=who) for who in ("alice", "bob", "berta")]
        await asyncio.gather(*map(stack.outcome, (a, b, c)))
        back = sending(a, "SAY:and A again")
        answer = await stack.ask(sending(b, back))
        answers = await asyncio.gather(
            stack.ask(sending(b, "SAY:pong")), stack.ask(sending(c, "SAY:pong"), from_="anna")
        )
        # A message is answered even if its sender no longer waits.
        for other in (b, c):
            sid = other.session.sid

            async def is_answered(sid: str = sid) -> bool:
                return "SAY:pong" in await messages_to(stack, sid)

            await eventually(is_answered)

    plain = answer.replace("\\", "")
    assert '"status":"answered"' in plain.replace(" ", "")
    assert "waits for the result of this turn: your answer is sent there" in plain
    for answer in answers:
        plain = answer.replace("\\", "").replace(" ", "")
        has_answer = '"status":"answered"' in plain and "pong" in plain
        assert has_answer or (
            '"status":"accepted"' in plain and "sessions_historyhasitlater" in plain
        )


def sending(to: Accepted, text: str) -> str:
    """Return a directive that makes an agent ask another session."""
    asked = {"sessionKey": str(to.session), "message": text, "timeout": 100}
    return f"TOOL:sessions_send:{json.dumps(asked)}"
