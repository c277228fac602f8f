"""Messages from other sessions to a chat, noted for the conversation of that chat."""

from typing import Any

import orjson
import pytest

from remoteclaw.fleet import keys
from remoteclaw.gateway.methods.messages import HANDLERS
from remoteclaw.messages import SessionKey
from tests.support.stack import Stack, message
from tests.support.turns import Turn, ask, begin_turn, gateway, operator


@pytest.fixture
async def turn(stack: Stack) -> Turn:
    """A turn of an owner in another chat."""
    return await begin_turn(stack, HANDLERS)


async def chat_of(
    stack: Stack, user: str, *, is_shared: bool = False, agent: str = "main", **fields: Any
) -> SessionKey:
    """Create a chat with a conversation: one person's, or one that all share."""
    chat = "team" if is_shared else user
    written = message("hello", from_=user, **{"channel_id": chat, **fields})
    accepted = await stack.fleet.inbound.append(written, agent=agent, is_shared=is_shared)
    return accepted.session


async def notes_of(stack: Stack, session: SessionKey) -> list[dict[str, Any]]:
    client: Any = stack.fleet.scripts.client
    return [
        orjson.loads(line) for line in await client.lrange(keys.aside_notes(session.sid), 0, -1)
    ]


async def test_a_message_from_another_session_is_noted_in_the_chats_conversation(
    stack: Stack, turn: Turn
) -> None:
    """Once per call, for a person's conversation and for a shared one."""
    bob, team = await chat_of(stack, "bob"), await chat_of(stack, "carol", is_shared=True)
    topic = await chat_of(stack, "carol", is_shared=True, thread_id="t1")
    await turn.call("message_send", "c1", target="bob", message="The build is red.")
    await turn.call("message_send", "c1", target="bob", message="The build is red.")
    await turn.call("message_broadcast", targets=["bob", "team"], message="Green again.")

    sender = str(turn.lease.session)
    first, second = await notes_of(stack, bob)
    assert (first["from"], first["sent"]) == (sender, "The build is red.")
    assert isinstance(first["at"], int)
    assert second["sent"] == "Green again."
    assert [one["sent"] for one in await notes_of(stack, team)] == ["Green again."]
    assert await notes_of(stack, topic) == []


async def test_a_message_to_a_group_is_noted_for_the_agent_to_which_it_belongs(
    stack: Stack, turn: Turn
) -> None:
    with stack.home.config_file.open("a") as file:
        file.write('[agents.web]\nruntime = "demo"\n')
    before = await chat_of(stack, "carol", is_shared=True)
    await stack.fleet.pairings.add("test", "default", "team", name="", by="alice", agent="web")
    team = await chat_of(stack, "carol", is_shared=True, agent="web")
    await turn.call("message_send", target="team", message="The build is red.")

    assert [one["sent"] for one in await notes_of(stack, team)] == ["The build is red."]
    assert await notes_of(stack, before) == []


async def test_a_sessions_message_to_its_own_chat_is_not_noted(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS, from_="alice", channel_id="alice")
    await turn.call("message_reply", message="I look.")
    await turn.call("message_send", target="alice", message="I look.")

    assert await notes_of(stack, turn.lease.session) == []


async def test_nothing_is_noted_for_a_chat_without_a_conversation(stack: Stack, turn: Turn) -> None:
    await turn.call("message_send", target="nobody", message="Hello?")

    assert await stack.fleet.scripts.client.keys(keys.aside_notes("*")) == []


async def test_an_operators_message_is_noted_too(stack: Stack) -> None:
    bob = await chat_of(stack, "bob")
    door = gateway(stack.fleet, stack.home, HANDLERS)
    await ask(door, operator(), "message.send", target="test:bob", message="x" * 5000)

    (line,) = await notes_of(stack, bob)
    assert line["from"] == "an operator"
    assert line["sent"] == f"{'x' * 1000} …"


async def test_a_message_to_a_persons_chat_is_noted_in_the_conversation_there(
    stack: Stack, turn: Turn
) -> None:
    """Also in a conversation that is with another agent than the first."""
    with stack.home.config_file.open("a") as file:
        file.write('[agents.other]\nruntime = "demo"\n')
    assert await stack.fleet.replies.reader("web", "default").claim()
    chat = await chat_of(stack, "admin.ada", provider="web", channel_id="admin.ada")
    message = {"from": "admin.ada", "text": "hello", "files": []}
    await stack.fleet.web.add(
        "admin.ada", "message", message, once="", keep_ms=60_000, by_person_to="main"
    )
    await turn.call("message_send", target="web:admin.ada", message="Done.")

    assert [one["sent"] for one in await notes_of(stack, chat)] == ["Done."]


async def test_the_newest_fifty_notes_are_kept_for_a_week(stack: Stack, turn: Turn) -> None:
    bob = await chat_of(stack, "bob")
    for number in range(52):
        await turn.call("message_send", target="bob", message=f"{number}")
    kept = await notes_of(stack, bob)
    left_ms = await stack.fleet.scripts.client.pttl(keys.aside_notes(bob.sid))
    await stack.fleet.records.forget(bob.sid)

    assert [one["sent"] for one in (kept[0], kept[-1])] == ["2", "51"]
    assert 0 < left_ms <= 7 * 24 * 3600 * 1000
    assert await notes_of(stack, bob) == []
