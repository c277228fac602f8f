"""Conversations that several people share: nobody ends what belongs to others."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.commands.table import FOR_OWNERS, NOT_YOURS
from tests.support.bridges import script
from tests.support.channel import TestChannel
from tests.support.conversations import AGENT, go
from tests.support.stack import Stack
from tests.support.waiting import eventually

GROUP = {"groups": {"team": {"require_mention": False}}}


@pytest.fixture
async def channel(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TestChannel]:
    """A group with the owner alice, whose agent works on "wait" until the test lets it go on."""
    stack.agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    channel = TestChannel.installed(monkeypatch, stack, **GROUP)
    yield channel
    channel.end()


async def started(stack: Stack, channel: TestChannel, by: str, **settings: Any) -> None:
    """Run a turn that answers `by` until the test lets it go on."""
    if settings:
        channel.configure(**GROUP, **settings)
    await stack.start_worker()
    channel.start()
    channel.platform.say("team", by, "wait")
    prompts = stack.home.path / "workspaces" / "main" / "prompts"
    await eventually(lambda: prompts.exists() and "wait" in prompts.read_text())


async def accepted(stack: Stack, count: int) -> None:
    """Wait until the channel has handled so many messages."""

    async def is_handled() -> bool:
        return (await stack.fleet.accounts.view("test", "default")).accepted >= count

    await eventually(is_handled)


async def until_told(channel: TestChannel, words: str) -> None:
    await eventually(lambda: any(words in text for text in channel.texts("team")))


@pytest.mark.parametrize("text", ["/stop", "stop", "/new", "/reset"])
@pytest.mark.parametrize("files", [{}, {"a.txt": "a"}])
async def test_a_member_can_not_end_the_turn_of_an_owner(
    stack: Stack, channel: TestChannel, text: str, files: dict[str, str]
) -> None:
    await started(stack, channel, "alice")
    channel.platform.say("team", "bo", text, files=files)
    await until_told(channel, FOR_OWNERS if text in ("/new", "/reset") else NOT_YOURS)
    go(stack)
    await until_told(channel, "heard wait")


@pytest.mark.parametrize(
    ("text", "size", "heard"),
    [
        ("//new", 1, "/new"),
        ("/reſet", 1, "/reſet"),
        ("//stop", 2 * 1024 * 1024, "/stop"),  # the file is refused, so the text is alone
    ],
)
async def test_a_caption_of_a_member_that_is_no_command_ends_nothing(
    stack: Stack, channel: TestChannel, text: str, size: int, heard: str
) -> None:
    await started(stack, channel, "alice", attachment_mb=1)
    channel.platform.say("team", "bo", text, files={"a.txt": "a" * size})
    await accepted(stack, 2)
    go(stack)
    await until_told(channel, "heard wait")
    await until_told(channel, f"heard {heard}")
    assert "knew wait" in channel.texts("team")[-1]


async def test_a_member_can_stop_a_turn_of_their_own_and_no_message_of_others(
    stack: Stack, channel: TestChannel
) -> None:
    await started(stack, channel, "bo")
    channel.platform.say("team", "bo", "and this")
    channel.platform.say("team", "alice", "keep this")
    channel.platform.say("team", "bo", "and that")
    await accepted(stack, 4)
    channel.platform.say("team", "bo", "/stop")
    await until_told(channel, "heard and that")

    assert "heard keep this" in "".join(channel.texts("team"))
    assert "heard and this" not in "".join(channel.texts("team"))


@pytest.mark.parametrize("by", ["alice", "bo"])
async def test_owners_and_where_the_channel_allows_it_everyone_can_stop_all(
    stack: Stack, channel: TestChannel, by: str
) -> None:
    await started(stack, channel, "alice", **({} if by == "alice" else {"commands": "everyone"}))
    channel.platform.say("team", by, "/stop")
    await until_told(channel, "topped")
    channel.platform.say("team", by, "/new")
    await until_told(channel, "A new conversation.")


async def test_a_members_message_does_not_interrupt_the_turn_of_an_owner(
    stack: Stack, channel: TestChannel
) -> None:
    about = {"directory": str(stack.home.path / "platform"), "owners": ["alice"], **GROUP}
    queue = {"mode": "interrupt", "debounce_ms": 0, "gather_ms": 0}
    stack.configure(queue=queue, channels={"test": about})
    await started(stack, channel, "alice")
    channel.platform.say("team", "bo", "me first")
    channel.platform.say("team", "bo", "/status")
    await until_told(channel, "one more waits")
    channel.platform.say("team", "alice", "now this")
    await until_told(channel, "heard me first + now this")

    assert "heard wait" in channel.texts("team")[1] or "heard wait" in channel.texts("team")[0]


async def test_a_flood_of_one_person_drops_no_message_of_another(
    stack: Stack, channel: TestChannel
) -> None:
    about = {"directory": str(stack.home.path / "platform"), "owners": ["alice"], **GROUP}
    queue = {"mode": "collect", "debounce_ms": 0, "gather_ms": 0, "cap": 3, "drop": "old"}
    stack.configure(queue=queue, channels={"test": about})
    await started(stack, channel, "alice")
    channel.platform.say("team", "alice", "mine")
    for number in range(5):
        channel.platform.say("team", "bo", f"flood {number}")
    await accepted(stack, 7)
    go(stack)
    await until_told(channel, "heard mine + flood 3 + flood 4")
