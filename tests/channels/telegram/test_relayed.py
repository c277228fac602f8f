"""Replies to Telegram by the real relay, while Telegram fails in its own ways."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remoteclaw.channels.relay import relay
from remoteclaw.channels.telegram.adapter import TelegramAdapter
from remoteclaw.channels.telegram.settings import TelegramAccount
from remoteclaw.fleet import keys
from remoteclaw.protocols import Card
from tests.support.cli import run
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot
from tests.support.waiting import eventually


@contextlib.asynccontextmanager
async def relayed(stack: Stack, bot: TelegramBot) -> AsyncIterator[None]:
    adapter = TelegramAdapter(TelegramAccount(token=bot.token, api_url=bot.api_url))
    reader = stack.fleet.replies.reader("telegram", "default", token="the same")
    task = asyncio.create_task(relay(reader, adapter))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
        await adapter.aclose()


async def queue_reply(stack: Stack, text: str, *, chat: int = 7, **more: Any) -> None:
    await stack.put_reply("telegram", "default", text, chat=str(chat), **more)


async def wait_until_delivered(stack: Stack) -> None:
    client: Any = stack.fleet.scripts.client

    async def is_empty() -> bool:
        return not await client.xlen(keys.replies("telegram", "default"))

    await eventually(is_empty)


async def test_a_reply_whose_response_was_lost_is_sent_once_more(
    stack: Stack, bot: TelegramBot
) -> None:
    bot.chat(7)
    bot.fault("sendMessage", "lost")
    await queue_reply(stack, "**one**")
    await queue_reply(stack, "two", index=1)
    async with relayed(stack, bot):
        await wait_until_delivered(stack)

    assert bot.texts(7) == ["one", "(perhaps a second time)\none", "two"]


async def test_a_relay_that_ends_during_a_send_repeats_it_and_says_so(
    stack: Stack, bot: TelegramBot
) -> None:
    bot.chat(7)
    bot.fault("sendMessage", "mute")
    await queue_reply(stack, "one")
    async with relayed(stack, bot):
        await eventually(bot.held)
    bot.release()
    async with relayed(stack, bot):
        await wait_until_delivered(stack)

    assert bot.texts(7) == ["one", "(perhaps a second time)\none"]


async def test_sends_that_certainly_failed_are_repeated_in_order(
    stack: Stack, bot: TelegramBot
) -> None:
    bot.chat(7)
    bot.fault("sendMessage", "page", code=502, times=2)
    bot.fault("sendMessage", "busy", retry_after=1)
    for index, text in enumerate(("one", "two", "three")):
        await queue_reply(stack, text, index=index)
    async with relayed(stack, bot):
        await wait_until_delivered(stack)

    assert bot.texts(7) == ["one", "two", "three"]


async def test_a_card_of_several_messages_loses_its_buttons(stack: Stack, bot: TelegramBot) -> None:
    bot.chat(7)
    client: Any = stack.fleet.scripts.client
    await client.hset(keys.request("abcdefgh"), "state", "open")
    opened = Card("abcdefgh", (("once", "Allow once"),))
    await queue_reply(stack, f"```\n{'😀' * 3000}\n```", call="request:abcdefgh", card=opened)
    closed = Card("abcdefgh")
    async with relayed(stack, bot):
        await eventually(lambda: "reply_markup" in "".join(map(str, bot.chat(7))))
        await queue_reply(stack, "Denied by Ann.", call="request:abcdefgh:closed", card=closed)
        await wait_until_delivered(stack)

    assert "reply_markup" not in "".join(map(str, bot.chat(7)))
    assert bot.texts(7)[-1] == "Denied by Ann."


async def test_a_reply_to_a_person_who_blocked_the_bot_is_a_dead_letter(
    stack: Stack, bot: TelegramBot, caplog: pytest.LogCaptureFixture
) -> None:
    bot.chat(7, closed="bot was blocked by the user")
    bot.chat(8)
    await queue_reply(stack, "one")
    await queue_reply(stack, "two", chat=8)
    async with relayed(stack, bot):
        await wait_until_delivered(stack)

    assert bot.texts(8) == ["two"]
    (letter,) = await stack.fleet.dead_letters.list()
    shown = run(stack, "deadletters", "show", letter.id).stdout
    assert "The person has blocked the bot in Telegram." in shown
    assert "not delivered to telegram/default: The person has blocked the bot" in caplog.text
