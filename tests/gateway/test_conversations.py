"""People's conversations: each has one agent, and every client of the person shows its messages."""

import contextlib
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.commands.table import NO_SUMMARIES
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.commands import command_of
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import MAX_ATTACHMENT_BYTES, SessionKey
from tests.support.doors import Door, Refused, RpcClient, opened, own_token
from tests.support.pages import OPERATOR, chat_key
from tests.support.stack import SID, Stack
from tests.support.waiting import HANG_S, eventually

#: The conversation of the clients.
KEY = chat_key(OPERATOR)
OTHER = '[agents.other]\nruntime = "demo"\n'


async def send(client: RpcClient, text: str, name: str, **more: Any) -> Any:
    """Send a message in the client's conversation with the first agent."""
    params = {"sessionKey": KEY, "text": text, "messageId": name, **more}
    return await client.call("chat.send", params)


async def texts(client: RpcClient, count: int) -> list[str]:
    """Return the texts of the next events."""
    return [(await client.event("chat.event"))["text"] for _ in range(count)]


async def reply_to(stack: Stack, text: str, name: str) -> str:
    """Send a message, and return the reply."""
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        chat = await client.call("chat.open")
        known = (await client.call("chat.history", {**about(chat), "before": LAST}))["events"]
        await send(client, text, name)
        while True:
            event = await client.event("chat.event")
            if event["from"] == "agent" and event["id"] not in [each["id"] for each in known]:
                return str(event["text"])


LAST = "9" * 19 + "-0"


def about(chat: dict[str, Any]) -> dict[str, Any]:
    return {"sessionKey": chat["sessionKey"]}


# -- opening --------------------------------------------------------------------------------------


async def test_opening_a_chat_returns_its_agent_and_state(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        chat = await client.call("chat.open")

        assert (chat["agent"], chat["conversation"]) == ("main", None)
        assert chat["workspace"] == str(stack.home.workspaces / "main")
        assert (chat["state"], chat["waiting"]) == ("idle", 0)
        assert ["help", "Show the commands."] in chat["commands"]


async def test_opening_an_invalid_chat_says_why(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        for params, why in (
            ({"agentId": "nobody"}, "nobody"),
            ({"sessionKey": "abc"}, "is no session"),
            ({"sessionKey": "abc", "agentId": "main"}, "not both"),
            ({"sessionKey": "abc", "conversation": "x"}, "not both"),
        ):
            with pytest.raises(Refused, match=why):
                await client.call("chat.open", params)


async def test_an_invalid_session_key_is_named_in_the_refusal(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        with pytest.raises(Refused, match="sessionKey: 'abc' is not the key of a session"):
            await send(client, "hello", "m1", sessionKey="abc")


async def test_another_persons_conversation_is_a_session_like_any_other(stack: Stack) -> None:
    """Its chat stays unseen, and to write there needs the rights of its user."""
    accepted = await stack.append(
        "hello", provider="web", channel_id="admin.bob", from_="admin.bob"
    )
    theirs = accepted.session
    token, _ = await stack.fleet.tokens.create("ada", "write", None)
    async with opened(stack) as door:
        async with door.connected(token) as ada:
            with pytest.raises(Refused, match="is an owner on web"):
                await ada.call("chat.open", {"sessionKey": str(theirs)})
            with pytest.raises(Refused, match="no conversation of yours"):
                await ada.call("chat.history", {"sessionKey": str(theirs), "before": LAST})
        async with door.connected(own_token(stack)) as admin:
            chat = await admin.call("chat.open", {"sessionKey": str(theirs)})
            assert (chat["person"], chat["isAfresh"]) == (None, False)


# -- agents ---------------------------------------------------------------------------------------


async def test_a_conversation_keeps_the_agent_with_which_it_began(stack: Stack) -> None:
    """Also when another agent is the first one later."""
    with stack.home.config_file.open("a") as file:
        file.write(OTHER)
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        first = await client.call("chat.open")
        await send(client, "to main", "m1")
        other = await client.call("chat.open", {"agentId": "other"})
        await send(client, "to other", "m2", sessionKey=other["sessionKey"])
        assert (other["agent"], other["conversation"]) == ("other", "other")

        stack.configure(agents={"other": {"runtime": "demo"}}, channels={"web": {"agent": "other"}})
        home = await client.call("chat.open")
        main = await client.call("chat.open", {"agentId": "main"})
        by_id = await client.call("chat.open", {"conversation": "_"})

        assert home["sessionKey"] == other["sessionKey"]
        assert main["sessionKey"] == by_id["sessionKey"] == first["sessionKey"]
    sessions = await stack.fleet.sessions.list(limit=3)
    assert {str(view.key) for view in sessions} == {first["sessionKey"], other["sessionKey"]}


async def test_a_new_conversation_begins_with_the_agent_that_its_id_names(stack: Stack) -> None:
    with stack.home.config_file.open("a") as file:
        file.write(OTHER)
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        for id_, agent in (("other.1", "other"), ("beef", "main"), ("nobody.1", "main")):
            chat = await client.call("chat.open", {"conversation": id_})

            assert (chat["agent"], chat["conversation"]) == (agent, id_)


async def test_agent_and_switch_name_the_conversation_to_open(stack: Stack) -> None:
    with stack.home.config_file.open("a") as file:
        file.write(OTHER)
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        home = (await client.call("chat.open"))["sessionKey"]
        await send(client, "hello", "m1")
        other = await send(client, "/agent other", "m2")
        new = [await send(client, "/switch New", "m3", sessionKey=other["opens"]) for _ in range(2)]
        back = await send(client, "/switch hello", "m4", sessionKey=other["opens"])
        lost = await send(client, "/switch nowhere", "m5", sessionKey=other["opens"])

        assert (await client.call("chat.open", {"sessionKey": other["opens"]}))["agent"] == "other"
        assert new[0] == new[1]
        assert (await client.call("chat.open", {"sessionKey": new[0]["opens"]}))["agent"] == "other"
        assert back["opens"] == home
        assert (lost["opens"], lost["id"]) == (None, None)
        assert "no such conversation" in lost["reply"]


# -- messages -------------------------------------------------------------------------------------


async def test_each_client_gets_each_message_once_and_knows_its_own(stack: Stack) -> None:
    await stack.start_worker()
    async with (
        opened(stack) as door,
        door.connected(own_token(stack)) as ada,
        door.connected(own_token(stack)) as bob,
    ):
        await ada.call("chat.open")
        await bob.call("chat.open")
        await send(ada, "hello", "m1")
        for client in (ada, bob):
            written, answer = await client.event("chat.event"), await client.event("chat.event")
            assert (written["text"], written["messageId"]) == ("hello", "m1")
            assert "demo agent" in answer["text"]
            assert answer["isFinal"]
            assert len(answer["entries"]) == 1


async def test_a_repeated_message_is_accepted_once(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        first = await send(client, "hello", "m1")
        again = await send(client, "hello", "m1")
        second = await send(client, "more", "m2")

        assert first["entry"] == again["entry"] != second["entry"]
        assert (first["isDuplicate"], again["isDuplicate"]) == (False, True)
        assert (first["ahead"], second["ahead"]) == (0, 1)


async def test_a_command_is_answered_ahead_of_the_queue(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await client.call("chat.open")
        await send(client, "hello", "m1")
        sent = await send(client, "/queue", "m2")

        assert sent["entry"] is None
        assert (await texts(client, 3))[2].startswith("1 message without an answer yet.")


async def test_a_repeated_command_runs_once_even_across_a_restart(stack: Stack) -> None:
    entries = []
    for _ in range(2):
        async with opened(stack) as door, door.connected(own_token(stack)) as client:
            await client.call("chat.open")
            await send(client, "/new", "m1")
            assert await texts(client, 2) == ["/new", "A new conversation."]
            (view,) = await stack.fleet.sessions.list(limit=2)
            entries.append(await stack.fleet.scripts.client.xlen(keys.inbound(view.sid)))

    assert entries == [1, 1]


async def test_a_tasks_session_takes_no_messages(stack: Stack) -> None:
    key = SessionKey("main", "test", "here", "chat", "ada", task="task-1")
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        with pytest.raises(Refused, match="write to the session that gave it the task"):
            await send(client, "hello", "m1", sessionKey=str(key))

    assert not await stack.fleet.sessions.list(limit=1)


async def newest_entry(stack: Stack) -> Any:
    (view,) = await stack.fleet.sessions.list(limit=1)
    entries: Any = await stack.fleet.scripts.client.xrange(keys.inbound(view.sid))
    return orjson.loads(entries[-1][1][b"entry"])


async def test_a_message_with_two_slashes_is_sent_to_the_agent(stack: Stack) -> None:
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        for number, name in enumerate(("help", "new", "stop")):
            await send(client, f"//{name}", f"m{number}")

            entry = await newest_entry(stack)
            assert entry["message"]["text"] == f"/{name}"
            assert entry["message"]["chat_kind"] == "direct"
            assert command_of(decode_entry(b"1-0", {b"entry": orjson.dumps(entry)})) is None


async def test_an_unknown_command_is_passed_to_the_cli_or_refused(stack: Stack) -> None:
    refused = await reply_to(stack, "/Context now", "m1")
    assert refused.startswith("There is no command /context, and demo has none")

    stack.configure({"runtime": "codex"})
    assert "codex has none of its own here" in await reply_to(stack, "/context", "m3")

    stack.configure({"runtime": "claude"})
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        assert (await send(client, "/Context now", "m2"))["entry"]
        entry = await newest_entry(stack)
        assert (entry["message"]["text"], entry["is_command"]) == ("/context now", True)


@pytest.mark.parametrize(
    ("runtime", "reply", "forwarded"),
    [
        ("claude", "", "/compact keep it"),
        ("codex", "codex decides itself what its summary keeps.", "/compact"),
        ("gemini", NO_SUMMARIES.format(runtime="gemini"), None),
        ("demo", NO_SUMMARIES.format(runtime="demo"), None),
    ],
)
async def test_compact_is_a_turn_of_its_own_for_agents_that_can(
    stack: Stack, runtime: str, reply: str, forwarded: str | None
) -> None:
    stack.configure({"runtime": runtime})
    async with opened(stack) as door, door.connected(own_token(stack)) as client:
        await client.call("chat.open")
        sent = await send(client, "/Compact keep it", "m1")
        assert bool(sent["entry"]) is (forwarded is not None)
        if reply:
            assert reply in [await texts(client, 1) for _ in range(2)][1]
        if forwarded:
            entry = await newest_entry(stack)
            assert (entry["message"]["text"], entry["is_command"]) == (forwarded, True)


async def test_reset_and_clear_begin_a_new_conversation(stack: Stack) -> None:
    for number, text in enumerate(("/reset", "/clear")):
        assert await reply_to(stack, text, f"m{number}") == "A new conversation."


async def model_of(stack: Stack) -> str | None:
    view = await stack.fleet.sessions.view(SessionKey.parse(KEY).sid)
    assert view is not None
    return view.model


async def test_a_sessions_model_can_be_set_before_its_first_message(stack: Stack) -> None:
    stack.configure({"runtime": "claude"})
    await reply_to(stack, "/model haiku", "m1")
    assert await model_of(stack) == "haiku"
    assert (await reply_to(stack, "/model -x", "m2")).startswith("A model's name has no spaces")
    await reply_to(stack, "/model Default", "m3")
    assert await model_of(stack) is None


async def test_quiet_and_verbose_set_the_quiet_mode_of_a_session(stack: Stack) -> None:
    for text, is_quiet in (("/quiet", True), ("/verbose", False)):
        assert (await reply_to(stack, text, text)).startswith("From the next turn on")
        view = await stack.fleet.sessions.view(SessionKey.parse(KEY).sid)
        assert (view is not None and view.is_quiet) is is_quiet


# -- files ----------------------------------------------------------------------------------------


async def upload(door: Door, token: str, key: str, content: bytes) -> Any:
    path = f"/files?session={key}&name=plan.txt"
    return (await door.post(path, token, content)).json


async def test_messages_and_replies_carry_files_which_are_kept(stack: Stack) -> None:
    token = own_token(stack)
    async with opened(stack) as door, door.connected(token) as client:
        chat = await client.call("chat.open")
        file = await upload(door, token, chat["sessionKey"], b"the plan")
        assert (file["name"], file["size"]) == ("plan.txt", 8)
        assert (await send(client, "Look.", "m1", files=[file]))["entry"]

        answer_file = await stack.fleet.blobs.put(SID, "answer.txt", b"the answer")
        await stack.put_reply(
            "web", "default", "Here.", chat=chat["person"], attachments=(answer_file,)
        )
        written, answer = await client.event("chat.event"), await client.event("chat.event")
        assert [file["name"] for file in written["files"]] == ["plan.txt"]
        (named,) = answer["files"]
        path = f"/files/{SID}/{named['blob']}?size={named['size']}"
        stream = keys.replies("web", "default")

        async def is_delivered() -> bool:
            return not await stack.fleet.scripts.client.xlen(stream)

        await eventually(is_delivered)
        assert (await door.get(path, token)).body == b"the answer"


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


async def test_only_two_workspaces_are_searched_at_once(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the searches of a few people who write take all threads of the gateway."""
    running: list[str] = []
    found = threading.Event()

    def search(_: Path, letters: str, __: int) -> list[str]:
        running.append(letters)
        found.wait(HANG_S)
        return []

    monkeypatch.setattr("remoteclaw.gateway.methods.chat.paths_like", search)
    async with opened(stack) as door, contextlib.AsyncExitStack() as connections:
        clients = [
            await connections.enter_async_context(door.connected(own_token(stack)))
            for _ in range(4)
        ]
        params = {"sessionKey": KEY, "like": "a"}
        calls = [await client.begin("chat.files", params) for client in clients]
        await eventually(lambda: len(running) >= 2)
        async with door.connected(own_token(stack)) as other:
            await other.call("health")
        at_once = len(running)
        found.set()
        for client, call in zip(clients, calls, strict=True):
            assert (await client.answer(call))["ok"]
    assert (at_once, len(running)) == (2, 4)
