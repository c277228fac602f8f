"""What an agent's next process asks of its model: what the last one asked, and the new message.

The provider reads the rest from its cache; a conversation of 100,000 tokens is not paid for again.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from remoteclaw.fleet.inbound import Accepted
from tests.conftest import required
from tests.support.agents import ModelServerProcess
from tests.support.doors import gateway_process
from tests.support.prefixes import added, asked
from tests.support.stack import Stack, said
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(180)

#: Whose messages are an owner's.
OWNERS = {"test": {"owners": ["alice"]}}


@pytest.fixture
async def served(stack: Stack) -> AsyncIterator[Stack]:
    """A stack with a gateway, so that its agents have tools, and with a sweeper, as `up` has it."""
    async with gateway_process(stack):
        sweeping = asyncio.create_task(stack.fleet.sweeper.run())
        yield stack
        sweeping.cancel()


def word(text: str) -> str:
    """Return a text that no other request has."""
    return f"{text}-{uuid.uuid4().hex[:8]}"


# -- one process, whoever writes -----------------------------------------------------------------


async def spawned(stack: Stack, accepted: Accepted) -> list[str]:
    """Return how the agent of each turn of a session came, in their order."""
    sid = accepted.session.sid
    names = [name async for name in stack.fleet.scripts.client.scan_iter(f"rc:oc:{{{sid}}}:*")]
    entries = sorted(name.decode().rpartition(":")[2] for name in names)
    outcomes = [await stack.fleet.outcomes.read(sid, entry) for entry in entries]
    return [
        step.detail
        for outcome in outcomes
        if outcome
        for step in outcome.steps
        if step.name == "spawned"
    ]


async def test_one_process_answers_whoever_has_written(
    served: Stack, model_server: ModelServerProcess
) -> None:
    """An owner, a cron job, a task's result, the owner again, a stranger in the same group."""
    stack = served
    cli = required("claude", model_server)
    stack.configure(cli.config(), channels=OWNERS)
    for _ in range(2):
        await stack.start_worker()
    first, last, result, fired, theirs = map(word, ("first", "last", "result", "fired", "theirs"))

    accepted = await stack.append(f"SAY:{first}")
    await stack.outcome(accepted)
    job = {"name": "plants", "schedule": {"every": 3600}, "message": f"SAY:{fired}"}
    told = await stack.ask(f"TOOL:cron_add:{json.dumps({'job': job})}")
    job_id = json.JSONDecoder().raw_decode(told[told.index("{") :])[0]["job"]["id"]
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

    came = await spawned(stack, accepted)
    assert [detail.partition(" ")[0] for detail in came] == ["new", *["warm"] * 6]
    assert len({detail.rpartition(" ")[2] for detail in came}) == 1
    assert "cron_list here: it answers only to an owner" in said(refused)
    for before, after in ((first, fired), (fired, last), (last, theirs)):
        assert added(asked(model_server, before), asked(model_server, after))
