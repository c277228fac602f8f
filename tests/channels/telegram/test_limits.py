"""Telegram's limits: chats that stream within them, and the bot is never asked to wait."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from remoteclaw.channels.relay import relay
from remoteclaw.channels.telegram.adapter import TelegramAdapter
from remoteclaw.channels.telegram.settings import TelegramAccount
from remoteclaw.profiles import CHANNELS
from tests.support.manual_turn import ManualTurn, wait_for_live_text_listener
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot
from tests.support.waiting import eventually

#: Five direct chats and five groups.
CHATS = [*range(1, 6), *range(-5, 0)]


@pytest.mark.parametrize(
    ("scale", "seconds"), [(0.05, 4.0), pytest.param(1.0, 90.0, marks=pytest.mark.thorough)]
)
async def test_ten_chats_that_stream_reach_no_limit(
    stack: Stack,
    bot: TelegramBot,
    monkeypatch: pytest.MonkeyPatch,
    scale: float,
    seconds: float,
) -> None:
    """Each chat shows new text all the time, and gets an answer of three messages at once."""
    known = CHANNELS["telegram"]
    rates = tuple(replace(rate, per_s=rate.per_s * scale) for rate in known.profile.rates)
    profile = replace(known.profile, rates=rates, live_every_s=known.profile.live_every_s * scale)
    monkeypatch.setitem(CHANNELS, "telegram", replace(known, profile=profile))
    bot.set(limit_scale=scale)
    for chat in CHATS:
        bot.chat(chat)
    adapter = TelegramAdapter(TelegramAccount(token=bot.token, api_url=bot.api_url))
    task = asyncio.create_task(relay(stack.fleet.replies.reader("telegram", "default"), adapter))
    await wait_for_live_text_listener(stack.fleet, "telegram")
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds

    async def stream(chat: int) -> None:
        turn = await ManualTurn.begin(
            stack.fleet, provider="telegram", chat=str(chat), by=str(abs(chat))
        )
        count = 0
        while loop.time() < until:
            count += 1
            await turn.show(f"Step {count}")
            await asyncio.sleep(0.05)
        for index in range(3):
            await (turn.say("One.", index) if index < 2 else turn.end("Done.", index))
        await eventually(lambda: bot.texts(chat)[-1:] == ["Done."])

    try:
        async with asyncio.TaskGroup() as tasks:
            for chat in CHATS:
                tasks.create_task(stream(chat))
    finally:
        task.cancel()
        await asyncio.wait((task,))
        await adapter.aclose()

    calls: list[dict[str, Any]] = bot.calls()
    assert not [call for call in calls if call.get("refused")]
    edits = [call["chat_id"] for call in calls if call["method"] == "editMessageText"]
    # A direct chat has 15 of 20 for its preview, and a group 15 of 60.
    per_chat = {chat: edits.count(str(chat)) for chat in CHATS}
    assert min(per_chat.values()) >= 0.7 * 15 * seconds / (60 * scale)
