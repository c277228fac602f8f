"""Recordings: a command transcribes them, and the sender and the agent get the transcript."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remoteclaw.channels.transcribe import TranscriptionFailed, transcribe
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


async def wait_for_reply(channel: TestChannel, chat: str, words: str) -> str:
    """Wait for a message of the bot in a chat that contains `words`; return its text."""

    def found() -> str | None:
        return next((text for text in channel.texts(chat) if words in text), None)

    return str(await eventually(found))


async def test_the_transcription_command_gets_the_recording_and_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REMOTECLAW__REDIS__URL", "redis://:secret@localhost")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")

    output = await transcribe(VOICE, b"moo", shell('cat "$1"; echo; basename "$1"; env; pwd'))

    words, name, *environment = output.splitlines()
    assert (words, name) == ("moo", "recording.ogg")
    assert "secret" not in "\n".join(environment)
    assert f"PATH={os.environ['PATH']}" in environment


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (shell("echo something; exit 3"), "the command ended with status 3"),
        (shell("true"), "the command printed nothing"),
        (["no-such-program"], "the command can't be run: No such file or directory"),
    ],
)
async def test_a_transcription_command_that_fails_gives_no_transcript(
    command: list[str], why: str
) -> None:
    with pytest.raises(TranscriptionFailed, match=why):
        await transcribe(VOICE, b"moo", command)


async def test_a_command_that_is_cancelled_while_it_starts_leaves_no_process(
    tmp_path: Path,
) -> None:
    """It may have started child processes before its own start is complete."""
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $$ $! >{pids}.new; mv {pids}.new {pids}; wait"
    argv, env = ["/bin/sh", "-c", script], dict(os.environ)
    task = asyncio.create_task(run_to_end(argv, env=env, timeout_s=HANG_S, max_bytes=1))
    for _ in range(5):
        await asyncio.sleep(0)
    # It runs, but its start isn't complete: the event loop is blocked here.
    eventually_sync(pids.exists)
    task.cancel()
    await asyncio.wait((task,))

    await eventually(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))


async def test_a_transcription_command_that_hangs_is_ended_with_its_children(
    tmp_path: Path,
) -> None:
    with pytest.raises(TranscriptionFailed, match="took more than 0 s"):
        await transcribe(VOICE, b"moo", shell("sleep 600"), timeout_s=0.01)

    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $$ $! >{pids}.new; mv {pids}.new {pids}; wait"
    task = asyncio.create_task(transcribe(VOICE, b"moo", shell(script)))
    await eventually(pids.exists)
    task.cancel()
    await asyncio.wait((task,))

    await eventually(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))


async def test_a_transcript_is_shown_to_the_sender_and_answered_in_order(
    stack: Stack, channel: TestChannel, tmp_path: Path
) -> None:
    may_finish = tmp_path / "heard"
    hang = f'until [ -e {may_finish} ]; do sleep 0.05; done; cat "$1"'
    channel.configure(allow=["carol"], transcribe=shell(hang))
    channel.start()
    channel.platform.say("alice", "alice", "", files={"voice.mp3": "/new is a word"})
    channel.platform.say("alice", "alice", "memory")
    channel.platform.say("carol", "carol", "/whoami")
    await wait_for_reply(channel, "carol", "`carol` on test")
    assert channel.texts("alice") == []

    may_finish.touch()
    memory = await wait_for_reply(channel, "alice", "You said before")

    echo, first, last = channel.texts("alice")
    assert (echo, last) == ("You said: /new is a word", memory)
    assert "I have `voice.mp3`" in first
    assert memory.splitlines()[2:] == [
        "- /new is a word",
        "(A program transcribed this from the recording voice.mp3; it may contain errors.)",
    ]


async def test_a_chat_whose_transcriber_prints_200_kb_answers_the_next_message(
    stack: Stack, channel: TestChannel, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("x" * 200_000)
    channel.configure(transcribe=["cat", str(tmp_path / "text")])
    channel.start()
    channel.platform.say("alice", "alice", "", files={"voice.mp3": "moo"})
    channel.platform.say("alice", "alice", "hello")

    assert "You said: xxx" in await wait_for_reply(channel, "alice", "You said")
    await wait_for_reply(channel, "alice", "this is message 2 of our conversation")


async def test_a_recording_without_a_transcript_is_not_lost(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(allow=["carol"], transcribe=["false"])
    channel.start()
    for person in ("alice", "carol"):
        channel.platform.say(person, person, "", files={"voice.mp3": "moo"})
        assert "I have `voice.mp3`" in await wait_for_reply(
            channel, person, "RemoteClaw's demo agent"
        )
    channel.platform.say("carol", "carol", "memory")

    why = "the command ended with status 1"
    of_owner = await wait_for_reply(channel, "alice", "I could not understand voice.mp3")
    assert of_owner.endswith(f"voice.mp3 ({why}), so the agent gets only the file.")
    assert why not in await wait_for_reply(
        channel, "carol", "voice.mp3, so the agent gets only the file."
    )
    assert "The recording voice.mp3 could not be transcribed" in await wait_for_reply(
        channel, "carol", "You said before"
    )
    assert f"a recording has no transcript: {why}" in channel.log_file.read_text()


async def test_without_a_command_the_sender_is_told_and_an_owner_learns_what_to_set(
    stack: Stack, channel: TestChannel
) -> None:
    channel.configure(allow=["carol"])
    channel.start()
    for person in ("alice", "carol"):
        channel.platform.say(person, person, "", files={"voice.mp3": "moo"})
    of_owner = await wait_for_reply(channel, "alice", "I can't listen to recordings here")
    assert "`[channels.test] transcribe` names a command" in of_owner
    assert "transcribe" not in await wait_for_reply(
        channel, "carol", "I can't listen to recordings here"
    )

    channel.platform.say("carol", "carol", "what is this?", files={"song.mp3": "moo"})
    await wait_for_reply(channel, "carol", "I have `song.mp3`")
    assert [event["name"] for event in channel.platform.did("fetched")] == ["song.mp3"]
