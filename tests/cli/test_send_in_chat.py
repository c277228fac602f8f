"""`send` as a person types it: in the person's chat, which the page shows, too."""

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.channels.web.profile import person_id
from remoteclaw.cli.order import Order
from remoteclaw.cli.over_gateway import send_over_gateway
from remoteclaw.fleet.turns.outcomes import Outcome
from remoteclaw.fleet.web import ChatEvent, chat_name
from remoteclaw.host.terminal import login_name
from remoteclaw.messages import SessionKey
from tests.support.bridges import acp_script, script
from tests.support.cli import run
from tests.support.command import REMOTECLAW
from tests.support.doors import RpcClient, gateway_process, opened, own_token
from tests.support.kills import kill_all
from tests.support.pages import login, paged
from tests.support.requests import BODY
from tests.support.stack import Stack
from tests.support.terminal import Terminal
from tests.support.waiting import HANG_S, eventually

PERSON = person_id(login_name(), is_admin=True)
KEY = str(SessionKey("main", "web", "default", PERSON, PERSON, None))

HELLO = Order(
    text="hello",
    is_in_chat=True,
    session=None,
    channel=None,
    from_=None,
    to=None,
    thread=None,
    account=None,
    agent=None,
    message_id="m1",
    has_new_id=False,
    is_background=False,
    wait_s=HANG_S,
    attach=(),
)

#: An agent that says what it was asked, once a file exists.
SLOW = """
while True:
    asked = turn()
    if asked['type'] != 'turn': continue
    while not os.path.exists('DIRECTORY/go'): time.sleep(0.01)
    say(type='text', text='You said: ' + asked['prompt'].strip().splitlines()[-1])
    say(type='done')
"""


#: An agent whose answer is longer than a message of the chat may be here.
SEVERAL = """
def until(name):
    while not os.path.exists(f'DIRECTORY/{name}'): time.sleep(0.01)
while True:
    turn()
    say(type='text', text=f"{'One ' * 15}.\\n\\nTwo ")
    until('one')
    say(type='text', text=f"{'Two ' * 14}.\\n\\nThree ")
    until('go')
    say(type='text', text=f"{'Three ' * 9}.")
    say(type='done')
"""


def slow(stack: Stack, directory: Path, **more: Any) -> None:
    command = list(script(directory, SLOW.replace("DIRECTORY", str(directory))))
    stack.configure({"runtime": "demo", "command": command}, **more)


@contextlib.asynccontextmanager
async def answering(stack: Stack) -> AsyncIterator[None]:
    """Run a worker and a gateway."""
    await stack.start_worker()
    async with gateway_process(stack):
        yield


@contextlib.contextmanager
def typed(stack: Stack, *arguments: str) -> Iterator[Terminal]:
    """Run `send` as a person types it."""
    with Terminal.running(REMOTECLAW, "send", *arguments, env=stack.env()) as terminal:
        yield terminal


async def chat_of(stack: Stack, person: str = PERSON) -> Sequence[tuple[str, str]]:
    """Return the messages of a person's first conversation, each with its author."""
    return [
        (str(event.about["from"]), str(event.about["text"]))
        for event in await events_of(stack, person)
        if event.kind == "message"
    ]


async def events_of(stack: Stack, person: str = PERSON) -> Sequence[ChatEvent]:
    return await stack.fleet.web.before(person)


async def left(terminal: Terminal) -> int:
    return await asyncio.to_thread(terminal.leave)


async def test_a_typed_message_and_its_answer_are_in_the_chat_and_printed_once_each(
    stack: Stack,
) -> None:
    async with answering(stack):
        with typed(stack, "hello") as terminal:
            assert await left(terminal) == 0
        asked, answered = await eventually(lambda: of_length(stack, 2))

    assert asked == (PERSON, "hello")
    assert answered[0] == "agent"
    assert "RemoteClaw's demo agent" in answered[1]
    assert terminal.words().count("RemoteClaw's demo agent") == 1
    (view,) = await stack.fleet.sessions.list(limit=2)
    assert (view.key.provider, view.key.user) == ("web", PERSON)


async def of_length(stack: Stack, length: int) -> Sequence[tuple[str, str]] | None:
    chat = await chat_of(stack)
    return chat if len(chat) == length else None


async def test_redirected_or_with_a_sender_it_has_a_session_of_its_own(
    stack: Stack, directory: Path
) -> None:
    """Of the standard streams, one that is no terminal is enough."""
    terminal_only = (
        *(f"{REMOTECLAW} send hello < /dev/null", f"{REMOTECLAW} send hello > {directory}/answer"),
        *(f"{REMOTECLAW} send hello | cat", f"echo hello | {REMOTECLAW} send -"),
        *(f"{REMOTECLAW} send hello <&-", f"{REMOTECLAW} send hello --from {login_name()}"),
        f"{REMOTECLAW} send hello --channel cli",
    )
    async with answering(stack):
        for line in terminal_only:
            with Terminal.running("/bin/sh", "-c", line, env=stack.env()) as terminal:
                assert await left(terminal) == 0, line
        assert run(stack, "send", "hello").returncode == 0
        assert await chat_of(stack) == []

    views = await stack.fleet.sessions.list(limit=9)
    assert {view.key.provider for view in views} == {"cli"}
    assert {view.key.user for view in views} == {PERSON, login_name()}
    assert "RemoteClaw's demo agent" in (directory / "answer").read_text()
    assert not await stack.fleet.web.has_chats(PERSON)


async def write(page: RpcClient, message_id: str, text: str, *, waits: bool = False) -> Any:
    """Send a message to the first conversation, as the page does."""
    params = {"sessionKey": KEY, "messageId": message_id, "text": text, "waits": waits}
    return await page.call("chat.send", params)


async def test_a_message_that_somebody_waits_for_has_its_own_turn(
    stack: Stack, directory: Path
) -> None:
    """It shares no turn with the messages before and after it, and the order is kept."""
    slow(stack, directory, queue={"mode": "collect", "debounce_ms": 0, "cap": 1, "drop": "new"})
    async with opened(stack, is_private=True) as door, door.connected(own_token(stack)) as page:
        await stack.start_worker()
        await write(page, "a", "first")
        await eventually(lambda: is_running(stack))
        await write(page, "b", "second")
        waited = [
            await page.call(
                "chat.send",
                {"sessionKey": KEY, "messageId": f"w{n}", "text": f"send {n}", "waits": True},
            )
            for n in range(3)
        ]
        await write(page, "c", "third")
        again = await page.call(
            "chat.send", {"sessionKey": KEY, "messageId": "w1", "text": "other", "waits": True}
        )
        (directory / "go").touch()
        (view,) = await stack.fleet.sessions.list(limit=2)
        outcomes = [
            await eventually(partial(final, stack, view.sid, sent["entry"])) for sent in waited
        ]
        await eventually(lambda: is_answered(stack, "You said: third"))

    assert (again["entry"], again["isDuplicate"]) == (waited[1]["entry"], True)
    assert [outcome.status for outcome in outcomes] == ["done"] * 3
    assert [outcome.turn for outcome in outcomes] == [sent["entry"] for sent in waited]
    assert [part["text"] for each in outcomes for part in each.reply] == [
        f"You said: send {n}" for n in range(3)
    ]
    said = [text for author, text in await chat_of(stack) if author == "agent"]
    assert said == [
        f"You said: {text}" for text in ("first", "second", "send 0", "send 1", "send 2", "third")
    ]


async def is_running(stack: Stack) -> bool:
    views = await stack.fleet.sessions.list(limit=2)
    return [view.status for view in views] == ["running"]


async def final(stack: Stack, sid: str, entry: str) -> Outcome | None:
    outcome = await stack.fleet.outcomes.read(sid, entry)
    return outcome if outcome and outcome.is_final else None


async def is_answered(stack: Stack, text: str) -> bool:
    return ("agent", text) in await chat_of(stack)


async def test_a_stop_is_told_to_who_waits(stack: Stack, directory: Path) -> None:
    """The chat says once that everything was stopped; each outcome says it, too."""
    slow(stack, directory)
    async with opened(stack, is_private=True) as door, door.connected(own_token(stack)) as page:
        await stack.start_worker()
        with typed(stack, "first") as first, typed(stack, "second") as second:
            await eventually(lambda: are_waiting(stack, 2))
            await write(page, "s", "/stop")
            assert [await left(first), await left(second)] == [1, 1]

    assert "stopped" in first.words().lower()
    assert "stopped" in second.words().lower()


async def are_waiting(stack: Stack, number: int) -> bool:
    views = await stack.fleet.sessions.list(limit=2)
    return [view.waiting for view in views] == [number]


async def test_a_command_is_answered_in_the_chat_and_printed(stack: Stack) -> None:
    """No worker runs."""
    async with gateway_process(stack):
        with typed(stack, "/whoami", "--message-id", "m1") as terminal:
            assert await left(terminal) == 0
        with typed(stack, "/whoami", "--message-id", "m1") as again:
            assert await left(again) == 0
        asked, answered = await eventually(lambda: of_length(stack, 2))

    assert asked == (PERSON, "/whoami")
    assert PERSON in answered[1]
    assert terminal.words().count("You are") == 1
    assert "accepted before" in again.words()
    assert PERSON not in again.words()


async def test_a_killed_send_is_answered_in_the_chat_and_repeated_once(
    stack: Stack, directory: Path
) -> None:
    slow(stack, directory)
    async with answering(stack):
        with typed(stack, "hello", "--message-id", "m1") as killed:
            await eventually(lambda: is_running(stack))
            os.kill(killed.pid, signal.SIGKILL)
        with typed(stack, "other", "--message-id", "m1") as interrupted:
            interrupted.see("accepted before")
            interrupted.type("\x03")
            interrupted.see("the message is not lost")
            await left(interrupted)
        (directory / "go").touch()
        with typed(stack, "hello", "--message-id", "m1") as again:
            assert await left(again) == 0
        chat = await eventually(lambda: of_length(stack, 2))

    assert chat == [(PERSON, "hello"), ("agent", "You said: hello")]
    assert again.words().count("You said: hello") == 1


async def test_a_typed_message_survives_its_gateway_and_its_worker(
    stack: Stack, directory: Path
) -> None:
    slow(stack, directory)
    await stack.start_worker()
    async with gateway_process(stack) as (_, first):
        with typed(stack, "hello") as terminal:
            await eventually(lambda: is_running(stack))
            first.kill()
            first.wait()
            async with gateway_process(stack):
                await kill_all(stack)
                (directory / "go").touch()
                assert await left(terminal) == 0
                chat = await eventually(lambda: of_length(stack, 3))  # a notice is between them

    assert (chat[0], chat[2]) == ((PERSON, "hello"), ("agent", "You said: hello"))
    assert terminal.words().count("You said: hello") == 1


async def test_twenty_messages_at_once_have_twenty_answers_in_the_chat(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = [replace(HELLO, text=f"hello {n}", message_id=f"m{n}") for n in range(20)]
    async with answering(stack):
        sending = [
            send_over_gateway(stack.home, order, as_json=True, stream=None) for order in orders
        ]
        assert await asyncio.gather(*sending) == [0] * 20
        chat = await eventually(lambda: of_length(stack, 40))

    printed = capsys.readouterr().out
    assert printed.count('"status": "done"') == 20
    assert sorted(text for author, text in chat if author == PERSON) == sorted(
        o.text for o in orders
    )


async def test_the_person_of_the_terminal_may_write_although_the_page_names_its_owners(
    stack: Stack,
) -> None:
    """As after a login. An owner is who is listed."""
    stack.configure(channels={"web": {"owners": ["admin.somebody"]}})
    async with answering(stack):
        with typed(stack, "hello") as terminal:
            assert await left(terminal) == 0

    assert "RemoteClaw's demo agent" in terminal.words()


async def test_the_configuration_renames_the_person(stack: Stack) -> None:
    stack.configure(channels={"web": {"person": "ada"}})
    async with answering(stack):
        with typed(stack, "hello") as terminal:
            assert await left(terminal) == 0

    assert [author for author, _ in await chat_of(stack, "admin.ada")] == ["admin.ada", "agent"]


async def test_a_refused_message_is_reported_here_and_in_the_chat(
    stack: Stack, directory: Path
) -> None:
    """A recording can't be heard."""
    (directory / "said.mp3").write_bytes(b"ID3" + bytes(100))
    async with answering(stack):
        with typed(stack, "", "--attach", str(directory / "said.mp3")) as terminal:
            assert await left(terminal) == 1, (terminal.words(), await chat_of(stack))
        chat = await eventually(lambda: of_length(stack, 2))

    assert "I can't listen to recordings here" in terminal.words()
    assert "I can't listen to recordings here" in chat[1][1]


async def test_files_and_an_agent_are_as_in_the_chat(stack: Stack, directory: Path) -> None:
    """The agent named opens its own conversation, and a session can be one of the chats."""
    stack.configure(agents={"beta": {"runtime": "demo"}})
    (directory / "notes.txt").write_text("remember the milk")
    async with answering(stack):
        with typed(stack, "look", "--attach", str(directory / "notes.txt")) as first:
            assert await left(first) == 0
        with typed(stack, "hello", "--agent", "beta") as second:
            assert await left(second) == 0
        by_session = run(stack, "send", "again", "--session", KEY)
        chat = await eventually(lambda: of_length(stack, 4))
        beta = await stack.fleet.web.before(chat_name(PERSON, "beta"))

    assert "I have notes.txt (text/plain, 17 bytes)." in first.words()
    assert [text for author, text in chat if author == PERSON] == ["look", "again"]
    assert "RemoteClaw's demo agent" in by_session.stdout
    assert next(event.about["text"] for event in beta) == "hello"
    views = await stack.fleet.sessions.list(limit=5)
    assert {(view.key.agent, view.key.provider) for view in views} == {
        ("main", "web"),
        ("beta", "web"),
    }


async def test_an_answer_of_several_messages_is_printed_once(stack: Stack, directory: Path) -> None:
    command = script(directory, SEVERAL.replace("DIRECTORY", str(directory)))
    chunks = {"web": {"chunk_limit": 80}}
    stack.configure({"runtime": "demo", "command": list(command)}, channels=chunks)
    async with answering(stack):
        with typed(stack, "go") as terminal:
            (directory / "one").touch()
            await eventually(lambda: of_length(stack, 2))  # the first message is complete
            (directory / "go").touch()
            assert await left(terminal) == 0
        chat = await eventually(lambda: of_length(stack, 4))

    assert [text.split()[0] for _, text in chat[1:]] == ["One", "Two", "Three"]
    printed = Counter(terminal.words().split())
    assert [printed[word] for word in ("One", "Two", "Three")] == [15, 15, 10]


async def test_one_person_has_one_conversation_in_a_terminal_on_the_page_and_with_send(
    stack: Stack,
) -> None:
    async with opened(stack, is_private=True) as door:
        await stack.start_worker()
        browser = await login(stack, door, name=login_name())
        async with paged(door, browser) as page, door.connected(own_token(stack)) as terminal:
            opened_chats = [await each.call("chat.open") for each in (page, terminal)]
            with typed(stack, "hello") as sending:
                assert await left(sending) == 0
            events = [await each.event("chat.event") for each in (page, terminal)]

    assert {each["sessionKey"] for each in opened_chats} == {KEY}
    assert [event["text"] for event in events] == ["hello"] * 2
    (view,) = await stack.fleet.sessions.list(limit=2)
    assert str(view.key) == KEY


async def test_a_request_of_the_agent_is_reported_and_answered_with_another_send(
    stack: Stack, directory: Path
) -> None:
    agent = {"runtime": "acp", "command": list(acp_script(directory, BODY)), "permissions": "ask"}
    stack.configure(agent)
    async with answering(stack):
        with typed(stack, "touch x") as waiting:
            await asyncio.to_thread(waiting.see_words, "The agent waits for your answer:")
            with typed(stack, "/allow") as allowing:
                assert await left(allowing) == 0, allowing.words()
            assert await left(waiting) == 0, waiting.words()

    assert "Done." in allowing.words()
    assert waiting.words().count("The agent waits for your answer") == 1
    assert "touch x yes" in waiting.words()
