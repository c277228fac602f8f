"""A group that becomes a supergroup keeps its first id in RemoteClaw."""

from collections.abc import Iterator
from typing import Any

import pytest

from remoteclaw.fleet import keys
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot
from tests.support.telegram.channel import Channel
from tests.support.waiting import eventually

OLD, NEW, BO = -7, -100_777, 8
FIRST_IDS = keys.first_chat_ids("telegram", "default")


@pytest.fixture
def channel(stack: Stack, bot: TelegramBot) -> Iterator[Channel]:
    bot.chat(OLD, type="group")
    channel = Channel(stack, bot, settings={"groups": {str(OLD): {}}})
    yield channel
    channel.end()


def ask(bot: TelegramBot, text: str, *, chat: int) -> None:
    """Have a person ask the bot in a group."""
    bot.say(f"@{bot.username} {text}", chat=chat, by=BO)


async def wait_for_reply(bot: TelegramBot, chat: int, words: str) -> None:
    await eventually(lambda: any(words in text for text in bot.texts(chat)))


async def conversations(stack: Stack) -> list[str]:
    return [view.key.conversation for view in await stack.fleet.sessions.list(limit=9)]


async def test_a_conversation_continues_in_the_supergroup_even_after_a_restart(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    first = channel.start()
    ask(bot, "one", chat=OLD)
    ask(bot, "two", chat=OLD)
    await wait_for_reply(bot, OLD, "message 2 of our conversation")
    bot.move(OLD, to=NEW)
    ask(bot, "three", chat=NEW)  # its message id is the one that `two` had
    await wait_for_reply(bot, NEW, "message 3 of our conversation")
    client: Any = stack.fleet.scripts.client

    async def has_delivered_all() -> bool:
        return not await client.xlen(keys.replies("telegram", "default"))

    await eventually(has_delivered_all)

    first.kill()
    first.wait()
    channel.start()
    ask(bot, "memory", chat=NEW)
    await wait_for_reply(bot, NEW, "• three")
    await stack.put_reply("telegram", "default", "by the old id", chat=str(OLD))
    await wait_for_reply(bot, NEW, "by the old id")

    assert "• one" in bot.texts(NEW)[1]
    assert await conversations(stack) == [f"{OLD}:*:_"]
    assert "RemoteClaw keeps using the first id" in channel.log.read_text()


async def test_a_new_id_learned_from_a_refusal_is_known_before_the_next_message(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    channel.start()
    ask(bot, "one", chat=OLD)
    await wait_for_reply(bot, OLD, "message 1 of our conversation")
    bot.move(OLD, to=NEW, is_told=False)
    await stack.put_reply("telegram", "default", "good morning", chat=str(OLD))
    await wait_for_reply(bot, NEW, "good morning")
    ask(bot, "memory", chat=NEW)
    await wait_for_reply(bot, NEW, "• one")

    assert await conversations(stack) == [f"{OLD}:*:_"]


@pytest.mark.parametrize("side", ["before", "after"])
async def test_killing_the_process_at_the_change_of_id_keeps_the_conversation(
    stack: Stack, bot: TelegramBot, channel: Channel, side: Any
) -> None:
    proxy = await stack.proxied()
    killed = channel.start(url=proxy.url)
    await eventually(bot.is_polled)
    failpoint = proxy.arm("inbox_store", side)
    bot.move(OLD, to=NEW)
    await failpoint.wait()
    killed.kill()
    killed.wait()
    failpoint.cut()
    ask(bot, "one", chat=NEW)
    channel.start()

    async def has_conversation() -> bool:
        return await conversations(stack) == [f"{OLD}:*:_"]

    await eventually(has_conversation)
    client: Any = stack.fleet.scripts.client
    assert await client.hgetall(FIRST_IDS) == {str(NEW).encode(): str(OLD).encode()}


async def test_a_group_without_access_or_with_new_settings_does_not_keep_its_first_id(
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
    assert await client.hkeys(FIRST_IDS) == [str(NEW).encode()]

    stack.configure(channels={"telegram": {**channel.about, "groups": {str(NEW): {}}}})
    ask(bot, "two", chat=NEW)
    await eventually(lambda: has_reached(count, 2))
    assert set(await conversations(stack)) == {f"{OLD}:*:_", f"{NEW}:*:_"}


async def has_reached(count: Any, number: int) -> bool:
    return bool(await count() == number)
