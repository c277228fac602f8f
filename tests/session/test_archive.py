"""Ended conversations: operators end, list, export and forget them."""

import asyncio
import json
from typing import Any

import pytest

from remoteclaw.errors import CallError, CallRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.gateway.methods.sessions import HANDLERS as OPERATORS
from remoteclaw.session.notices import RESET
from tests.support.cli import refused, run
from tests.support.conversations import answers, append, busy, drain, ended, recorded, talk
from tests.support.stack import REPLIES, Stack
from tests.support.turns import begin_turn, gateway, operator
from tests.support.waiting import eventually

HANDLERS = dict(OPERATORS)
NO_ARCHIVE = "No ended conversation of this session is kept.\n"


async def reset(stack: Stack, session_key: str, **params: Any) -> Any:
    """End a conversation with the gateway's method `sessions.reset`."""
    options = {"call_id": params.pop("call_id")} if "call_id" in params else {}
    result, _ = await gateway(stack.fleet, stack.home, HANDLERS).call(
        operator(), "sessions.reset", {"sessionKey": session_key, **params}, **options
    )
    return result


async def refusal_of(stack: Stack, session_key: str, **params: Any) -> tuple[CallError, str]:
    """Return the code and the message of the refusal of a reset."""
    with pytest.raises(CallRefused) as refusal:
        await reset(stack, session_key, **params)
    return refusal.value.code, str(refusal.value)


@pytest.fixture
async def archived(agent: Stack) -> Accepted:
    """Return the first message of a session with two archived conversations and a third one."""
    first = await agent.append("one")
    await drain(agent, first)
    await talk(agent, "one more", "/new", "two", "/reset three")
    return first


# -- list, export and forget ------------------------------------------------------------------


async def test_ended_conversations_are_listed(agent: Stack, archived: Accepted) -> None:
    lines = run(agent, "sessions", "archive", str(archived.session)).stdout.splitlines()

    assert lines[0].split() == ["NUMBER", "ENDED", "MESSAGES", "WHY"]
    assert [(line.split()[0], *line.split()[3:]) for line in lines[1:]] == [
        ("1", "1", "/reset"),
        ("2", "2", "/new"),
    ]


async def test_ended_conversations_can_be_exported(agent: Stack, archived: Accepted) -> None:
    def exported(*options: str) -> list[str]:
        output = run(agent, "sessions", "export", archived.session.sid, *options).stdout
        lines = [json.loads(line) for line in output.splitlines()]
        return [line["text"] for line in lines if line["role"] == "user"]

    assert exported() == ["three"]
    assert exported("--archived", "1") == ["two"]
    assert exported("--archived", "2") == ["one", "one more"]
    none = run(agent, "sessions", "export", archived.session.sid, "--archived", "3")
    refused(none, "There is no ended conversation 3 of")


async def test_forgetting_a_session_removes_its_archive_too(
    agent: Stack, archived: Accepted
) -> None:
    assert run(agent, "sessions", "forget", archived.session.sid).stdout == "It is gone.\n"

    names = [name async for name in agent.fleet.scripts.client.scan_iter(keys.archive("*") + "*")]
    assert names == []
    assert await recorded(agent, archived) == []
    again = run(agent, "sessions", "forget", archived.session.sid).stdout
    assert again == "Nothing was recorded of this conversation.\n"
    assert run(agent, "sessions", "archive", archived.session.sid).stdout == NO_ARCHIVE


async def test_a_session_of_which_only_the_archive_is_left_is_found(
    agent: Stack, archived: Accepted
) -> None:
    client, sid = agent.fleet.scripts.client, archived.session.sid
    await client.delete(keys.state(sid), keys.record(sid))

    assert run(agent, "sessions", "archive", sid).stdout.count("\n") == 3
    assert run(agent, "sessions", "forget", sid).stdout == "It is gone.\n"
    refused(run(agent, "sessions", "archive", sid), "is no session")


async def test_an_expired_archived_conversation_is_not_listed(
    agent: Stack, archived: Accepted
) -> None:
    client, sid = agent.fleet.scripts.client, archived.session.sid
    lines: Any = await client.lrange(keys.archive(sid), 0, -1)
    await client.delete(f"{keys.archive(sid)}:{lines[1].decode().split()[0]}")

    assert [one.why for one in await agent.fleet.records.ended(sid)] == ["/reset"]


# -- operators --------------------------------------------------------------------------------


async def test_an_operator_ends_an_idle_conversation(agent: Stack) -> None:
    first = await agent.append("one")
    await drain(agent, first)
    ending = asyncio.create_task(reset(agent, str(first.session), reason="new"))
    await serve(agent, first)

    assert (await ending).session_key == str(first.session)
    assert [one.why for one in await agent.fleet.records.ended(first.session.sid)] == [
        "operator: new"
    ]
    assert await talk(agent, "two") == ["heard two, knew -"]
    assert await agent.fleet.scripts.client.xlen(REPLIES) == 2  # nothing in the chat


async def serve(stack: Stack, accepted: Accepted) -> None:
    """Wait until a session has an entry, and run it like a work-horse."""

    async def has_work() -> bool:
        view = await stack.fleet.sessions.view(accepted.session.sid)
        return view is not None and view.waiting > 0

    await eventually(has_work)
    await drain(stack, accepted)


async def test_without_a_worker_a_reset_waits_and_runs_before_later_messages(
    agent: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.gateway.methods.sessions.RESET_S", 0.05)
    first = await agent.append("one")
    await drain(agent, first)

    code, reason = await refusal_of(agent, first.session.sid)

    assert code == "TIMEOUT"
    assert "It ends as soon as possible, before any other message is answered" in reason
    assert await talk(agent, "two") == ["heard two, knew -"]


async def test_an_operators_reset_stops_the_running_turn_and_waiting_messages(agent: Stack) -> None:
    first, task = await busy(agent)
    (waiting,) = await append(agent, "waiting")
    result = await reset(agent, str(first.session))
    after = await agent.append("two")
    await task
    await drain(agent, after)

    assert result.session_key == str(first.session)
    statuses = [(await agent.outcome(each)).status for each in (first, waiting)]
    assert statuses == ["stopped", "stopped"]
    assert await answers(agent, after) == ["heard two, knew -"]


async def test_neither_a_stop_nor_a_second_reset_cancels_an_operators_reset(agent: Stack) -> None:
    first = await agent.append("one")
    await drain(agent, first)
    inbound, sid = agent.fleet.inbound, first.session.sid
    entries = [await inbound.end_conversation(first.session, "new", call=call) for call in "ab"]
    assert await agent.fleet.sessions.stop(sid) == 2
    await drain(agent, first)

    outcomes = [await agent.fleet.outcomes.read(sid, entry_id) for entry_id in entries]
    assert [outcome and outcome.status for outcome in outcomes] == ["done", "done"]
    assert await ended(agent, first) == ["one"]


async def test_a_repeated_reset_call_ends_no_other_conversation(agent: Stack) -> None:
    first = await agent.append("one")
    await drain(agent, first)
    ending = asyncio.create_task(reset(agent, str(first.session), call_id="c"))
    await serve(agent, first)
    await ending
    await talk(agent, "two")

    await reset(agent, str(first.session), call_id="c")

    assert await ended(agent, first) == ["one"]
    assert await talk(agent, "three") == ["heard three, knew two"]


async def test_a_reset_whose_redis_reply_is_lost_is_stored_once(agent: Stack) -> None:
    first = await agent.append("one")
    await drain(agent, first)
    proxy = await agent.proxied()
    lost = proxy.arm("append", "after")
    lost.cut()
    fleet = agent.open_at(proxy.url)

    await fleet.inbound.end_conversation(first.session, "reset", call="c")

    assert lost.reached.is_set()
    view = await agent.fleet.sessions.view(first.session.sid)
    assert view is not None
    assert view.waiting == 1


async def test_a_session_whose_state_has_expired_is_reset_by_its_key(
    agent: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record outlives the state; without a reset, the next agent would get it as notes."""
    monkeypatch.setattr("remoteclaw.gateway.methods.sessions.RESET_S", 0.05)
    first = await agent.append("one")
    await drain(agent, first)
    client, sid = agent.fleet.scripts.client, first.session.sid
    await client.delete(keys.state(sid), keys.session_map(sid))

    assert "give its key" in (await refusal_of(agent, sid))[1]
    assert (await refusal_of(agent, str(first.session)))[0] == "TIMEOUT"

    before = len((agent.home.path / "workspaces" / "main" / "prompts").read_text())
    await talk(agent, "two")
    prompts = (agent.home.path / "workspaces" / "main" / "prompts").read_text()
    assert "conversation_before" not in prompts[before:]


async def test_an_agent_may_not_reset_a_conversation(agent: Stack) -> None:
    turn = await begin_turn(agent, HANDLERS)

    with pytest.raises(CallRefused) as refusal:
        await turn.call("sessions.reset", sessionKey=str(turn.lease.session))

    assert refusal.value.code == "FORBIDDEN"


async def test_a_chat_message_with_the_text_of_an_operators_reset_resets_nothing(
    agent: Stack,
) -> None:
    assert await talk(agent, "operator: reset") == ["heard operator: reset, knew -"]


# -- the command line -------------------------------------------------------------------------


async def test_the_command_line_ends_a_conversation(stack: Stack) -> None:
    await stack.start_worker()
    first = await stack.append("hello")
    await stack.outcome(first)

    result = run(stack, "sessions", "reset", str(first.session))

    assert (result.returncode, result.stdout) == (0, "The conversation has ended.\n")
    assert "operator: reset" in run(stack, "sessions", "archive", first.session.sid).stdout
    assert "- hello" not in await stack.ask("memory")


async def test_the_command_line_reports_that_no_worker_can_reset_the_session(agent: Stack) -> None:
    first = await agent.append("one")
    await drain(agent, first)

    result = run(agent, "sessions", "reset", first.session.sid)

    assert (result.returncode, result.stdout) == (3, "")
    assert "It ends as soon as possible, before any other message is answered" in result.stderr
    assert await talk(agent, "/new") == [RESET]
