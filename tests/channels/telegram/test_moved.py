"""A group that becomes a supergroup goes on by its first id."""

from collections.abc import Iterator
from typing import Any

import pytest

from remoteclaw.fleet import keys
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot
from tests.support.telegram.channel import Channel
from tests.support.waiting import eventually

OLD, NEW, BO = -7, -100_777, 8
MOVED = keys.moved("telegram", "default")


@pytest.fixture
def channel(stack: Stack, bot: TelegramBot) -> Iterator[Channel]:
    bot.chat(OLD, type="group")
    channel = Channel(stack, bot, settings={"groups": {str(OLD): {}}})
    yield channel
    channel.end()


def ask(bot: TelegramBot, text: str, *, chat: int) -> None:
    """Have a person ask the bot in a group."""
    bot.say(f"@{bot.username} {text}", chat=chat, by=BO)


async def said(bot: TelegramBot, chat: int, words: str) -> None:
    await eventually(lambda: any(words in text for text in bot.texts(chat)))


async def conversations(stack: Stack) -> list[str]:
    return [view.key.conversation for view in await stack.fleet.sessions.list(limit=9)]


async def test_a_conversation_goes_on_in_the_supergroup_also_after_a_restart(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    first = channel.start()
    ask(bot, "one", chat=OLD)
    ask(bot, "two", chat=OLD)
    await said(bot, OLD, "message 2 of our conversation")
    bot.move(OLD, to=NEW)
    ask(bot, "three", chat=NEW)  # with the number that `two` had
    await said(bot, NEW, "message 3 of our conversation")
    client: Any = stack.fleet.scripts.client

    async def has_said_all() -> bool:
        return not await client.xlen(keys.reply_stream("telegram", "default"))

    await eventually(has_said_all)

    first.kill()
    first.wait()
    channel.start()
    ask(bot, "memory", chat=NEW)
    await said(bot, NEW, "• three")
    await stack.put_reply("telegram", "default", "by the old id", chat=str(OLD))
    await said(bot, NEW, "by the old id")

    assert "• one" in bot.texts(NEW)[1]
    assert await conversations(stack) == [f"{OLD}:*:_"]
    assert "here it goes on by its first one" in channel.log.read_text()


async def test_a_new_id_that_only_a_refusal_tells_is_known_before_the_next_message(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    channel.start()
    ask(bot, "one", chat=OLD)
    await said(bot, OLD, "message 1 of our conversation")
    bot.move(OLD, to=NEW, is_told=False)
    await stack.put_reply("telegram", "default", "good morning", chat=str(OLD))
    await said(bot, NEW, "good morning")
    ask(bot, "memory", chat=NEW)
    await said(bot, NEW, "• one")

    assert await conversations(stack) == [f"{OLD}:*:_"]


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_process_that_is_killed_at_the_change_goes_on_with_the_conversation(
    stack: Stack, bot: TelegramBot, channel: Channel, side: Any
) -> None:
    proxy = await stack.proxied()
    killed = channel.start(url=proxy.url)
    await eventually(bot.is_polled)
    failpoint = proxy.arm("advance", side)
    bot.move(OLD, to=NEW)
    await failpoint.wait()
    killed.kill()
    killed.wait()
    failpoint.cut()
    ask(bot, "one", chat=NEW)
    channel.start()

    async def is_there() -> bool:
        return await conversations(stack) == [f"{OLD}:*:_"]

    await eventually(is_there)
    client: Any = stack.fleet.scripts.client
    assert await client.hgetall(MOVED) == {str(NEW).encode(): str(OLD).encode()}


async def test_groups_that_nobody_has_let_in_and_those_with_settings_of_their_own_are_others(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    stranger = OLD - 1
    bot.chat(stranger, type="group")
    channel.start()
    bot.say("hi", chat=stranger, by=BO)
    bot.move(stranger, to=NEW - 1)
    bot.move(OLD, to=NEW)
    ask(bot, "one", chat=NEW)
    client: Any = stack.fleet.scripts.client

    async def count() -> int:
        return len(await conversations(stack))

    await eventually(count)
    assert await client.hkeys(MOVED) == [str(NEW).encode()]

    stack.configure(channels={"telegram": {**channel.about, "groups": {str(NEW): {}}}})
    ask(bot, "two", chat=NEW)
    await eventually(lambda: are(count, 2))
    assert set(await conversations(stack)) == {f"{OLD}:*:_", f"{NEW}:*:_"}


async def are(count: Any, most: int) -> bool:
    return bool(await count() == most)
