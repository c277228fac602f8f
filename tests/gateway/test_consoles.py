"""Console chats: messages are accepted once, and replies are shown once and in order."""

import asyncio
from typing import Any

import orjson
import pytest

from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.commands import command_of
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import MAX_ATTACHMENT_BYTES, SessionKey
from tests.support.doors import Door, Refused, RpcClient, opened, own_token
from tests.support.stack import SID, Stack
from tests.support.waiting import eventually


async def say(
    stack: Stack, text: str, *, index: int = 0, chat: str = "console", **more: Any
) -> None:
    """Put a message on the reply stream of this host's console."""
    await stack.put_reply("console", stack.home.host_id, text, index=index, chat=chat, **more)


def stream(stack: Stack) -> str:
    return keys.reply_stream("console", stack.home.host_id)


async def undelivered(stack: Stack) -> int:
    return int(await stack.fleet.scripts.client.xlen(stream(stack)))


async def next_shown(client: RpcClient) -> str:
    """Return the text of the next message, and confirm that the client has shown it."""
    event = await client.event("chat.message")
    await client.call("chat.shown", {"key": event["key"]})
    return str(event["text"])


async def send(client: RpcClient, text: str, name: str, **more: Any) -> Any:
    opened_chat = await client.call("chat.open")
    key = opened_chat["sessionKey"]
    params = {"sessionKey": key, "message": text, "messageId": name, **more}
    return await client.call("chat.send", params)


async def test_opening_a_chat_returns_its_agent_and_state(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        chat = await client.call("chat.open")

        assert chat["agent"] == "main"
        assert chat["isConsole"]
        assert chat["workspace"] == str(stack.home.workspaces / "main")
        assert (chat["state"], chat["waiting"]) == ("idle", 0)
        assert ["help", "Show the commands."] in chat["commands"]


async def test_a_message_is_shown_once_and_then_removed(stack: Stack) -> None:
    await say(stack, "one")
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await client.call("chat.open")
        assert await next_shown(client) == "one"
        await eventually(lambda: _is_empty(stack))
        await say(stack, "two", index=1)
        assert await next_shown(client) == "two"
        await eventually(lambda: _is_empty(stack))


async def test_a_message_that_no_client_has_shown_is_sent_again(stack: Stack) -> None:
    await say(stack, "one")
    async with opened(stack) as door:
        async with door.connected(own_token(stack)) as client:
            await client.call("chat.open")
            await client.event("chat.message")
        assert await undelivered(stack) == 1
        async with door.connected(own_token(stack)) as client:
            await client.call("chat.open")
            assert await next_shown(client) == "one"
        await eventually(lambda: _is_empty(stack))


async def test_a_shown_message_is_receipted_even_if_its_client_leaves_at_once(stack: Stack) -> None:
    await say(stack, "one")
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await client.call("chat.open")
        event = await client.event("chat.message")
        assert door.gateway is not None
        (connection,) = door.gateway.clients
        door.gateway.consoles.acknowledge(connection, event["key"], frozenset())
        door.gateway.consoles.leave(connection)

        await eventually(lambda: _is_empty(stack))


async def test_a_shown_message_is_not_sent_again_to_a_client_that_opens_at_once(
    stack: Stack,
) -> None:
    await say(stack, "one")
    async with opened(stack) as door, door.connected(own_token(stack)) as ada:
        session = SessionKey.parse((await ada.call("chat.open"))["sessionKey"])
        event = await ada.event("chat.message")
        assert door.gateway is not None
        consoles, (first,) = door.gateway.consoles, door.gateway.clients
        async with door.connected(own_token(stack)) as bob:
            (second,) = door.gateway.clients - {first}
            consoles.acknowledge(first, event["key"], frozenset())
            consoles.leave(first)
            consoles.open(second, session)
            await say(stack, "two", index=1)

            assert await next_shown(bob) == "two"


async def test_without_a_client_messages_wait(stack: Stack) -> None:
    async with opened(stack):
        await say(stack, "one")
        await asyncio.sleep(0)

        assert not (await stack.fleet.replies.readers()).accounts("console")
        assert await undelivered(stack) == 1


async def test_two_clients_receive_the_same_messages(stack: Stack) -> None:
    async with (
        opened(stack) as door,
        door.connected(own_token(stack)) as ada,
        door.connected(own_token(stack)) as bob,
    ):
        await ada.call("chat.open")
        await bob.call("chat.open")
        await say(stack, "one")
        await say(stack, "two", index=1)

        assert [await next_shown(ada), await next_shown(ada)] == ["one", "two"]
        assert [await next_shown(bob), await next_shown(bob)] == ["one", "two"]

        await send(ada, "hello", "m1")
        received = await bob.event("chat.message")
        assert (received["role"], received["text"]) == ("user", "hello")
        assert not [event for event in ada.events if event["event"] == "chat.message"]


async def test_a_client_that_disconnects_does_not_block_the_others(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as bob:
        async with door.connected(own_token(stack)) as ada:
            await ada.call("chat.open")
            await bob.call("chat.open")
            await say(stack, "one")
            await ada.event("chat.message")

        assert await next_shown(bob) == "one"
        await eventually(lambda: _is_empty(stack))


async def test_a_message_for_another_chat_is_refused_without_blocking_later_ones(
    stack: Stack,
) -> None:
    await say(stack, "lost", chat="nowhere", call="call-1")
    await say(stack, "one")
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await client.call("chat.open")

        assert await next_shown(client) == "one"


async def test_a_repeated_console_message_is_accepted_once(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        first = await send(client, "hello", "m1")
        again = await send(client, "hello", "m1")
        second = await send(client, "more", "m2")

        assert first["entry"] == again["entry"] != second["entry"]
        assert (first["ahead"], second["ahead"]) == (0, 1)


async def test_a_command_is_answered_ahead_of_the_queue(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await send(client, "hello", "m1")
        sent = await send(client, "/queue", "m2")

        assert sent["entry"] is None
        assert sent["answer"].startswith("1 message without an answer yet. The mode is `followup`")


async def test_a_repeated_command_runs_once_even_across_a_restart(stack: Stack) -> None:
    entries = []
    for _ in range(2):
        async with opened(stack) as door, door.connected(own_token(stack)) as client:
            sent = await send(client, "/new", "m1")
            assert sent["answer"] == "A new conversation."
            (view,) = await stack.fleet.sessions.list(limit=2)
            entries.append(await stack.fleet.scripts.client.xlen(keys.inbound(view.sid)))

    assert entries == [1, 1]


async def test_a_tasks_session_takes_no_messages(stack: Stack) -> None:
    key = SessionKey("main", "console", "here", "console", "ada", task="task-1")
    params = {"sessionKey": str(key), "message": "hello", "messageId": "m1"}
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        with pytest.raises(Refused, match="write to the session that gave it the task"):
            await client.call("chat.send", params)

    assert not await stack.fleet.sessions.list(limit=1)


async def newest_entry(stack: Stack) -> Any:
    view = await stack.fleet.sessions.list(limit=1)
    entries: Any = await stack.fleet.scripts.client.xrange(keys.inbound(view[0].sid))
    return orjson.loads(entries[-1][1][b"entry"])


async def test_a_message_with_two_slashes_is_sent_to_the_agent(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        for number, name in enumerate(("help", "new", "stop")):
            sent = await send(client, f"//{name}", f"m{number}")

            assert sent["answer"] is None
            entry = await newest_entry(stack)
            assert entry["message"]["text"] == f"/{name}"
            assert entry["message"]["chat_kind"] == "direct"
            read = decode_entry(b"1-0", {b"entry": orjson.dumps(entry)})
            assert command_of(read) is None


async def test_an_unknown_command_is_passed_to_the_cli_or_refused(
    stack: Stack,
) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        refused = await send(client, "/Compact now", "m1")
        assert refused["entry"] is None
        assert refused["answer"].startswith("There is no command /compact, and demo has none")

        stack.configure({"runtime": "codex"})
        refused = await send(client, "/compact", "m3")
        assert "codex has none of its own here" in refused["answer"]

        stack.configure({"runtime": "claude"})
        sent = await send(client, "/Compact now", "m2")
        assert sent["entry"]
        entry = await newest_entry(stack)
        assert (entry["message"]["text"], entry["is_command"]) == ("/compact now", True)


async def test_reset_and_clear_begin_a_new_conversation(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        for number, text in enumerate(("/reset", "/clear")):
            assert (await send(client, text, f"m{number}"))["answer"] == "A new conversation."


async def test_a_sessions_model_can_be_set_before_its_first_message(stack: Stack) -> None:
    stack.configure({"runtime": "claude"})
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await send(client, "/model haiku", "m1")
        assert (await client.call("chat.open"))["model"] == "haiku"
        refused = await send(client, "/model -x", "m2")
        assert refused["answer"].startswith("A model's name has no spaces")
        await send(client, "/model default", "m3")
        assert (await client.call("chat.open"))["model"] is None


async def test_quiet_and_verbose_set_the_quiet_mode_of_a_session(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        session = (await client.call("chat.open"))["sessionKey"]
        sid = SessionKey.parse(session).sid
        for text, is_quiet in (("/quiet", True), ("/verbose", False)):
            assert (await send(client, text, text))["answer"].startswith("From the next turn on")
            view = await stack.fleet.sessions.view(sid)
            assert (view is not None and view.is_quiet) is is_quiet


async def test_each_agent_has_its_own_console_chat(stack: Stack) -> None:
    with stack.home.config_file.open("a") as file:
        file.write('[agents.other]\nruntime = "demo"\n')
    await say(stack, "for the first one")
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        chat = await client.call("chat.open", {"agentId": "other"})

        assert chat["agent"] == "other"
        assert await undelivered(stack) == 1


async def test_opening_an_invalid_chat_says_why(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        for params, why in (
            ({"agentId": "nobody"}, "nobody"),
            ({"sessionKey": "abc"}, "is no session"),
            ({"sessionKey": "abc", "agentId": "main"}, "not both"),
        ):
            with pytest.raises(Refused, match=why):
                await client.call("chat.open", params)


async def test_an_invalid_session_key_is_named_in_the_refusal(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        with pytest.raises(Refused, match="sessionKey: 'abc' is not the key of a session"):
            await client.call(
                "chat.send", {"sessionKey": "abc", "message": "hello", "messageId": "m1"}
            )
        with pytest.raises(Refused, match="INVALID_REQUEST"):
            await client.call("chat.outcome", {"sessionKey": "abc", "entry": "1-0"})


async def test_a_console_needs_a_token_that_may_speak_for_an_owner(stack: Stack) -> None:
    token, _ = await stack.fleet.tokens.create("ada", "write", None)
    async with opened(stack) as door, door.connected(token) as client:
        with pytest.raises(Refused, match="is an owner on console"):
            await client.call("chat.open")


# -- files ----------------------------------------------------------------------------------------


async def upload(door: Door, token: str, key: str, content: bytes) -> Any:
    path = f"/files?session={key}&name=plan.txt"
    return (await door.post(path, token, content)).json


async def test_messages_and_replies_carry_files(stack: Stack) -> None:
    token = own_token(stack)
    async with opened(stack) as door, door.connected(token) as client:
        key = (await client.call("chat.open"))["sessionKey"]
        file = await upload(door, token, key, b"the plan")
        assert (file["name"], file["size"]) == ("plan.txt", 8)
        sent = await send(client, "Look.", "m1", attachments=[file])
        assert sent["entry"]

        answer_file = await stack.fleet.blobs.put(SID, "answer.txt", b"the answer")
        await say(stack, "Here.", attachments=(answer_file,))
        event = await client.event("chat.message")
        (name,) = event["attachments"]
        content = await door.get(f"/files/{SID}/{name['blob']}?size={name['size']}", token)
        assert content.body == b"the answer"
        await client.call("chat.shown", {"key": event["key"]})
        await eventually(lambda: _is_empty(stack))
        gone = await door.get(f"/files/{SID}/{name['blob']}?size={name['size']}", token)
        assert (gone.status, gone.code) == (404, "NOT_FOUND")


async def test_a_file_that_a_client_could_not_save_is_kept(stack: Stack) -> None:
    token = own_token(stack)
    async with opened(stack) as door, door.connected(token) as client:
        await client.call("chat.open")
        blob = await stack.fleet.blobs.put(SID, "answer.txt", b"the answer")
        await say(stack, "Here.", attachments=(blob,))
        event = await client.event("chat.message")
        await client.call("chat.shown", {"key": event["key"], "unsaved": [blob.blob]})
        await eventually(lambda: _is_empty(stack))

        assert (await door.get(f"/files/{SID}/{blob.blob}?size={blob.size}", token)).status == 200


async def test_files_need_an_operator_with_the_scope_write(stack: Stack) -> None:
    reader, _ = await stack.fleet.tokens.create("ada", "read", None)
    async with opened(stack) as door:
        for token, status in ((None, 401), (reader, 403)):
            assert (await door.get(f"/files/{SID}/{'0' * 32}?size=1", token)).status == status
            assert (await door.post("/files?session=x&name=y", token, b"x")).status == status


async def test_an_invalid_request_for_files_is_refused(stack: Stack) -> None:
    token = own_token(stack)
    async with opened(stack) as door, door.connected(token) as client:
        key = (await client.call("chat.open"))["sessionKey"]
        assert (await door.post("/files?session=x&name=y", token, b"x")).status == 400
        assert (await door.get(f"/files/{SID}/xyz?size=1", token)).status == 400
        assert (await door.get(f"/files/{SID}/{'0' * 32}?size=-1", token)).status == 400
        large = await door.post(
            f"/files?session={key}&name=y", token, b"x" * (MAX_ATTACHMENT_BYTES + 1)
        )
        assert large.status == 413


async def _is_empty(stack: Stack) -> bool:
    return not await undelivered(stack)
