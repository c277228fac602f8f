"""The chat tools that do not send messages: react, delete, pin, read."""

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge.side_effects import side_effects_of
from remoteclaw.channels.relay import LATE
from remoteclaw.errors import CallRefused
from remoteclaw.gateway.methods.messages import HANDLERS
from remoteclaw.messages import McpSideEffects
from tests.support.platform import Platform
from tests.support.stack import REPLIES, Stack
from tests.support.turns import Turn, ask, gateway, operator
from tests.support.waiting import eventually


async def waiting(stack: Stack) -> int:
    return int(await stack.fleet.scripts.client.xlen(REPLIES))


async def has_more(stack: Stack, count: int) -> bool:
    return await waiting(stack) > count


async def test_a_reaction_is_added_and_removed(served: Platform, turn: Turn) -> None:
    message_id = served.say("chat-1", "bo", "hi")

    assert await turn.call("message_react", messageId=message_id, emoji="👍🏽") == {
        "status": "done"
    }
    assert served.chat("chat-1")[0].reaction == "👍🏽"

    await turn.call("message_react", messageId=message_id, emoji="")
    assert served.chat("chat-1")[0].reaction == ""


async def test_a_message_is_pinned_and_deleted(served: Platform, turn: Turn) -> None:
    sent = await turn.call("message_reply", message="hi")

    await turn.call("message_pin", messageId=sent["messageId"])
    assert served.chat("chat-1")[0].is_pinned

    await turn.call("message_delete", messageId=sent["messageId"])
    assert served.chat("chat-1") == []


async def test_messages_are_read_and_only_owners_read_other_chats(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    for text in ("one", "two", "three"):
        served.say("chat-1", "bo", text)
    served.say("chat-2", "al", "elsewhere")
    stack.configure(channels={})  # alice is no owner

    here = await turn.call("message_read", limit=2)
    with pytest.raises(CallRefused, match="may read the current chat only"):
        await turn.call("message_read", channelId="chat-2")
    stack.configure()
    there = await turn.call("message_read", channelId="chat-2")

    assert [(each["from"], each["text"]) for each in here["messages"]] == [
        ("bo", "two"),
        ("bo", "three"),
    ]
    assert [each["text"] for each in there["messages"]] == ["elsewhere"]


async def test_chats_of_other_channels_are_not_read(
    stack: Stack, served: Platform, directory: Path, turn: Turn
) -> None:
    other = Platform(directory / "other", "other")
    stack.configure(channels={"test": {"owners": ["alice"]}})
    async with other.served(stack.fleet):
        with pytest.raises(CallRefused, match="is for chats of test here"):
            await turn.call("message_read", channelId="other:1")

    assert (served.events, other.events) == ([], [])


async def test_an_operation_is_noted_for_a_retry_and_not_as_a_message(
    served: Platform, turn: Turn
) -> None:
    message_id = served.say("chat-1", "bo", "hi")

    _, effects = await turn.noted("message_react", messageId=message_id, emoji="x")
    await turn.call("message_read")
    noted = await turn.lease.turns.side_effects()

    assert effects == []
    assert [(note["tool"], note["messageId"]) for note in noted] == [("message_react", message_id)]
    assert side_effects_of(noted) == McpSideEffects()


async def test_an_operator_has_to_name_a_session_or_a_channel(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    door, key = gateway(stack.fleet, stack.home, HANDLERS), str(turn.lease.session)
    message_id = served.say("chat-1", "bo", "hi")

    with pytest.raises(CallRefused, match="name the session by sessionKey"):
        await ask(door, operator(), "message.pin", messageId=message_id)
    await ask(door, operator(), "message.pin", messageId=message_id, session_key=key)
    read, _ = await ask(door, operator("read"), "message.read", channelId="test:chat-1")

    assert served.chat("chat-1")[0].is_pinned
    assert [each["text"] for each in read["messages"]] == ["hi"]


async def test_operations_and_messages_keep_their_order(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    message_id = served.say("chat-1", "bo", "hi")
    served.tell(is_held=True)
    calls = [asyncio.create_task(turn.call("message_reply", message="one"))]
    await eventually(lambda: served.did("held"))
    react = turn.call("message_react", messageId=message_id, emoji="x")
    for call in (react, turn.call("message_reply", message="two")):
        count = await waiting(stack)
        calls.append(asyncio.create_task(call))
        await eventually(functools.partial(has_more, stack, count))

    served.tell()
    await asyncio.gather(*calls)

    done = [event["event"] for event in served.events]
    assert done == ["said", "held", "delivered", "react", "delivered"]
    assert served.texts == ["one", "two"]


async def test_a_repeated_operation_does_nothing_and_returns_the_same_result(
    served: Platform, turn: Turn
) -> None:
    sent = await turn.call("message_reply", message="hi")

    for _ in range(2):
        done = await turn.call("message_delete", "c1", messageId=sent["messageId"])
        assert done == {"status": "done"}

    assert len(served.did("delete")) == 1


# -- failures -------------------------------------------------------------------------------------


async def test_an_operation_that_the_platform_lacks_is_refused(
    served: Platform, turn: Turn
) -> None:
    message_id = served.say("chat-1", "bo", "hi")
    served.tell(lacks=["pin"])

    with pytest.raises(CallRefused, match="This platform has no such thing as pin"):
        await turn.call("message_pin", messageId=message_id)
    await turn.call("message_react", messageId=message_id, emoji="x")

    assert served.chat("chat-1")[0].reaction == "x"


async def test_an_adapter_error_is_reported_and_does_not_block_later_calls(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    served.tell(breaks=True)
    with pytest.raises(CallRefused, match="The platform is away"):
        await turn.call("message_read")
    served.tell()

    assert (await turn.call("message_reply", message="hi"))["status"] == "delivered"
    assert await waiting(stack) == 0


async def test_without_an_adapter_an_operation_is_refused_at_once(stack: Stack, turn: Turn) -> None:
    with pytest.raises(CallRefused, match="No adapter reads test now") as refusal:
        await turn.call("message_react", messageId="m1", emoji="x")

    assert refusal.value.code == "UNAVAILABLE"
    assert await waiting(stack) == 0


async def test_an_operation_that_has_waited_too_long_is_not_done(
    stack: Stack, served: Platform, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.gateway.send.RECEIPT_S", 0.1)
    monkeypatch.setattr("remoteclaw.gateway.methods.messages.BEGIN_S", 0.1)
    monkeypatch.setattr("remoteclaw.gateway.methods.messages.OPERATION_S", 0.3)
    message_id = served.say("chat-1", "bo", "hi")
    served.tell(is_held=True)
    await turn.call("message_reply", message="one")

    with pytest.raises(CallRefused, match="will not do it any more") as refusal:
        await turn.call("message_delete", "c1", messageId=message_id)
    served.tell()
    await turn.call("message_reply", message="two")
    await eventually(lambda: served.texts == ["one", "two"])

    assert refusal.value.code == "TIMEOUT"
    assert served.did("delete") == []
    assert await waiting(stack) == 0
    with pytest.raises(CallRefused) as repeated:
        await turn.call("message_delete", "c1", messageId=message_id)
    assert str(repeated.value) == LATE


async def test_an_operation_times_out_and_does_not_block_later_messages(
    stack: Stack, served: Platform, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.channels.relay.OPERATE_S", 0.1)
    served.tell(is_held=True)

    with pytest.raises(CallRefused, match="the operation may have been done, or not"):
        await turn.call("message_read")
    served.tell()

    assert (await turn.call("message_reply", message="hi"))["status"] == "delivered"


@pytest.mark.parametrize("side", ["before", "after"])
async def test_an_operation_survives_an_adapter_killed_around_its_receipt(
    stack: Stack, platform: Platform, turn: Turn, side: Any
) -> None:
    proxy = await stack.proxied()
    message_id = platform.say("chat-1", "bo", "hi")
    first = platform.start_process(proxy.url)
    await eventually(lambda: platform.is_read(stack.fleet))
    held = proxy.arm("receipt", side)
    reacting = asyncio.create_task(turn.call("message_react", messageId=message_id, emoji="x"))
    assert await held.wait() == first.pid
    first.kill()
    first.wait()
    held.cut()

    second = platform.start_process(proxy.url)
    assert await reacting == {"status": "done"}
    await turn.call("message_reply", message="and on")
    second.kill()
    second.wait()

    assert len(platform.did("react")) == (2 if side == "before" else 1)
    assert platform.chat("chat-1")[0].reaction == "x"


async def test_two_waiters_for_one_call_both_get_its_result(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    served.say("chat-1", "bo", "hi")
    served.tell(is_held=True)
    other = stack.open_at(stack.redis.url)
    doors = (turn.gateway, gateway(other, stack.home, HANDLERS))

    calls = [asyncio.create_task(ask(door, turn.agent, "message_read", "c1")) for door in doors]
    await eventually(lambda: served.did("held"))
    served.tell()
    one, two = await asyncio.gather(*calls)

    assert one == two
    assert len(one[0]["messages"]) == 1
    assert len(served.did("read")) == 1
