"""Recordings: a program writes them down, the person reads what it heard, and the agent gets it."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoteclaw.channels.transcribe import NotUnderstood, transcript_of
from remoteclaw.host.process import run_to_end
from remoteclaw.protocols import IncomingFile
from tests.support.channel import TestChannel
from tests.support.processes import is_alive
from tests.support.stack import Stack
from tests.support.waiting import HANG_S, eventually, eventually_sync

VOICE = IncomingFile("1", "../voice.sh", "audio/ogg")


@pytest.fixture
async def channel(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TestChannel]:
    channel = TestChannel.installed(monkeypatch, stack)
    await stack.start_worker()
    yield channel
    channel.end()


def shell(script: str) -> list[str]:
    """Return a command that runs a script, for which the recording is `$1`."""
    return ["sh", "-c", script, "sh"]


async def said(channel: TestChannel, chat: str, words: str) -> str:
    """Wait until the bot has said something in a chat; return it."""

    def found() -> str | None:
        return next((text for text in channel.texts(chat) if words in text), None)

    return str(await eventually(found))


async def test_the_command_gets_the_recording_and_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REMOTECLAW__REDIS__URL", "redis://:secret@localhost")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")

    told = await transcript_of(VOICE, b"moo", shell('cat "$1"; echo; basename "$1"; env; pwd'))

    words, name, *rest = told.splitlines()
    assert (words, name) == ("moo", "recording.ogg")
    assert "secret" not in "\n".join(rest)
    assert f"PATH={os.environ['PATH']}" in rest


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (shell("echo something; exit 3"), "the command ended with status 3"),
        (shell("true"), "the command printed nothing"),
        (["no-such-program"], "the command can't be run: No such file or directory"),
    ],
)
async def test_a_command_that_fails_has_no_words(command: list[str], why: str) -> None:
    with pytest.raises(NotUnderstood, match=why):
        await transcript_of(VOICE, b"moo", command)


async def test_a_command_that_is_given_up_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    """It may have started others before anybody knows that it has started."""
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $$ $! >{pids}.new; mv {pids}.new {pids}; wait"
    argv, env = ["/bin/sh", "-c", script], dict(os.environ)
    task = asyncio.create_task(run_to_end(argv, env=env, timeout_s=HANG_S, most_bytes=1))
    for _ in range(5):
        await asyncio.sleep(0)
    eventually_sync(pids.exists)  # it runs, and its start is not over: nothing else goes on here
    task.cancel()
    await asyncio.wait((task,))

    await eventually(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))


async def test_a_command_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    with pytest.raises(NotUnderstood, match="took more than 0 s"):
        await transcript_of(VOICE, b"moo", shell("sleep 600"), timeout_s=0.01)

    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $$ $! >{pids}.new; mv {pids}.new {pids}; wait"
    task = asyncio.create_task(transcript_of(VOICE, b"moo", shell(script)))
    await eventually(pids.exists)
    task.cancel()
    await asyncio.wait((task,))

    await eventually(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))


async def test_what_is_spoken_is_read_by_the_person_and_answered_in_its_place(
    stack: Stack, channel: TestChannel, tmp_path: Path
) -> None:
    heard = tmp_path / "heard"
    hang = f'until [ -e {heard} ]; do sleep 0.05; done; cat "$1"'
    channel.configure(allow=["carol"], transcribe=shell(hang))
    channel.start()
    channel.platform.say("alice", "alice", "", files={"voice.mp3": "/new is a word"})
    channel.platform.say("alice", "alice", "memory")
    channel.platform.say("carol", "carol", "/whoami")
    await said(channel, "carol", "`carol` on test")
    assert channel.texts("alice") == []

    heard.touch()
    told = await said(channel, "alice", "You said before")

    echo, first, last = channel.texts("alice")
    assert (echo, last) == ("You said: /new is a word", told)
    assert "I have `voice.mp3`" in first
    assert told.splitlines()[2:] == [
        "- /new is a word",
        "(A program heard this in the recording voice.mp3; words may be wrong.)",
    ]


async def test_a_recording_that_nobody_can_write_down_is_not_lost(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(allow=["carol"], transcribe=["false"])
    channel.start()
    for person in ("alice", "carol"):
        channel.platform.say(person, person, "", files={"voice.mp3": "moo"})
        assert "I have `voice.mp3`" in await said(channel, person, "RemoteClaw's demo agent")
    channel.platform.say("carol", "carol", "memory")

    why = "the command ended with status 1"
    of_owner = await said(channel, "alice", "I could not understand voice.mp3")
    assert of_owner.endswith(f"voice.mp3 ({why}), and go on with the file alone.")
    assert why not in await said(channel, "carol", "voice.mp3, and go on with the file alone.")
    assert "Nobody could write down what is said" in await said(channel, "carol", "You said before")
    assert f"a recording has no transcript: {why}" in channel.log_file.read_text()


async def test_without_a_command_the_person_is_told_and_an_owner_what_to_set(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(allow=["carol"])
    channel.start()
    for person in ("alice", "carol"):
        channel.platform.say(person, person, "", files={"voice.mp3": "moo"})
    of_owner = await said(channel, "alice", "I can't listen to recordings here")
    assert "`[channels.test] transcribe` names a command" in of_owner
    assert "transcribe" not in await said(channel, "carol", "I can't listen to recordings here")

    channel.platform.say("carol", "carol", "what is this?", files={"song.mp3": "moo"})
    await said(channel, "carol", "I have `song.mp3`")
    assert [event["name"] for event in channel.platform.did("fetched")] == ["song.mp3"]
