"""Invitations of an account to chats, and its removal from them."""

from collections.abc import AsyncIterator

import pytest

from tests.support.channel import TestChannel
from tests.support.stack import Stack
from tests.support.waiting import eventually


@pytest.fixture
async def channel(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TestChannel]:
    channel = TestChannel.installed(monkeypatch, stack, groups={"g1": {}}, allow=["carol"])
    yield channel
    channel.end()


def invite(channel: TestChannel, chat: str, by: str, **more: object) -> None:
    channel.platform.say(chat, by, "", **{"invitation": "invited", **more})


async def is_paired(stack: Stack, group: str) -> bool:
    return await stack.fleet.pairings.has("test", "default", group)


async def handled(stack: Stack, channel: TestChannel) -> None:
    """Wait until all reports so far are handled."""
    count = len(channel.platform.did("said"))

    async def is_handled() -> bool:
        return (await stack.fleet.accounts.view("test", "default")).accepted >= count

    await eventually(is_handled)


async def test_an_account_joins_only_where_an_owner_or_the_configuration_wants_it(
    stack: Stack, channel: TestChannel
) -> None:
    channel.start()
    invite(channel, "g1", "bo")
    invite(channel, "g2", "bo")
    invite(channel, "g3", "alice")
    invite(channel, "g4", "carol")
    invite(channel, "g5", "feed", is_bot=True)
    invite(channel, "bo", "bo")
    invite(channel, "carol", "carol")
    await eventually(lambda: len(channel.platform.did("answered")) == 7)
    channel.platform.tell(refuses="There is no such room.")
    invite(channel, "g6", "alice")
    await handled(stack, channel)

    answers = {event["chat"]: event["joins"] for event in channel.platform.did("answered")}
    assert [chat for chat, joins in sorted(answers.items()) if joins] == ["carol", "g1", "g3"]
    log = channel.log_file.read_text()
    assert "test/default declines the invitation of bo to g2" in log
    assert "the invitation to g6 is not answered: There is no such room." in log
    assert not channel.platform.delivered
    assert await stack.fleet.sessions.list(limit=9) == []


async def test_the_access_of_a_group_ends_with_the_removal_of_the_account(
    stack: Stack, channel: TestChannel
) -> None:
    for group in ("g2", "g3"):
        await stack.fleet.pairings.add("test", "default", group, name="a group", by="test:alice")
    await stack.fleet.pairings.add("test", "other", "g2", name="a group", by="test:alice")
    channel.start()
    channel.platform.tell(stops="fetch after")  # a slow file, which the others overtake
    channel.platform.say("g3", "bo", "look", files={"a.txt": "a"})
    await eventually(lambda: channel.platform.did("held"))
    removal = {"invitation": "removed", "id": "removal"}
    invite(channel, "g2", "bo", **removal)
    invite(channel, "g3", "bo", **removal)
    channel.platform.say("g2", "bo", "hello")
    channel.platform.say("g3", "alice", "/pair")
    await eventually(lambda: channel.texts("g3"))
    channel.platform.tell()
    invite(channel, "g3", "bo", **removal)  # once more
    await handled(stack, channel)

    assert not await is_paired(stack, "g2")
    assert await is_paired(stack, "g3"), "an owner gave it access again"
    assert await stack.fleet.pairings.has("test", "other", "g2")
    assert not channel.texts("g2")
    log = channel.log_file.read_text()
    assert log.count("bo removed test/default from the group g2: it has no access any more") == 1
