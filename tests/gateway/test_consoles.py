"""Chats in terminals: what is written there, and what is shown there, once and in order."""

import asyncio
from typing import Any

import orjson
import pytest

from remoteclaw.fleet import keys
from remoteclaw.fleet.commands import command_of
from remoteclaw.fleet.inbound import decode_entry
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


async def seen(client: RpcClient) -> str:
    """Return the text of the next message, which the client then has shown."""
    told = await client.event("chat.message")
    await client.call("chat.shown", {"key": told["key"]})
    return str(told["text"])


async def send(client: RpcClient, text: str, name: str, **more: Any) -> Any:
    opened_chat = await client.call("chat.open")
    key = opened_chat["sessionKey"]
    params = {"sessionKey": key, "message": text, "messageId": name, **more}
    return await client.call("chat.send", params)


async def test_a_chat_says_whom_it_is_with(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        told = await client.call("chat.open")

        assert told["agent"] == "main"
        assert told["isConsole"]
        assert told["workspace"] == str(stack.home.workspaces / "main")
        assert (told["state"], told["waiting"]) == ("idle", 0)
        assert ["help", "Show the commands."] in told["commands"]


async def test_a_message_is_shown_once_and_then_gone(stack: Stack) -> None:
    await say(stack, "one")
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await client.call("chat.open")
        assert await seen(client) == "one"
        await eventually(lambda: _is_empty(stack))
        await say(stack, "two", index=1)
        assert await seen(client) == "two"
        await eventually(lambda: _is_empty(stack))


async def test_a_message_that_no_client_has_shown_comes_again(stack: Stack) -> None:
    await say(stack, "one")
    async with opened(stack) as door:
        async with door.connected(own_token(stack)) as client:
            await client.call("chat.open")
            await client.event("chat.message")
        assert await undelivered(stack) == 1
        async with door.connected(own_token(stack)) as client:
            await client.call("chat.open")
            assert await seen(client) == "one"
        await eventually(lambda: _is_empty(stack))


async def test_what_was_shown_is_receipted_though_its_client_leaves_at_once(stack: Stack) -> None:
    await say(stack, "one")
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await client.call("chat.open")
        told = await client.event("chat.message")
        assert door.gateway is not None
        (connection,) = door.gateway.clients
        door.gateway.consoles.shown(connection, told["key"], frozenset())
        door.gateway.consoles.leave(connection)

        await eventually(lambda: _is_empty(stack))


async def test_what_was_shown_is_not_told_again_to_a_client_that_comes_at_once(
    stack: Stack,
) -> None:
    await say(stack, "one")
    async with opened(stack) as door, door.connected(own_token(stack)) as ada:
        session = SessionKey.parse((await ada.call("chat.open"))["sessionKey"])
        told = await ada.event("chat.message")
        assert door.gateway is not None
        consoles, (first,) = door.gateway.consoles, door.gateway.clients
        async with door.connected(own_token(stack)) as bob:
            (second,) = door.gateway.clients - {first}
            consoles.shown(first, told["key"], frozenset())
            consoles.leave(first)
            consoles.open(second, session)
            await say(stack, "two", index=1)

            assert await seen(bob) == "two"


async def test_without_a_client_messages_wait(stack: Stack) -> None:
    async with opened(stack):
        await say(stack, "one")
        await asyncio.sleep(0)

        assert not (await stack.fleet.replies.readers()).accounts("console")
        assert await undelivered(stack) == 1


async def test_two_clients_see_the_same(stack: Stack) -> None:
    async with (
        opened(stack) as door,
        door.connected(own_token(stack)) as ada,
        door.connected(own_token(stack)) as bob,
    ):
        await ada.call("chat.open")
        await bob.call("chat.open")
        await say(stack, "one")
        await say(stack, "two", index=1)

        assert [await seen(ada), await seen(ada)] == ["one", "two"]
        assert [await seen(bob), await seen(bob)] == ["one", "two"]

        await send(ada, "hello", "m1")
        told = await bob.event("chat.message")
        assert (told["role"], told["text"]) == ("user", "hello")
        assert not [event for event in ada.events if event["event"] == "chat.message"]


async def test_a_client_that_leaves_holds_nothing_up(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as bob:
        async with door.connected(own_token(stack)) as ada:
            await ada.call("chat.open")
            await bob.call("chat.open")
            await say(stack, "one")
            await ada.event("chat.message")

        assert await seen(bob) == "one"
        await eventually(lambda: _is_empty(stack))


async def test_a_message_for_another_chat_is_refused_and_holds_nothing_up(stack: Stack) -> None:
    await say(stack, "lost", chat="nowhere", call="call-1")
    await say(stack, "one")
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await client.call("chat.open")

        assert await seen(client) == "one"


async def test_what_is_written_is_accepted_once(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        first = await send(client, "hello", "m1")
        again = await send(client, "hello", "m1")
        second = await send(client, "more", "m2")

        assert first["entry"] == again["entry"] != second["entry"]
        assert (first["ahead"], second["ahead"]) == (0, 1)


async def test_a_command_is_answered_before_the_queue(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await send(client, "hello", "m1")
        told = await send(client, "/queue", "m2")

        assert told["entry"] is None
        assert told["answer"].startswith("1 message without an answer yet. The mode is `followup`")


async def test_a_command_counts_once_also_across_a_restart(stack: Stack) -> None:
    entries = []
    for _ in range(2):
        async with opened(stack) as door, door.connected(own_token(stack)) as client:
            told = await send(client, "/new", "m1")
            assert told["answer"] == "A new conversation."
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


async def test_two_slashes_are_for_the_agent(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        for number, name in enumerate(("help", "new", "stop")):
            sent = await send(client, f"//{name}", f"m{number}")

            assert sent["answer"] is None
            entry = await newest_entry(stack)
            assert entry["message"]["text"] == f"/{name}"
            assert entry["message"]["chat_kind"] == "direct"
            read = decode_entry(b"1-0", {b"entry": orjson.dumps(entry)})
            assert command_of(read) is None


async def test_an_unknown_command_is_one_of_the_cli_or_says_that_there_is_none(
    stack: Stack,
) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        told = await send(client, "/Compact now", "m1")
        assert told["entry"] is None
        assert told["answer"].startswith("There is no command /compact, and demo has none")

        stack.configure({"runtime": "codex"})
        told = await send(client, "/compact", "m3")
        assert "codex has none of its own here" in told["answer"]

        stack.configure({"runtime": "claude"})
        sent = await send(client, "/Compact now", "m2")
        assert sent["entry"]
        entry = await newest_entry(stack)
        assert (entry["message"]["text"], entry["is_command"]) == ("/compact now", True)


async def test_reset_and_clear_begin_a_new_conversation(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        for number, text in enumerate(("/reset", "/clear")):
            assert (await send(client, text, f"m{number}"))["answer"] == "A new conversation."


async def test_a_session_has_a_model_before_anything_is_said(stack: Stack) -> None:
    stack.configure({"runtime": "claude"})
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await send(client, "/model haiku", "m1")
        assert (await client.call("chat.open"))["model"] == "haiku"
        refused = await send(client, "/model -x", "m2")
        assert refused["answer"].startswith("A model's name has no spaces")
        await send(client, "/model default", "m3")
        assert (await client.call("chat.open"))["model"] is None


async def test_a_session_is_quiet_until_it_is_told_otherwise(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        session = (await client.call("chat.open"))["sessionKey"]
        sid = SessionKey.parse(session).sid
        for text, is_quiet in (("/quiet", True), ("/verbose", False)):
            assert (await send(client, text, text))["answer"].startswith("From the next turn on")
            view = await stack.fleet.sessions.view(sid)
            assert (view is not None and view.is_quiet) is is_quiet


async def test_an_agent_of_its_own_is_a_chat_of_its_own(stack: Stack) -> None:
    with stack.home.config_file.open("a") as file:
        file.write('[agents.other]\nruntime = "demo"\n')
    await say(stack, "for the first one")
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        told = await client.call("chat.open", {"agentId": "other"})

        assert told["agent"] == "other"
        assert await undelivered(stack) == 1


async def test_what_can_not_be_opened_says_why(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        for params, why in (
            ({"agentId": "nobody"}, "nobody"),
            ({"sessionKey": "abc"}, "is no session"),
            ({"sessionKey": "abc", "agentId": "main"}, "not both"),
        ):
            with pytest.raises(Refused, match=why):
                await client.call("chat.open", params)


async def test_a_session_key_that_is_none_is_named(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        with pytest.raises(Refused, match="sessionKey: 'abc' is no session's key"):
            await client.call(
                "chat.send", {"sessionKey": "abc", "message": "hello", "messageId": "m1"}
            )
        with pytest.raises(Refused, match="INVALID_REQUEST"):
            await client.call("chat.outcome", {"sessionKey": "abc", "entry": "1-0"})


async def test_a_console_is_for_tokens_that_may_speak_for_an_owner(stack: Stack) -> None:
    token, _ = await stack.fleet.tokens.create("ada", "write", None)
    async with opened(stack) as door, door.connected(token) as client:
        with pytest.raises(Refused, match="is an owner on console"):
            await client.call("chat.open")


# -- files ----------------------------------------------------------------------------------------


async def stored(door: Door, token: str, key: str, content: bytes) -> Any:
    path = f"/files?session={key}&name=plan.txt"
    return (await door.post(path, token, content)).json


async def test_a_file_goes_with_a_message_and_comes_with_a_reply(stack: Stack) -> None:
    token = own_token(stack)
    async with opened(stack) as door, door.connected(token) as client:
        key = (await client.call("chat.open"))["sessionKey"]
        file = await stored(door, token, key, b"the plan")
        assert (file["name"], file["size"]) == ("plan.txt", 8)
        sent = await send(client, "Look.", "m1", attachments=[file])
        assert sent["entry"]

        kept = await stack.fleet.blobs.put(SID, "answer.txt", b"the answer")
        await say(stack, "Here.", attachments=(kept,))
        told = await client.event("chat.message")
        (name,) = told["attachments"]
        content = await door.get(f"/files/{SID}/{name['blob']}?size={name['size']}", token)
        assert content.body == b"the answer"
        await client.call("chat.shown", {"key": told["key"]})
        await eventually(lambda: _is_empty(stack))
        gone = await door.get(f"/files/{SID}/{name['blob']}?size={name['size']}", token)
        assert (gone.status, gone.code) == (404, "NOT_FOUND")


async def test_a_file_that_a_client_could_not_save_is_kept(stack: Stack) -> None:
    token = own_token(stack)
    async with opened(stack) as door, door.connected(token) as client:
        await client.call("chat.open")
        kept = await stack.fleet.blobs.put(SID, "answer.txt", b"the answer")
        await say(stack, "Here.", attachments=(kept,))
        told = await client.event("chat.message")
        await client.call("chat.shown", {"key": told["key"], "unsaved": [kept.blob]})
        await eventually(lambda: _is_empty(stack))

        assert (await door.get(f"/files/{SID}/{kept.blob}?size={kept.size}", token)).status == 200


async def test_files_are_for_operators_who_may_write(stack: Stack) -> None:
    reader, _ = await stack.fleet.tokens.create("ada", "read", None)
    async with opened(stack) as door:
        for token, status in ((None, 401), (reader, 403)):
            assert (await door.get(f"/files/{SID}/{'0' * 32}?size=1", token)).status == status
            assert (await door.post("/files?session=x&name=y", token, b"x")).status == status


async def test_a_request_for_files_that_makes_no_sense_is_refused(stack: Stack) -> None:
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
