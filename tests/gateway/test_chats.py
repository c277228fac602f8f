"""The tools that send messages, tested by what people see on the platform afterwards."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.bridge.side_effects import repeats_of, side_effects_of
from remoteclaw.channels.delivery import NO_EFFECT
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.gateway.methods.messages import HANDLERS
from remoteclaw.messages import ReplyPayload, shows_nothing
from tests.support.failpoints import Proxy
from tests.support.hostile import HOSTILE
from tests.support.platform import Platform
from tests.support.stack import Stack, message
from tests.support.turns import DIGEST, Turn, ask, begin_turn, gateway, operator
from tests.support.waiting import eventually


@pytest.fixture
async def proxy(stack: Stack) -> Proxy:
    """A proxy in front of Redis, at which a test can hold or cut the gateway's commands."""
    return await stack.proxied()


@contextlib.asynccontextmanager
async def fleet_through(proxy: Proxy) -> AsyncIterator[Fleet]:
    fleet = Fleet.open(proxy.url)
    try:
        yield fleet
    finally:
        await fleet.aclose()


def is_text(text: str) -> bool:
    """Whether `text` is valid Unicode. A lone surrogate is not, and is refused."""
    return text == text.encode("utf-8", "replace").decode()


async def noted(stack: Stack, turn: Turn) -> list[dict[str, Any]]:
    return await turn.lease.turns.side_effects()


async def waiting(stack: Stack, provider: str = "test", account: str = "default") -> int:
    """Return how many messages wait in the reply stream of an account."""
    return int(await stack.fleet.scripts.client.xlen(keys.replies(provider, account)))


# -- each tool ------------------------------------------------------------------------------------


async def test_a_message_is_sent_to_another_chat(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    sent, effects = await turn.noted(
        "message_send", "c1", target="chat-2", message="hi", threadId="t"
    )

    (post,) = served.chat("chat-2")
    assert (post.text, post.thread, post.quotes) == ("hi", "t", None)
    assert post.came_from == "test:chat-1, by main"
    assert sent == {
        "status": "delivered",
        "channel": "test",
        "target": "chat-2",
        "id": sent["id"],
        "messageId": post.id,
    }
    assert effects == [
        {
            "type": "message_sent",
            "tool": "message_send",
            "provider": "test",
            "accountId": "default",
            "to": "chat-2",
            "threadId": "t",
            "text": "hi",
            "mediaUrl": None,
            "ts": effects[0]["ts"],
            "callId": effects[0]["callId"],
        }
    ]
    assert await noted(stack, turn) == effects


async def test_a_reply_quotes_the_message_that_the_turn_answers(
    stack: Stack, served: Platform
) -> None:
    turn = await begin_turn(stack, HANDLERS, id="asked", thread_id="t1")

    await turn.call("message_reply", message="hi")
    await turn.call("message_reply", message="ho", replyToId="m7")

    first, second = served.chat("chat-1")
    assert (first.text, first.quotes, first.thread) == ("hi", "asked", "t1")
    assert (second.text, second.quotes, second.thread) == ("ho", "m7", "t1")


async def test_a_message_that_was_not_written_in_the_chat_is_not_quoted(
    stack: Stack, served: Platform
) -> None:
    accepted = await stack.fleet.inbound.append(message("hi"), agent="main", deliver="caller")
    lease = await stack.fleet.leases.acquire(accepted.session.sid, worker="test", host="here")
    assert lease is not None
    assert await lease.turns.begin([accepted.entry_id])
    await lease.grant(DIGEST, ["message_reply"])

    caller = await stack.fleet.calls.caller(lease.sid)
    assert caller is not None
    door = gateway(stack.fleet, stack.home, HANDLERS)
    agent = await door.agent_of_token(lease.sid, DIGEST)
    assert agent is not None
    await ask(door, agent, "message_reply", message="ho")

    assert [post.quotes for post in served.chat("chat-1")] == [None]


async def test_a_reply_is_sent_to_another_thread(served: Platform, turn: Turn) -> None:
    await turn.call("message_thread_reply", message="hi", threadId="t9")

    (post,) = served.chat("chat-1")
    assert (post.text, post.thread) == ("hi", "t9")


async def test_a_broadcast_reaches_each_chat_once(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    results, effects = await turn.noted(
        "message_broadcast", targets=["a", "test:b", "a"], message="all of you"
    )

    assert [served.chat(chat)[0].text for chat in "ab"] == ["all of you", "all of you"]
    assert len(served.delivered) == 2
    sent = results["results"]
    assert [(one["target"], one["status"]) for one in sent] == [
        ("a", "delivered"),
        ("b", "delivered"),
        ("a", "delivered"),
    ]
    (note,) = effects
    assert note["text"] == "all of you"
    assert not {"to", "provider", "accountId"} & note.keys()
    assert await noted(stack, turn) == effects


async def test_a_broadcast_to_two_channels_reports_the_result_of_each(
    stack: Stack, served: Platform, turn: Turn, directory: Path
) -> None:
    """Both messages have the same id, because both reply streams are written at the same time."""
    other = Platform(directory / "other", "other")
    other.tell(refuses="You are not a member.")
    async with other.served(stack.fleet):
        results, effects = await turn.noted(
            "message_broadcast", targets=["a", "other:b"], message="hi"
        )

    here, there = results["results"]
    assert here["id"] == there["id"]
    assert (here["status"], here["messageId"]) == ("delivered", served.delivered[0]["id"])
    assert (there["status"], there["error"]) == ("failed", "You are not a member.")
    assert "messageId" not in there
    assert [one["type"] for one in effects] == ["message_sent"]
    assert side_effects_of(await turn.lease.turns.side_effects()).sent_texts == ("hi",)


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("web:ANYTHING", "web:admin.ada, web:user.bob"),
        ("web:ada", "web:admin.ada, web:user.bob"),
        ("web:user.ada", "web:admin.ada, web:user.bob"),
    ],
)
async def test_a_message_to_a_chat_that_nobody_can_read_is_refused(
    stack: Stack, target: str, named: str
) -> None:
    stack.configure(channels={"test": {"owners": ["alice"]}, "web": {"person": "ada"}})
    await stack.fleet.tokens.create("ci", "write", None)
    await stack.fleet.pairings.add("web", "default", "user.bob", name="bob", by="login")
    turn = await begin_turn(stack, HANDLERS)
    by_operator = gateway(stack.fleet, stack.home, HANDLERS)
    message = {"target": target, "message": "hi"}

    for call in (
        turn.call("message_send", **message),
        turn.call("message_broadcast", targets=["chat-2", target], message="hi"),
        ask(by_operator, operator(), "message_send", **message),
    ):
        with pytest.raises(CallRefused) as refusal:
            await call
        assert "nothing was sent" in str(refusal.value)
        assert f"You can write to {named}." in str(refusal.value)

    assert await noted(stack, turn) == []
    assert await waiting(stack) == 0


async def test_the_chats_that_people_can_read_later_are_written_to(stack: Stack) -> None:
    """Without a login so far, with one of another application, and after a login has ended."""
    secret = stack.home.path / "secret"
    secret.write_text("s" * 40)
    key = {"secret_file": str(secret)}
    stack.configure(
        channels={"test": {"owners": ["alice"]}, "web": {"person": "ada"}},
        gateway={"jwt": {"crm": key}},
    )
    event = {"from": "x", "text": "x", "files": []}
    for chat in ("user.gone", "user.gone too\nplans"):
        await stack.fleet.web.add(
            chat, "message", event, once="", keep_ms=60_000, by_person_to="main"
        )
    await stack.fleet.tokens.create("ci", "write", None)
    turn = await begin_turn(stack, HANDLERS)

    for chat in ("admin.ada", "user.crm/17", "user.gone", "user.gone too", "user.ci"):
        sent = await turn.call("message_send", target=f"web:{chat}", message="hi")
        assert sent["status"] == "accepted"


async def test_the_chat_of_send_takes_no_message_besides_the_answer(stack: Stack) -> None:
    turn = await begin_turn(stack, HANDLERS, provider="cli", channel_id="me", from_="me")

    with pytest.raises(CallRefused, match="shows only the answer: nothing was sent"):
        await turn.call("message_send", target="me", message="hi")


async def test_a_thread_on_a_channel_without_threads_is_refused(
    stack: Stack, served: Platform
) -> None:
    turn = await begin_turn(
        stack, HANDLERS, provider="web", channel_id="admin.ada", from_="admin.ada"
    )
    params = {"message": "hi", "sessionKey": str(turn.lease.session), "threadId": "t"}
    by_operator = gateway(stack.fleet, stack.home, HANDLERS)

    for call in (
        turn.call("message_send", target="admin.ada", message="hi", threadId="t"),
        turn.call("message_thread_reply", message="hi", threadId="t"),
        ask(
            by_operator,
            operator(),
            "message_thread_reply",
            session_key=params.pop("sessionKey"),
            **params,
        ),
    ):
        with pytest.raises(CallRefused, match="web has no threads: nothing was sent"):
            await call


async def test_a_broadcast_with_one_invalid_target_sends_nothing(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    for number in ("1", "2"):
        assert await stack.fleet.replies.reader("irc", number).claim()
    for target in ("slack:b", "irc:c", "irc/3:c", "test:"):
        with pytest.raises(CallRefused) as refusal:
            await turn.call("message_broadcast", targets=["a", target], message="hi")
        assert f"The target {target!r}: " in str(refusal.value)

    assert served.events == []
    assert await noted(stack, turn) == []


async def test_a_message_is_sent_without_an_effect_that_the_platform_lacks(
    served: Platform, turn: Turn
) -> None:
    served.tell(effects=["confetti"])

    has, has_not = [
        await turn.call("message_send_with_effect", target="chat-1", message="hi", effectId=effect)
        for effect in ("confetti", "balloons")
    ]

    assert [post.effect for post in served.chat("chat-1")] == ["confetti", None]
    assert (has["status"], has.get("error")) == ("delivered", None)
    assert (has_not["status"], has_not["error"]) == ("delivered", NO_EFFECT)


async def test_a_long_message_is_split_into_chunks(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    stack.configure(channels={"test": {"owners": ["alice"], "chunk_limit": 100}})
    text = " ".join(f"word{number}" for number in range(60))

    sent = await turn.call("message_send", target="chat-2", message=text)

    assert " ".join(served.texts) == text
    assert max(map(len, served.texts)) <= 100
    assert sent["messageId"] == served.delivered[0]["id"]
    assert len({event["key"] for event in served.delivered}) == len(served.delivered)
    assert len(await noted(stack, turn)) == 1


async def test_a_message_of_a_tool_is_sent_literally(served: Platform, turn: Turn) -> None:
    """Directives, which answers may contain, have no effect in a tool's message."""
    texts = [
        text for text in HOSTILE if len(text) < 4000 and is_text(text) and not shows_nothing(text)
    ]
    for number, text in enumerate(texts):
        await turn.call("message_send", target=f"chat-{number}", message=text)

        (post,) = served.chat(f"chat-{number}")
        expected = text.strip("\n").rstrip()
        assert post.text.strip("\n") in (expected, f"{expected}\n```")  # an open fence is closed
        assert (post.quotes, post.files) == (None, {})


@pytest.mark.parametrize("text", [" \n\t ", "\u200b", "**\u200b**"])
async def test_an_empty_message_of_a_tool_is_refused(
    stack: Stack, served: Platform, turn: Turn, text: str
) -> None:
    with pytest.raises(CallRefused, match="The message is empty"):
        await turn.call("message_send", target="chat-2", message=text)

    assert served.events == []


async def test_a_tools_message_and_the_answer_keep_their_order(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    await turn.call("message_reply", message="looking")
    outcome = keys.outcome(turn.lease.sid, turn.id)
    payload = reply_payload(
        turn.lease.session.place,
        "found",
        sid=turn.lease.sid,
        turn=turn.id,
        attempt=1,
        entries=[turn.id],
    )
    await turn.lease.turns.finish("done", reply=[], payloads=[payload])

    await eventually(lambda: len(served.delivered) == 2)
    assert served.texts == ["looking", "found"]
    assert [event["is_called"] for event in served.delivered] == [True, False]
    await eventually(lambda: stack.fleet.scripts.client.hexists(outcome, "delivered"))


# -- targets --------------------------------------------------------------------------------------


async def test_a_target_names_a_chat_of_another_channel(
    stack: Stack, directory: Path, turn: Turn
) -> None:
    other = Platform(directory / "other", "other", "bot-1")
    async with other.served(stack.fleet):
        one = await turn.call("message_send", target="other:42", message="hi")
        two = await turn.call("message_send", target="other/bot-1:43", message="ho")

    assert [(event["chat"], event["text"].partition("\n")[2]) for event in other.delivered] == [
        ("42", "hi"),
        ("43", "ho"),
    ]
    assert [(sent["channel"], sent["target"]) for sent in (one, two)] == [
        ("other", "42"),
        ("other", "43"),
    ]


async def test_the_id_of_a_chat_may_contain_a_colon(stack: Stack, served: Platform) -> None:
    turn = await begin_turn(stack, HANDLERS, channel_id="!room:example.org")

    await turn.call("message_send", target="!other:example.org", message="hi")
    await turn.call("message_send", target="alias:example.org", message="ho")
    await turn.call("message_send", target="test:!other:example.org", message="hey")

    assert [post.text for post in served.chat("!other:example.org")] == ["hi", "hey"]
    assert [post.text for post in served.chat("alias:example.org")] == ["ho"]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("slack:C1", r"There is no channel 'slack': there are configured, test\."),
        ("slack/team:C1", "There is no channel 'slack'"),
        ("test:", "The target test: names no chat after the colon"),
        ("test/nobody:1", "test has no account 'nobody': there are default"),
        ("configured/nobody:1", "configured has no account 'nobody': there are default"),
    ],
)
async def test_an_unknown_channel_account_or_chat_is_refused(
    stack: Stack, served: Platform, turn: Turn, target: str, why: str
) -> None:
    stack.configure(channels={"configured": {}, "test": {"owners": ["alice"]}})

    with pytest.raises(CallRefused, match=why) as refusal:
        await turn.call("message_send", target=target, message="hi")

    assert refusal.value.code == "INVALID_REQUEST"
    assert await stack.fleet.scripts.client.keys(keys.replies("*", "*")) == []


async def test_a_target_on_a_channel_with_several_accounts_must_name_one(
    stack: Stack, directory: Path, turn: Turn
) -> None:
    one, two = (Platform(directory / name, "other", name) for name in ("bot-1", "bot-2"))
    async with one.served(stack.fleet), two.served(stack.fleet):
        with pytest.raises(CallRefused, match="other/bot-1, other/bot-2"):
            await turn.call("message_send", target="other:1", message="hi")
        await turn.call("message_send", target="other/bot-2:1", message="hi")

    assert (one.texts, two.texts) == ([], ["hi"])


async def test_an_operator_who_names_a_session_sends_from_its_chat(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    door, key = gateway(stack.fleet, stack.home, HANDLERS), str(turn.lease.session)

    await ask(door, operator(), "message.send", target="chat-2", message="hi", session_key=key)
    await ask(door, operator(), "message.reply", message="ho", replyToId="m1", session_key=key)
    await ask(door, operator(), "message.send", target="test:chat-3", message="hey")
    with pytest.raises(CallRefused, match="replyToId"):
        await ask(door, operator(), "message.reply", message="ho", session_key=key)
    with pytest.raises(CallRefused, match=r"CHANNEL:CHAT\. There are the channels test"):
        await ask(door, operator(), "message.send", target="chat-2", message="hi")
    with pytest.raises(CallRefused, match="name the session by sessionKey"):
        await ask(door, operator(), "message.reply", message="hi", replyToId="m1")

    assert [post.text for post in served.chat("chat-2")] == ["hi"]
    assert [post.text for post in served.chat("chat-3")] == ["hey"]
    assert [post.quotes for post in served.chat("chat-1")] == ["m1"]
    assert await noted(stack, turn) == []


# -- repeated calls -------------------------------------------------------------------------------


async def test_a_repeated_broadcast_sends_nothing_and_returns_the_same_result(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    params = {"targets": ["a", "b"], "message": "hi"}

    first = await turn.noted("message_broadcast", "c1", **params)
    again = await turn.noted("message_broadcast", "c1", **params)

    assert served.texts == ["hi", "hi"]
    assert again[0] == first[0]
    (name,) = {note["callId"] for note in (*first[1], *again[1])}
    assert name != "c1"  # the stored id includes the caller and the tool
    assert len(await noted(stack, turn)) == 1


async def test_two_concurrent_calls_with_the_same_id_send_one_message(
    stack: Stack, served: Platform, proxy: Proxy
) -> None:
    async with fleet_through(proxy) as slow:
        turn = await begin_turn(stack, HANDLERS, fleet=slow)
        held = proxy.arm("call_send", "before")
        sending = asyncio.create_task(turn.call("message_reply", "c1", message="hi"))
        await held.wait()

        quick = await ask(
            gateway(stack.fleet, stack.home, HANDLERS),
            turn.agent,
            "message_reply",
            "c1",
            message="hi",
        )
        held.release()

        assert await sending == quick[0]
    assert served.texts == ["hi"]
    assert len(await noted(stack, turn)) == 1


async def test_a_call_whose_answer_from_redis_is_lost_sends_one_message(
    stack: Stack, served: Platform, proxy: Proxy
) -> None:
    async with fleet_through(proxy) as lossy:
        turn = await begin_turn(stack, HANDLERS, fleet=lossy)
        proxy.arm("call_send", "after").cut()

        sent = await turn.call("message_reply", "c1", message="hi")

    assert sent["status"] == "delivered"
    assert served.texts == ["hi"]
    assert len(await noted(stack, turn)) == 1


async def test_an_agents_call_with_a_reused_id_and_other_parameters_is_a_new_call(
    served: Platform, turn: Turn
) -> None:
    """Some models give all their calls the id `call_0`."""
    first = await turn.call("message_send", "call_0", target="a", message="hi")
    second = await turn.call("message_send", "call_0", target="b", message="hi")

    assert [post.text for chat in ("a", "b") for post in served.chat(chat)] == ["hi", "hi"]
    assert first["messageId"] != second["messageId"]


async def test_an_operators_call_with_a_reused_key_and_other_parameters_is_refused(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    for count, problem in ((1, None), (2, "had this id before")):
        targets = [f"test:{number}" for number in range(count)]
        call = ask(turn.gateway, operator(), "message_broadcast", "k", targets=targets, message="x")
        if problem is None:
            await call
        else:
            with pytest.raises(CallRefused, match=problem):
                await call

    assert served.texts == ["x"]


# -- only during the turn -------------------------------------------------------------------------


async def test_nothing_is_sent_if_the_turn_ends_during_the_call(
    stack: Stack, served: Platform, proxy: Proxy
) -> None:
    async with fleet_through(proxy) as slow:
        turn = await begin_turn(stack, HANDLERS, fleet=slow)
        held = proxy.arm("call_send", "before")
        sending = asyncio.create_task(turn.call("message_reply", message="hi"))
        await held.wait()

        await turn.finish()
        held.release()

        with pytest.raises(CallRefused) as refusal:
            await sending
    assert refusal.value.code == "TURN_OVER"
    assert await waiting(stack) == 0
    assert served.events == []


async def test_nothing_is_sent_if_another_worker_has_taken_over_the_turn(
    stack: Stack, served: Platform, proxy: Proxy
) -> None:
    async with fleet_through(proxy) as slow:
        turn = await begin_turn(stack, HANDLERS, fleet=slow)
        held = proxy.arm("call_send", "before")
        sending = asyncio.create_task(turn.call("message_reply", message="hi"))
        await held.wait()

        lease = turn.lease
        await stack.fleet.scripts.client.hset(keys.state(lease.sid), "lease_until_ms", 0)
        second = await stack.fleet.leases.acquire(lease.sid, worker="other", host="there")
        assert second is not None
        assert await second.turns.begin([])
        held.release()

        with pytest.raises(CallRefused) as refusal:
            await sending
    assert refusal.value.code == "TURN_OVER"
    assert await waiting(stack) == 0
    assert served.events == []


# -- failing adapters -----------------------------------------------------------------------------


async def test_without_an_adapter_a_message_waits_for_it(
    stack: Stack, platform: Platform, turn: Turn
) -> None:
    sent = await turn.call("message_reply", "c1", message="hi")
    assert (sent["status"], "messageId" in sent) == ("accepted", False)
    assert sent["error"] == "No adapter reads test now: it is delivered once one does."

    async with platform.served(stack.fleet):
        await eventually(lambda: platform.delivered)
        again = await turn.call("message_reply", "c1", message="hi")

    assert platform.texts == ["hi"]
    assert (again["status"], again["messageId"]) == ("delivered", platform.delivered[0]["id"])


async def test_a_message_to_a_slow_adapter_is_accepted_and_delivered_later(
    stack: Stack, served: Platform, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.gateway.send.RECEIPT_S", 0.2)
    served.tell(is_held=True)

    sent = await turn.call("message_reply", message="hi")
    assert sent["status"] == "accepted"
    assert sent["error"] == "The adapter of test has not delivered it yet."

    served.tell()
    await eventually(lambda: served.texts == ["hi"])


async def test_a_message_that_the_platform_refuses_fails_without_blocking_others(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    served.tell(refuses="There is no such chat.")
    refused = await turn.call("message_send", target="nowhere", message="hi")
    served.tell()
    taken = await turn.call("message_send", target="chat-2", message="ho")

    assert (refused["status"], refused["error"]) == ("failed", "There is no such chat.")
    assert taken["status"] == "delivered"
    assert served.texts == ["ho"]
    assert await waiting(stack) == 0


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_message_survives_an_adapter_killed_around_its_receipt(
    stack: Stack, platform: Platform, turn: Turn, proxy: Proxy, side: Any
) -> None:
    """Without its receipt, a message is delivered once more and says so; with it, it is not."""
    first = platform.start_process(proxy.url)
    await eventually(lambda: platform.is_read(stack.fleet))
    held = proxy.arm("receipt", side)
    sending = asyncio.create_task(turn.call("message_reply", "c1", message="hi"))
    assert await held.wait() == first.pid
    first.kill()
    first.wait()
    held.cut()

    second = platform.start_process(proxy.url)
    sent = await sending
    await turn.call("message_reply", message="and on")
    second.kill()
    second.wait()

    again = ["(perhaps a second time)\nhi"] if side == "before" else []
    assert platform.texts == ["hi", *again, "and on"]
    assert (sent["status"], sent["messageId"]) == (
        "delivered",
        platform.delivered[len(again)]["id"],
    )


# -- writes to Redis ------------------------------------------------------------------------------


async def test_chat_tools_write_to_redis_only_through_scripts(
    stack: Stack, served: Platform, turn: Turn, directory: Path
) -> None:
    workspace = stack.home.path / "workspaces" / "main"
    workspace.mkdir(parents=True)
    (workspace / "plan.txt").write_text("x")
    client: Any = stack.fleet.scripts.client
    commands = await client.command()
    writes = {name.upper() for name, facts in commands.items() if "write" in facts["flags"]}
    assert {"XADD", "SET", "LMOVE"} <= writes
    seen: list[dict[str, Any]] = []
    is_watching = asyncio.Event()

    async def watch() -> None:
        async with client.monitor() as monitor:
            is_watching.set()
            while True:
                seen.append(await monitor.next_command())

    watching = asyncio.create_task(watch())
    await is_watching.wait()
    await turn.call("message_broadcast", targets=["a", "b"], message="hi")
    await turn.call("message_send", target="a", message="hi", media="plan.txt")
    sent = await turn.call("message_reply", message="hi")
    await turn.call("message_react", messageId=sent["messageId"], emoji="x")
    await client.execute_command("ECHO", "the end")
    await eventually(lambda: any("the end" in command["command"] for command in seen))
    watching.cancel()
    await asyncio.wait((watching,))

    by_hand = [
        command["command"]
        for command in seen
        if command["client_type"] != "lua" and command["command"].split()[0].upper() in writes
    ]
    assert by_hand == []
    assert any(command["client_type"] == "lua" for command in seen)


async def test_the_records_of_a_call_expire(stack: Stack, served: Platform, turn: Turn) -> None:
    await turn.call("message_reply", "c1", message="hi")
    client: Any = stack.fleet.scripts.client

    (answers,) = await client.keys(keys.receipts("*"))
    (call,) = await client.keys(keys.call("*"))

    day_ms = 24 * 3600 * 1000
    assert 0 < await client.pttl(answers) <= day_ms
    assert 0 < await client.pttl(call) <= day_ms
    assert answers.partition(b"receipts:")[2] == call.partition(b"call:")[2]
    ((_, fields),) = await client.xrange(answers)
    assert orjson.loads(fields[b"answer"])["messageId"] == served.delivered[0]["id"]


async def test_a_message_that_the_platform_refused_is_noted_as_not_sent(
    served: Platform, turn: Turn
) -> None:
    served.tell(refuses="There is no such chat.")
    sent, effects = await turn.noted("message_reply", message="It is done.")
    noted = await turn.lease.turns.side_effects()
    assert effects == []  # what the connector writes into the file

    assert sent["status"] == "failed"
    assert side_effects_of(noted).sent_texts == ()
    assert not repeats_of([ReplyPayload("It is done.")], noted, turn.lease.session.place)
