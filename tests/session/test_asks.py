"""What an agent may not do by itself: people are asked, and their answer outlives every process."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.commands import Asked
from remoteclaw.commands.answering import ENDED, NOT_YOURS, answer_request, by_number
from remoteclaw.config.load import load_config
from remoteclaw.fleet import keys
from remoteclaw.fleet.asks import Request, Verdict
from remoteclaw.fleet.inbound import Accepted
from remoteclaw.fleet.outcomes import Outcome
from tests.support.asks import BODY, open_request
from tests.support.bridges import acp_script
from tests.support.conversations import drain
from tests.support.stack import Stack, said

OWNER, GUEST = "alice", "bob"


@pytest.fixture
async def agent(stack: Stack, directory: Path) -> Stack:
    """A stack whose agent asks for each message whether it may run it."""
    stack.agent = {"runtime": "acp", "command": list(acp_script(directory, BODY))}
    stack.configure(stack.agent)
    return stack


async def answered(
    stack: Stack, request: Request, verdict: Verdict, *, by: str = OWNER, words: str = ""
) -> str:
    """Answer a request as a person in the chat, and return what they are told."""
    return await answer_request(
        stack.fleet,
        load_config(stack.home.config_file, {}),
        request,
        verdict,
        by=f"test:{by}",
        name=by,
        is_owner=by == OWNER,
        words=words,
    )


async def answer(stack: Stack, text: str) -> None:
    """Send a message, and wait until it is answered."""
    accepted = await stack.append(text)
    await drain(stack, accepted)
    await stack.outcome(accepted)


async def sooner(stack: Stack, request: Request) -> None:
    """Have the time be over for which a turn waits."""
    client = stack.fleet.scripts.client
    await client.zadd(keys.ASKS, {request.id: 1})
    await stack.fleet.asks.let_lapse()
    await client.publish(keys.bell(request.session.sid), "")


async def newest(stack: Stack, accepted: Accepted) -> Outcome:
    """Return the outcome of a session's newest entry."""
    client: Any = stack.fleet.scripts.client
    entry = await client.hget(keys.state(accepted.session.sid), "last_entry")
    assert entry is not None
    return await stack.outcome(replace(accepted, entry_id=entry.decode()))


async def shown(stack: Stack) -> AsyncIterator[str]:
    """Yield what is on the chat's reply stream."""
    client: Any = stack.fleet.scripts.client
    for _, fields in await client.xrange(keys.reply_stream("test", "default")):
        yield orjson.loads(fields[b"reply"])["text"]


async def test_a_turn_waits_for_the_answer(agent: Stack) -> None:
    accepted = await agent.append("touch x")
    task = drain(agent, accepted)
    request = await open_request(agent)

    assert (request.what, request.tool) == ("touch x", "touch x")
    assert (await answered(agent, request, "once")).startswith("Allowed once by alice")
    await task

    assert said(await agent.outcome(accepted)) == "I try.\n\ntouch x yes"


async def test_a_denial_has_a_reason_and_the_first_answer_counts(agent: Stack) -> None:
    accepted = await agent.append("touch x")
    task = drain(agent, accepted)
    request = await open_request(agent)

    assert await answered(agent, request, "once", by=GUEST) == NOT_YOURS
    assert "“not now”" in await answered(agent, request, "deny", words="not now")
    late = await answered(agent, request, "once")
    await task

    assert late.startswith("It was answered before: Denied by alice at ")
    assert "touch x no" in said(await agent.outcome(accepted))


async def test_what_is_allowed_for_the_conversation_is_asked_once(agent: Stack) -> None:
    for _ in range(2):  # the second turn has a process of its own
        accepted = await agent.append("touch x")
        task = drain(agent, accepted)
        if not await agent.fleet.asks.rules(accepted.session.sid):
            await answered(agent, await open_request(agent), "conversation")
        await task
        assert "touch x yes" in said(await agent.outcome(accepted))

    other = await agent.append("touch y")
    task = drain(agent, other)
    await answered(agent, await open_request(agent), "deny")
    await task

    await answer(agent, "/new")
    accepted = await agent.append("touch x")
    task = drain(agent, accepted)
    await answered(agent, await open_request(agent), "deny")
    await task
    assert "touch x no" in said(await agent.outcome(accepted))


async def test_a_later_answer_wakes_the_session_and_passes_once(agent: Stack) -> None:
    agent.configure(agent.agent, approvals={"hold_s": 5})
    accepted = await agent.append("touch x")
    task = drain(agent, accepted)
    request = await open_request(agent)
    await sooner(agent, request)
    await task
    told = await agent.outcome(accepted)
    assert (told.status, "I wait for an answer to request" in said(told)) == ("done", True)

    assert (await answered(agent, request, "once")).endswith("The agent is told to go on.")
    await drain(agent, accepted)
    woken = await newest(agent, accepted)
    assert "touch x yes" in said(woken)

    again = await agent.append("touch x")
    task = drain(agent, again)
    second = await open_request(agent)
    assert second.id != request.id
    await answered(agent, second, "deny")
    await task


async def test_a_request_is_void_once_it_is_stopped(agent: Stack) -> None:
    accepted = await agent.append("touch x")
    task = drain(agent, accepted)
    request = await open_request(agent)

    await agent.fleet.sessions.stop(accepted.session.sid)
    assert await answered(agent, request, "once") == ENDED["void"]
    await task

    assert (await agent.outcome(accepted)).status == "stopped"
    assert await agent.fleet.asks.waiting() == []


async def test_the_next_attempt_takes_over_the_request_with_its_answer(agent: Stack) -> None:
    accepted = await agent.append("touch x")
    task = drain(agent, accepted)
    request = await open_request(agent)
    task.cancel()
    await asyncio.wait((task,))
    await agent.fleet.scripts.client.hset(keys.state(accepted.session.sid), "lease_until_ms", 1)

    await answered(agent, request, "once")
    await drain(agent, accepted)

    assert "touch x yes" in said(await agent.outcome(accepted))
    cards = [text async for text in shown(agent) if "asks to use" in text]
    assert [("Allowed once" in text) for text in cards] == [False, True]


async def test_the_last_worker_is_let_go_for_another_session(agent: Stack) -> None:
    accepted = await agent.append("touch x")
    task = drain(agent, accepted)
    await open_request(agent)

    await agent.append("touch y", channel_id="chat-2")
    await task

    assert "I wait for an answer" in said(await agent.outcome(accepted))


async def test_a_chat_reads_once_what_became_of_a_request(agent: Stack) -> None:
    """The message that shows it says so; who answers by a command there isn't told it again."""
    accepted = await agent.append("touch x")
    task = drain(agent, accepted)
    await open_request(agent)
    asked = Asked(
        id="1",
        rest="",
        session=accepted.session,
        sender=OWNER,
        is_owner=True,
        fleet=agent.fleet,
        config=load_config(agent.home.config_file, {}),
        home=agent.home,
    )

    told = await by_number("1", asked)
    await task

    assert told is not None
    assert told.text == ""
    cards = [text async for text in shown(agent) if "Allowed once by alice" in text]
    assert len(cards) == 1
