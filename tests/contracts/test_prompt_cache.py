"""The first request of an agent's next process: the last request, and only the new message added.

The provider reads the rest from its cache; a conversation of 100,000 tokens is not paid for again.
"""

import asyncio
import itertools
import json
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from tests.conftest import required
from tests.support.agents import ModelServerProcess
from tests.support.doors import gateway_process
from tests.support.prefixes import added, asked, word
from tests.support.processes import is_alive
from tests.support.stack import Stack, said
from tests.support.waiting import eventually

#: The senders who are owners.
OWNERS = {"test": {"owners": ["alice"]}}


@pytest.fixture
async def served(stack: Stack) -> AsyncIterator[Stack]:
    """A stack with a gateway, so that its agents have tools, and with a sweeper, as `up` has it."""
    async with gateway_process(stack):
        sweeping = asyncio.create_task(stack.fleet.sweeper.run())
        yield stack
        sweeping.cancel()


# -- a new process --------------------------------------------------------------------------------


async def ended(stack: Stack, accepted: Accepted) -> None:
    """Wait until a session's agent has ended because it was idle."""
    pid = int((await stack.reached(accepted, "spawned")).rpartition(" ")[2])
    await eventually(lambda: not is_alive(pid))


def roles(messages: list[dict[str, Any]]) -> list[str]:
    return [str(message["role"]) for message in messages]


@pytest.mark.thorough("opencode", "codex")
@pytest.mark.parametrize(
    ("name", "times"),
    [("claude", 2), ("codex", 3), ("opencode", 2)],
    ids=["claude", "codex", "opencode"],
)
async def test_after_an_idle_time_a_request_adds_only_the_new_message(
    name: str, times: int, served: Stack, model_server: ModelServerProcess
) -> None:
    """Also if the workspace has changed, and also for a third process."""
    stack = served
    stack.configure(required(name, model_server).config(warm_s=1), channels=OWNERS)
    await stack.start_worker()
    workspace = stack.home.path / "workspaces" / "main"
    workspace.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", workspace], check=True)
    texts = [word("said") for _ in range(times)]

    for text in texts:
        (workspace / f"{text}.txt").touch()
        accepted = await stack.append(f"SAY:{text}")
        await stack.outcome(accepted)
        assert (await stack.reached(accepted, "spawned")).startswith("new")
        await ended(stack, accepted)

    for before, after in itertools.pairwise(asked(model_server, text) for text in texts):
        assert roles(added(before, after)) == ["assistant", "user"]


# -- one process for all senders ------------------------------------------------------------------


async def spawned(stack: Stack, accepted: Accepted) -> list[str]:
    """Return the details of the step `spawned` of all turns of a session, in order."""
    sid = accepted.session.sid
    names = [name async for name in stack.fleet.scripts.client.scan_iter(keys.outcome(sid, "*"))]
    entries = sorted(name.decode().rpartition(":")[2] for name in names)
    outcomes = [await stack.fleet.outcomes.read(sid, entry) for entry in entries]
    return [
        step.detail
        for outcome in outcomes
        if outcome
        for step in outcome.steps
        if step.name == "spawned"
    ]


async def test_one_process_answers_the_messages_of_all_senders(
    served: Stack, model_server: ModelServerProcess
) -> None:
    """An owner, a cron job, a task's result, the owner again, and a stranger in the same group."""
    stack = served
    stack.configure(required("codex", model_server).config(), channels=OWNERS)
    for _ in range(2):
        await stack.start_worker()
    first, last, result, fired, theirs = map(word, ("first", "last", "result", "fired", "theirs"))

    accepted = await stack.append(f"SAY:{first}")
    await stack.outcome(accepted)
    job = {"name": "plants", "schedule": {"every": 3600}, "message": f"SAY:{fired}"}
    reply = await stack.ask(f"TOOL:cron_add:{json.dumps({'job': job})}")
    job_id = json.JSONDecoder().raw_decode(reply[reply.index("{") :])[0]["job"]["id"]
    await stack.ask(f"TOOL:cron_run:{json.dumps({'jobId': job_id})}")
    await eventually(lambda: model_server.bodies().count(f"SAY:{fired}") > 2)
    await stack.ask(f"TOOL:sessions_spawn:{json.dumps({'prompt': f'SAY:{result}'})}")
    await eventually(lambda: "result_of" in model_server.bodies())
    await stack.until_idle(accepted)
    await stack.ask(f"SAY:{last}")
    entry = await stack.write(
        accepted.session, f"{theirs} TOOL:cron_list:{{}}", "chat", from_="mallory"
    )
    refused = await stack.outcome(replace(accepted, entry_id=entry))

    details = await spawned(stack, accepted)
    kinds = [detail.partition(" ")[0] for detail in details]
    assert kinds == ["new", *["warm"] * (len(details) - 1)]
    assert len({detail.rpartition(" ")[2] for detail in details}) == 1
    assert len(details) >= 7  # a turn that follows another one at once may lack this step
    assert "cron_list here: it answers only to an owner" in said(refused)
    for before, after in ((first, fired), (fired, last), (last, theirs)):
        assert added(asked(model_server, before), asked(model_server, after))
