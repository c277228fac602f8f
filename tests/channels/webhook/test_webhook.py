"""A program between a platform and RemoteClaw: it posts messages and gets replies, both signed."""

import asyncio
import base64
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from remoteclaw.channels.webhook.signing import signed_headers
from remoteclaw.commands.answers import NOT_YOURS
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.gateway.methods.messages import HANDLERS
from remoteclaw.messages import SessionKey
from tests.support.bridges import acp_script, claude_script
from tests.support.command import REMOTECLAW, Process, run_command, start_program
from tests.support.doors import Door, gateway_process
from tests.support.receiver import Receiver
from tests.support.requests import BODY, QUESTIONS, open_request, shown
from tests.support.stack import Stack, said
from tests.support.turns import ask, gateway, operator
from tests.support.waiting import eventually

TOKEN = "0123456789abcdef"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver.running(TOKEN) as running:
        yield running


@pytest.fixture
async def door(stack: Stack, receiver: Receiver) -> AsyncIterator[Door]:
    about = {"token": TOKEN, "url": receiver.url, "allow": ["ada"], "owners": ["alice"]}
    stack.configure(channels={"webhook": about})
    async with gateway_process(stack, REMOTECLAW__GATEWAY__PORT="0") as (door, _):
        yield door


@contextlib.contextmanager
def channel(stack: Stack) -> Iterator[Process]:
    """Have `remoteclaw channel run` running; it is killed at the end."""
    log = stack.home.path / "channel.log"
    process = start_program([REMOTECLAW, "channel", "run"], env=stack.env(), log=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def post(door: Door, body: Any, *, token: str = TOKEN, path: str = "/webhook") -> Any:
    """Post a message as a program does; return the status and the response."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    headers = signed_headers(token, data, at_s=int(time.time()))
    async with (
        aiohttp.ClientSession() as session,
        session.post(door.url + path, data=data, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


def message(id_: str, text: str, *, by: str = "ada", **more: Any) -> dict[str, Any]:
    return {"id": id_, "chat": by, "from": by, "text": text, **more}


async def test_a_message_that_its_sender_deletes_while_it_waits_is_not_answered(
    stack: Stack, receiver: Receiver, door: Door
) -> None:
    for number in ("1", "2"):
        assert (await post(door, message(number, f"hello {number}")))[0] == 200
    deletion = {"id": "3", "chat": "ada", "from": "ada", "deletes": "1"}
    assert (await post(door, deletion)) == (200, {"ok": True})
    await stack.start_worker()
    with channel(stack):
        (answer,) = await asyncio.to_thread(receiver.wait, 1)

    assert "message 1 of our conversation" in answer["text"]
    history = keys.history("webhook", "default", "ada")
    assert b"hello 1" not in str(await stack.fleet.scripts.client.xrange(history)).encode()


async def test_a_message_is_answered_once_however_often_it_is_posted(
    stack: Stack, receiver: Receiver, door: Door
) -> None:
    await stack.start_worker()
    with channel(stack):
        for _ in range(3):
            assert (await post(door, message("1", "hello"))) == (200, {"ok": True})
        first = await eventually(lambda: receiver.messages)
        assert first[0]["chat"] == "ada"
        assert "RemoteClaw's demo agent" in first[0]["text"]

        assert (await post(door, message("2", "/whoami")))[0] == 200
        second = await eventually(lambda: receiver.messages[1:])
        assert "`ada` on webhook" in second[0]["text"]

        # The program fails for a while, and the channel's process is killed in that time.
        receiver.answers.extend([(503, {}, b"")] * 2)
        assert (await post(door, message("3", "memory")))[0] == 200
        await eventually(lambda: not receiver.answers)
    with channel(stack):
        third = await eventually(lambda: receiver.messages[2:])
    assert "- hello" in third[0]["text"]
    assert len(set(receiver.keys)) == 3


async def test_a_request_that_waits_gets_the_answer_and_the_url_gets_nothing(
    stack: Stack, receiver: Receiver, door: Door
) -> None:
    async def ask(body: dict[str, Any], wait: object) -> tuple[int, dict[str, Any]]:
        status, answer = await post(door, body | {"wait": wait})
        return status, answer

    with channel(stack):
        _, accepted = await ask(message("1", "hello"), 0)
        await stack.start_worker()
        _, answered = await ask(message("1", "hello"), 100)  # it is the same message
        _, command = await ask(message("2", "/whoami"), 100)
        _, stranger = await ask(message("3", "hello", by="eve"), 100)
        _, failed = await ask(message("4", "fail"), 100)
        _, handled = await ask(message("2", "/whoami"), 1)
        waits = ("", -1, 111, 1.5, "²", "9" * 4400)
        wrong = [await ask(message("5", "hello"), wait) for wait in waits]
        unsigned = await post(door, message("1", "hello"), path="/webhook?wait=1")
        others: list[dict[str, Any]] = [
            {"replaces": "1", "text": "hello again"},
            {"deletes": "1"},
            {"reaction": "👍", "replyTo": "1"},
            {"answer": {"request": "nosuch", "verdict": "once"}},
        ]
        others_refused = [await ask(message("5", "") | other, 1) for other in others]
        assert (await post(door, message("6", "memory")))[0] == 200
        (posted,) = await asyncio.to_thread(receiver.wait, 1)

    assert accepted == {
        "ok": True, "status": "accepted", "text": "", "isError": False, "pause": None,
    }  # fmt: skip
    assert (answered["status"], answered["isError"]) == ("done", False)
    assert "message 1 of our conversation" in answered["text"]
    assert command["status"] == "done"
    assert "`ada` on webhook" in command["text"]
    assert handled == {
        "ok": True,
        "status": "unknown",
        "text": "There is no answer: the message was handled before, or is not for the agent.",
        "isError": True,
        "pause": None,
    }
    for status, other in others_refused:
        assert (status, other["error"]["message"]) == (
            400,
            "The body: Value error, wait is only for new messages.",
        )
    assert (stranger["status"], stranger["isError"]) == ("refused", True)
    assert "give you access" in stranger["text"]
    assert (failed["status"], failed["isError"]) == ("failed", True)
    assert {status for status, _ in wrong} == {400}
    assert "wait Input should be less than or equal to 110" in wrong[2][1]["error"]["message"]
    assert unsigned == (200, {"ok": True}), "wait was taken from outside of the signed body"
    assert "- hello" in posted["text"]


async def test_webhook_messages_are_read_back_with_their_reactions(
    stack: Stack, receiver: Receiver, door: Door
) -> None:
    await stack.start_worker()
    with channel(stack):
        await post(door, message("1", "hello"))
        await eventually(lambda: receiver.messages)
        client: Any = stack.fleet.scripts.client
        await eventually(
            lambda: client.exists(keys.message_origin("webhook", "default", "ada", "m1"))
        )
        like = message("2", "", replyTo="m1", reaction="👍")
        assert (await post(door, like)) == (200, {"ok": True})
        calls = gateway(stack.fleet, stack.home, HANDLERS)
        key = str(SessionKey("main", "webhook", "default", "ada", "ada"))
        history, _ = await ask(calls, operator("read"), "message.read", session_key=key)

    asked, answered = history["messages"]
    assert (asked["id"], asked["from"], asked["text"]) == ("1", "ada", "hello")
    assert (answered["id"], answered["from"]) == ("m1", "you")
    assert [one["emoji"] for one in answered["reactions"]] == ["👍"]


async def test_a_request_is_a_card_that_only_approvers_can_answer(
    stack: Stack, receiver: Receiver, door: Door, directory: Path
) -> None:
    stack.agent = {"runtime": "acp", "command": list(acp_script(directory, BODY))}
    about = {"token": TOKEN, "url": receiver.url, "allow": ["ada"], "owners": ["alice"]}
    stack.configure(channels={"webhook": about})
    await stack.start_worker()
    with channel(stack):
        await post(door, message("1", "touch x", by="alice"))
        request = await open_request(stack)
        (card,) = await eventually(lambda: [one for one in receiver.messages if "card" in one])
        assert card["card"]["id"] == request.id
        assert [verdict for verdict, _ in card["card"]["choices"]] == [
            "once",
            "conversation",
            "deny",
        ]
        assert "answer with the number" in card["text"]

        answer = {"request": request.id, "verdict": "deny", "words": "not now"}
        for number, by in enumerate(("ada", "bo", "alice"), 2):
            more = {"chat": "alice", "answer": answer}
            response = await post(door, message(str(number), "", by=by, **more))
            assert response == (200, {"ok": True})
        messages = await eventually(
            lambda: "touch x no" in str(receiver.messages) and receiver.messages
        )
        elsewhere = message("5", "touch x", by="alice", chat="job", wait=100)
        _, awaited = await post(door, elsewhere)
    texts = [one["text"] for one in messages]
    assert texts.count(NOT_YOURS) == 2
    assert "touch x no" in awaited["text"], "an agent asked while the sender waited for the answer"
    assert "which needs a permission that no person can give here" in awaited["text"]
    assert len({one["card"]["id"] for one in receiver.messages if "card" in one}) == 1
    assert len([text for text in texts if text.startswith("Denied by alice at ")]) == 1
    (closed,) = [one for one in messages if one.get("card", {}).get("choices") == []]
    assert "“not now”" in closed["text"]


async def test_questions_are_answered_by_a_choice_or_by_free_text(
    stack: Stack, receiver: Receiver, door: Door, directory: Path
) -> None:
    command = list(claude_script(directory, QUESTIONS))
    about = {"token": TOKEN, "url": receiver.url, "owners": ["alice"]}
    stack.configure({"runtime": "claude", "command": command}, channels={"webhook": about})
    await stack.start_worker()
    with channel(stack):
        await post(door, message("1", "go", by="alice"))
        answered: list[str] = []
        for verdict, words in (("2", ""), ("words", "like the sea")):
            await eventually(lambda: len(_cards(receiver)) > len(answered))
            request = _cards(receiver)[-1]["id"]
            answer = {"request": request, "verdict": verdict, "words": words}
            await post(door, message(request, "", by="alice", answer=answer))
            answered.append(request)
        await eventually(lambda: '"Which colours?": "like the sea"' in str(receiver.messages))
    assert '"Which DB?": "SQLite"' in str(receiver.messages)
    first, _ = _cards(receiver)
    assert first["choices"] == [["1", "Postgres"], ["2", "SQLite"], ["deny", "No answer"]]


def _cards(receiver: Receiver) -> list[Any]:
    """Return the cards with choices, in order."""
    return [one["card"] for one in receiver.messages if one.get("card", {}).get("choices")]


async def test_a_chat_on_another_platform_answers_a_request_by_number(
    stack: Stack, receiver: Receiver, door: Door, directory: Path
) -> None:
    stack.agent = {"runtime": "acp", "command": list(acp_script(directory, BODY))}
    webhook = {"token": TOKEN, "url": receiver.url, "groups": {"ops": {}}}
    requests = {"who": ["webhook:bo"], "chat": "webhook:ops", "thread": "t1"}
    stack.configure(channels={"webhook": webhook, "test": {"requests": requests}})
    await stack.start_worker()
    with channel(stack):
        accepted = await stack.append("touch x")
        (card,) = await eventually(lambda: [one for one in receiver.messages if "card" in one])
        assert (card["chat"], card["thread"]) == ("ops", "t1")
        assert "for `test:alice`" in card["text"]
        at = {"chat": "ops", "thread": "t1", "isGroup": True, "isForUs": True}
        for number, by in enumerate(("ada", "bo"), 1):
            await post(door, {"id": str(number), "from": by, "text": "1", **at})
        answer = said(await stack.outcome(accepted))
        await eventually(lambda: "Allowed once by bo at " in str(receiver.messages))

    assert "touch x yes" in answer
    assert [one["text"] for one in receiver.messages].count(NOT_YOURS) == 1
    assert [text async for text in shown(stack) if "equest" in text] == [
        f"I have asked a person elsewhere (request `{card['card']['id']}`), and continue if they "
        "answer within a day."
    ]


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_message_whose_gateway_is_killed_is_accepted_once_by_another_gateway(
    stack: Stack, receiver: Receiver, side: Any
) -> None:
    proxy = await stack.proxied()
    about = {"token": TOKEN, "url": receiver.url, "allow": ["ada"]}
    stack.configure(channels={"webhook": about})
    env = {"REMOTECLAW__GATEWAY__PORT": "0"}
    at_proxy = {**env, "REMOTECLAW__REDIS__URL": proxy.url}
    failpoint = proxy.arm("append", side)
    async with gateway_process(stack, **at_proxy) as (door, killed):
        posting = asyncio.create_task(post(door, message("1", "one")))
        await failpoint.wait()
        killed.kill()
        with pytest.raises(aiohttp.ClientError):
            await posting
        failpoint.cut()
    async with (
        gateway_process(stack, **env) as (first, _),
        gateway_process(stack, **env) as (second, _),
    ):
        for door, number in ((first, "1"), (second, "1"), (second, "2"), (first, "2")):
            assert (await post(door, message(number, number)))[0] == 200

    session = SessionKey("main", "webhook", "default", "ada", "ada")
    client: Any = stack.fleet.scripts.client
    entries = await client.xrange(keys.inbound(session.sid))
    assert [decode_entry(*entry).message.id for entry in entries] == ["1", "2"]


async def test_an_unsigned_request_does_not_reveal_which_accounts_exist(
    stack: Stack, receiver: Receiver, door: Door
) -> None:
    body = message("1", "hello")
    problems = {
        response[1]["error"]["message"]
        for response in (
            await post(door, body, token="another one"),
            await post(door, body, path="/webhook/nosuch"),
        )
    }
    assert len(problems) == 1
    assert "not signed with its token" in problems.pop()
    assert await stack.fleet.sessions.list(limit=1) == []


async def test_status_shows_why_replies_wait(stack: Stack, receiver: Receiver, door: Door) -> None:
    receiver.token = "another one"
    with channel(stack):
        await post(door, message("1", "/whoami"))
        await eventually(lambda: receiver.keys)

        def is_reported() -> bool:
            status = run_command("status", env=stack.env()).stdout
            return ", 1 reply waits: " in status and "refuses the signature" in status

        await eventually(is_reported)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "The body is not JSON."),
        ({"id": "1"}, "chat"),
        ({**message("1", "x"), "surprise": 1}, "surprise"),
        ({**message("1", ""), "answer": {"request": "a", "verdict": "all"}}, "verdict"),
        ({**message("1", "x"), "files": [{"name": "a"}]}, "needs content or url"),
        ({**message("1", "x"), "replaces": "1"}, "an id of its own"),
    ],
)
async def test_an_invalid_webhook_body_is_refused_with_a_clear_error(
    door: Door, body: Any, words: str
) -> None:
    status, response = await post(door, body)
    assert status == 400
    assert words in response["error"]["message"]


async def test_a_stranger_gets_a_pairing_code_and_a_file_is_accepted(
    stack: Stack, receiver: Receiver, door: Door
) -> None:
    await stack.start_worker()
    with channel(stack):
        await post(door, message("1", "hello", by="bo"))
        answer = await eventually(lambda: receiver.messages)
        assert "Your code is" in answer[0]["text"]

        content = base64.b64encode(b"one two").decode()
        file = {"name": "a.txt", "mimeType": "text/plain", "content": content}
        bad = {"name": "b.txt", "mimeType": "text/plain", "content": "***"}
        await post(door, message("2", "look", files=[file, bad]))
        messages = await eventually(lambda: len(receiver.messages) > 2 and receiver.messages)
        texts = [each["text"] for each in messages]
        assert any("b.txt was not taken: its content is no base64." in text for text in texts)
        assert any("a.txt" in text for text in texts if "b.txt" not in text)


async def test_the_files_of_a_quoted_message_reach_the_agent_from_a_webhook(
    stack: Stack, door: Door
) -> None:
    files = [{"name": "plan.txt", "content": base64.b64encode(b"the plan").decode()}]
    own = [{"name": "own.txt", "content": base64.b64encode(b"own").decode()}]
    about: dict[str, Any] = {
        "replyTo": "0",
        "quoted": "see",
        "quotedFiles": files,
        "isForwarded": True,
        "files": own,
    }
    assert (await post(door, message("1", "and this?", **about)))[0] == 200
    # Without its text and files, the quoted message comes from the chat's history.
    assert (await post(door, message("2", "and that?", replyTo="1")))[0] == 200

    (view,) = await stack.fleet.sessions.list(limit=2)
    client: Any = stack.fleet.scripts.client
    found = await client.xrange(keys.inbound(view.sid))
    first, second = (decode_entry(*entry).message for entry in found)
    assert [(one.name, one.is_quoted) for one in first.attachments] == [
        ("own.txt", False),
        ("plan.txt", True),
    ]
    assert await stack.fleet.blobs.get(view.sid, first.attachments[1]) == b"the plan"
    assert (first.is_forwarded, second.is_forwarded) == (True, None)
    assert second.quoted is not None
    assert "own.txt" in second.quoted
    assert second.quoted.endswith("and this?")


async def test_a_voice_message_to_the_webhook_is_transcribed(
    stack: Stack, receiver: Receiver, door: Door
) -> None:
    about = {"token": TOKEN, "url": receiver.url, "allow": ["ada"], "transcribe": ["cat"]}
    stack.configure(channels={"webhook": about})
    await stack.start_worker()
    content = base64.b64encode(b"one two").decode()
    voice = {"name": "voice", "mimeType": "audio/ogg; codecs=opus", "content": content}
    with channel(stack):
        assert (await post(door, message("1", "", files=[voice])))[0] == 200
        messages = await eventually(lambda: receiver.messages[1:] and receiver.messages)
    assert messages[0]["text"] == "You said: one two"


@pytest.fixture
def recording(stack: Stack, receiver: Receiver, tmp_path: Path) -> Path:
    """A pipe: a recording is being transcribed until the test writes its transcript there."""
    pipe = tmp_path / "transcript"
    os.mkfifo(pipe)
    about = {"token": TOKEN, "url": receiver.url, "allow": ["ada"]}
    transcribe = ["sh", "-c", f"cat {pipe}"]
    stack.configure(channels={"webhook": {**about, "transcribe": transcribe}})
    return pipe


def transcriber(pipe: Path) -> int | None:
    """Return the open end of the pipe; None unless a recording is being transcribed."""
    with contextlib.suppress(OSError):
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    return None


VOICE = {"name": "voice.mp3", "mimeType": "audio/mpeg", "content": ""}


async def test_an_edit_waits_until_its_message_has_been_transcribed(
    stack: Stack, recording: Path
) -> None:
    async with (
        gateway_process(stack, REMOTECLAW__GATEWAY__PORT="0") as (door, _),
        asyncio.TaskGroup() as tasks,
    ):
        said = tasks.create_task(post(door, message("1", "paint it blue", files=[VOICE])))
        heard = await eventually(lambda: transcriber(recording))
        edit = message("2", "paint it red", replaces="1")
        edited = tasks.create_task(post(door, edit))
        status, _ = await post(door, message("3", "", replyTo="9", reaction="x"))
        assert status == 200
        os.write(heard, b"and hurry")
        os.close(heard)
    assert (await said, await edited) == ((200, {"ok": True}),) * 2
    session = SessionKey("main", "webhook", "default", "ada", "ada")
    edits = await stack.fleet.scripts.client.hvals(keys.edits(session.sid))
    assert [b"paint it red" in each for each in edits] == [True]


async def test_a_stop_withdraws_a_message_that_is_being_transcribed(
    stack: Stack, receiver: Receiver, recording: Path
) -> None:
    async with gateway_process(stack, REMOTECLAW__GATEWAY__PORT="0") as (door, _):
        said = asyncio.create_task(post(door, message("1", "", files=[VOICE])))
        heard = await eventually(lambda: transcriber(recording))
        assert (await post(door, message("2", "/stop")))[0] == 200
        os.close(heard)
        assert await said == (200, {"ok": True})
    with channel(stack):
        (answer,) = await asyncio.to_thread(receiver.wait, 1)

    assert answer["text"] == "1 message was withdrawn before the agent got it."
