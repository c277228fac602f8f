"""`send`: a message from a shell, through the gateway."""

import asyncio
import contextlib
import itertools
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from remoteclaw.cli.order import Order
from remoteclaw.cli.over_gateway import send_over_gateway
from remoteclaw.cli.stream import AnswerStream
from remoteclaw.config.home import Home
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.doors.files import FilesDoor
from remoteclaw.gateway.methods import HANDLERS
from tests.support.bridges import script
from tests.support.cli import loaded_by, refused, run, started
from tests.support.command import REMOTECLAW
from tests.support.doors import gateway_process, opened
from tests.support.stack import Stack, running_stack, said
from tests.support.terminal import Terminal
from tests.support.waiting import HANG_S, eventually

#: An agent that completes its answer once a file exists.
SLOW = """
def until(name):
    while not os.path.exists(f'DIRECTORY/{name}'): time.sleep(0.01)
while True:
    turn()
    say(type='text', text='I **look**.\\n\\nOne, ')
    until('go')
    say(type='text', text='two.')
    say(type='done')
"""


HELLO = Order(
    text="hello",
    is_in_chat=False,
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


@contextlib.asynccontextmanager
async def answering(stack: Stack) -> AsyncIterator[None]:
    """Run a worker and a gateway."""
    await stack.start_worker()
    async with gateway_process(stack):
        yield


def slow(stack: Stack, directory: Path) -> None:
    command = list(script(directory, SLOW.replace("DIRECTORY", str(directory))))
    stack.configure({"runtime": "demo", "command": command})


async def test_send_uses_the_gateway_without_loading_redis(stack: Stack) -> None:
    """Without redis, pydantic and rq, the command takes a third of the time."""
    async with answering(stack):
        modules = loaded_by("send", "hello", env=stack.env())

    assert "websockets" in modules
    assert not modules & {"pydantic", "redis", "rq", "rich", "prompt_toolkit"}
    (view,) = await stack.fleet.sessions.list(limit=2)
    assert view.key.provider == "cli"
    assert view.last_entry is not None
    outcome = await stack.fleet.outcomes.read(view.sid, view.last_entry)
    assert outcome is not None
    assert "RemoteClaw's demo agent" in said(outcome)


async def test_send_uploads_a_file_through_the_gateway(stack: Stack, directory: Path) -> None:
    """An upload loads no further libraries."""
    (directory / "notes.txt").write_text("remember the milk")
    (directory / "none").mkdir()
    async with answering(stack):
        arguments = ("send", "look", "--attach", str(directory / "notes.txt"))
        sent = run(stack, *arguments)
        modules = loaded_by(*arguments, env=stack.env())
        not_a_file = run(stack, "send", "look", "--attach", str(directory / "none"))

    assert "I have `notes.txt` (text/plain, 17 bytes)." in sent.stdout
    assert not modules & {"pydantic", "redis", "rq", "rich", "prompt_toolkit"}
    refused(not_a_file, "none can't be attached, because it is no regular file")


async def test_send_stream_prints_the_answer_while_it_is_written(
    stack: Stack, directory: Path
) -> None:
    slow(stack, directory)
    async with answering(stack):
        with subprocess.Popen(
            [REMOTECLAW, "send", "go", "--stream"],
            env=stack.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as sending:
            assert sending.stdout is not None
            begun = b""
            while b"One," not in begun and (more := os.read(sending.stdout.fileno(), 4096)):
                begun += more
            (directory / "go").touch()
            rest, problems = sending.communicate(timeout=HANG_S)

    assert (begun + rest).decode() == "I **look**.\n\nOne, two.\n"
    assert begun.startswith(b"I **look**.\n\nOne,")
    assert (sending.returncode, problems) == (0, b"")


def live(text: str, *, turn: str = "2-0", attempt: int = 1, index: int = 0) -> dict[str, Any]:
    return {"turn": turn, "attempt": attempt, "index": index, "text": text}


def test_a_stream_prints_only_the_answer_of_its_turn_and_each_text_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = AnswerStream()
    stream.live(live("too early"))
    stream.turn = "2-0"
    for event in (
        live("of the turn before", turn="1-0"),
        live("One"),
        {**live("One."), "is_complete": True},
        live("Three", index=2),  # the event of the second message is missing
        live("\x1b[2JTwo", index=1),
    ):
        stream.live(event)
    stream.end(["One.", "\x1b[2JTwo.", "Three."])

    assert capsys.readouterr().out == "One.\n\n\\u001b[2JTwo.\n\nThree.\n"


def test_a_stream_prints_the_whole_answer_after_a_changed_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = AnswerStream()
    stream.turn = "2-0"
    stream.live(live("It is"))
    stream.live(live("No", attempt=2))
    stream.end(["No."])

    assert capsys.readouterr().out == "It is\n\nNo.\n"


async def test_send_paints_markdown_on_a_terminal(stack: Stack, directory: Path) -> None:
    slow(stack, directory)
    (directory / "go").touch()
    async with answering(stack):
        with Terminal.running(REMOTECLAW, "send", "go", env=stack.env()) as terminal:
            shown = terminal.see("One, two.")
            assert terminal.leave() == 0

    assert "I look." in shown
    assert b"\x1b[1mlook\x1b[0m" in terminal.raw


@pytest.mark.usefixtures("gateway")
async def test_send_answers_chat_commands_without_a_worker(stack: Stack) -> None:
    """No worker is running, and no turn begins."""
    status = run(stack, "send", "/status")
    as_json = json.loads(run(stack, "send", "/help", "--json").stdout)

    assert (status.returncode, status.stderr) == (0, "")
    assert status.stdout.startswith("Idle.\n\n- agent: main (demo)\n")
    assert as_json["status"] == "done"
    assert "`/whoami`" in as_json["reply"][0]["text"]


@pytest.mark.usefixtures("gateway")
async def test_send_with_two_slashes_passes_a_command_to_the_agent(stack: Stack) -> None:
    assert run(stack, "send", "//status", "--wait", "0").returncode == 0
    (view,) = await stack.fleet.sessions.list(limit=2)
    entries: Any = await stack.fleet.scripts.client.xrange(keys.inbound(view.sid))
    ((_, fields),) = entries
    assert b'"text":"/status"' in fields[b"entry"]


async def test_send_repeats_the_message_until_redis_answers(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("remoteclaw.fleet.connection.COMMAND_S", 0.1)
    monkeypatch.setattr("remoteclaw.fleet.turns.inbound.APPEND_S", 0.2)
    stderr = ""

    def keeps_trying() -> bool:
        nonlocal stderr
        stderr += capsys.readouterr().err
        return "still trying to send. If you repeat it, add `--message-id m1`, so that" in stderr

    with contextlib.ExitStack() as frozen:

        async def opened_and_frozen(call: Call, params: Any) -> Any:
            answer = await HANDLERS["chat.open"](call, params)
            frozen.enter_context(stack.redis.frozen())
            return answer

        async with opened(stack, {**HANDLERS, "chat.open": opened_and_frozen}, is_private=True):
            sending = asyncio.create_task(
                send_over_gateway(stack.home, HELLO, as_json=False, stream=None)
            )
            await eventually(keeps_trying)
            assert not sending.done()
            frozen.close()
            (view,) = await eventually(lambda: stack.fleet.sessions.list(limit=2))
            sending.cancel()
            await asyncio.wait((sending,))
    assert view.waiting == 1
    assert stderr.count("still trying to send") == 1


async def test_send_tries_again_while_a_busy_gateway_refuses_a_step(
    stack: Stack,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is refused at the opening, the upload and the message; whether workers run isn't known."""
    steps = iter(("chat.open", "chat.send"))
    step: str | None = next(steps)

    def busy(name: str) -> Handler:
        async def refuses_once(call: Call, params: Any) -> Any:
            nonlocal step
            if name in (step, "fleet.status"):
                step = next(steps, None)
                raise CallRefused("UNAVAILABLE", f"{name}: too much to do.")
            return await HANDLERS[name](call, params)

        return refuses_once

    take, uploads = FilesDoor.take, itertools.count()

    async def take_busy(door: FilesDoor, request: Request) -> Response:
        if next(uploads) == 0:
            raise CallRefused("UNAVAILABLE", "Too many files.")
        return await take(door, request)

    (directory / "notes.txt").write_text("remember the milk")
    monkeypatch.setattr(FilesDoor, "take", take_busy)
    order = replace(HELLO, attach=(str(directory / "notes.txt"),))
    handlers = {
        **HANDLERS,
        **{name: busy(name) for name in ("chat.open", "chat.send", "fleet.status")},
    }
    await stack.start_worker()
    async with opened(stack, handlers, is_private=True):
        assert await send_over_gateway(stack.home, order, as_json=False, stream=None) == 0

    printed = capsys.readouterr()
    assert "I have `notes.txt`" in printed.out
    assert printed.err.startswith("remoteclaw: chat.open: too much to do; still trying to send.")
    assert printed.err.count("still trying to send") == 1
    assert "no rq worker" not in printed.err


async def test_sixty_sends_at_once_get_sixty_answers_also_after_the_gateway_was_killed(
    stack: Stack, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them wait at once, and then the gateway is replaced. Each message is answered once."""
    slow(stack, directory)
    await stack.start_worker()
    orders = [replace(HELLO, text=f"hello {n}", message_id=f"m{n}") for n in range(60)]
    async with asyncio.TaskGroup() as tasks:
        async with gateway_process(stack) as (_, first):
            sending = [
                tasks.create_task(send_over_gateway(stack.home, order, as_json=True, stream=None))
                for order in orders
            ]
            (view,) = await eventually(lambda: stack.fleet.sessions.list(limit=2))
            await eventually(lambda: all_accepted(stack, view.sid, len(orders)))
            first.kill()
            first.wait()
        async with gateway_process(stack):
            (directory / "go").touch()
            assert [await each for each in sending] == [0] * 60

    printed = capsys.readouterr().out
    assert printed.count('"status": "done"') == 60
    assert len(set(re.findall(r'"reference": "(.+)"', printed))) == 60


async def all_accepted(stack: Stack, sid: str, number: int) -> bool:
    view = await stack.fleet.sessions.view(sid)
    return view is not None and view.waiting == number


async def test_send_appends_piped_input_to_its_text(stack: Stack) -> None:
    async with answering(stack):
        result = run(stack, "send", "explain", "this", stdin=b"x" * 1000)

    assert "You wrote 1014 characters" in result.stdout


async def test_send_finds_a_session_by_its_label(stack: Stack) -> None:
    alice = (await stack.append("hello", from_="alice")).session
    assert run(stack, "sessions", "label", alice.sid[:8], "the plan").returncode == 0
    async with answering(stack):
        result = run(stack, "send", "--session", "the plan", "go on")
        unknown = run(stack, "send", "--session", "no such plan", "go on")
        both = run(stack, "send", "--session", "the plan", "--agent", "main", "go on")

    assert "this is message 2 of our conversation" in result.stdout
    refused(unknown, "'no such plan' is no session")
    assert both.returncode == 2


# -- titles ---------------------------------------------------------------------------------------


async def test_the_title_of_a_session_is_its_first_message(stack: Stack) -> None:
    """A new conversation has a new title; a command is no title."""
    sid = (await stack.append("/status please")).session.sid
    titles = []
    for text in ("Mend the\nred tests", "and the others", "/new", "a plan", "/new write docs"):
        await stack.append(text)
        view = await stack.fleet.sessions.view(sid)
        assert view is not None
        titles.append(view.title)

    assert titles == ["Mend the red tests", "Mend the red tests", None, "a plan", "write docs"]
    shown = json.loads(run(stack, "sessions", "show", "WRITE d", "--json").stdout)
    assert (shown["id"], shown["title"]) == (sid, "write docs")
    (listed,) = json.loads(run(stack, "sessions", "list", "--json").stdout)["sessions"]
    assert (listed["id"], listed["title"], listed["state"]) == (sid, "write docs", "scheduled")


async def test_a_title_of_two_sessions_is_ambiguous(stack: Stack) -> None:
    for user in ("alice", "bob"):
        await stack.append("look", from_=user, channel_id=user)

    refused(run(stack, "sessions", "show", "look"), "'look' fits 2 sessions: give more of its id")


async def test_a_conversation_is_exported_as_markdown(stack: Stack) -> None:
    await stack.start_worker()
    accepted = await stack.append("hello **you**")
    await stack.outcome(accepted)
    exported = run(stack, "sessions", "export", accepted.session.sid, "--format", "markdown").stdout

    header, first, *_, last = exported.split("\n\n")
    assert header.startswith("## alice, 20")
    assert first == "hello **you**"
    assert "## Agent, 20" in exported
    assert last.startswith("Send `crash`")


# -- completion -----------------------------------------------------------------------------------


async def test_a_shell_completes_agents_and_sessions(stack: Stack) -> None:
    sid = (await stack.append("look")).session.sid
    assert run(stack, "sessions", "label", sid, "plan").returncode == 0

    def completed(*words: str) -> list[str]:
        result = run(
            stack,
            _REMOTECLAW_COMPLETE="bash_complete",
            COMP_WORDS=" ".join(words),
            COMP_CWORD=str(len(words) - 1),
        )
        assert result.stderr == ""
        return result.stdout.split()

    assert completed("remoteclaw", "sen") == ["plain,send"]
    assert completed("remoteclaw", "chat", "--agent", "m") == ["plain,main"]
    assert completed("remoteclaw", "sessions", "show", "pl") == []
    async with gateway_process(stack):
        assert completed("remoteclaw", "sessions", "show", "pl") == ["plain,plan"]


async def test_a_message_that_is_sent_when_the_disk_fills_is_reported_within_ten_seconds(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis has it in memory, and refuses everything that would answer it."""
    disk = "Redis can't write to its disk and refuses writes: free some space, or see its log"
    async with running_stack(home, monkeypatch, appendfsync="everysec") as stack, answering(stack):
        slow(stack, directory)
        with started(stack, "send", "hello") as first:
            assert first.stdout is not None
            assert first.stderr is not None
            await eventually(lambda: "running" in run(stack, "sessions", "list").stdout)
            with stack.redis.no_space():
                told = await asyncio.wait_for(asyncio.to_thread(first.stderr.readline), 10)
                later = await asyncio.wait_for(asyncio.to_thread(run, stack, "send", "later"), 10)
            (directory / "go").touch()
            answer = await asyncio.wait_for(asyncio.to_thread(first.stdout.read), HANG_S)

    assert told.startswith(f"remoteclaw: The message is postponed while {disk}. `remoteclaw ")
    refused(later, f"{disk}.")
    assert "One, two." in answer
