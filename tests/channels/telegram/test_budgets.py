"""Budgets at their limit: an owner answers in Telegram, and what waited runs."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoteclaw.fleet.requests.request import Request
from tests.support.bridges import script
from tests.support.budgets import spend
from tests.support.conversations import AGENT
from tests.support.requests import open_request
from tests.support.stack import Stack, kill
from tests.support.telegram import TelegramBot
from tests.support.telegram.channel import ANN, Channel
from tests.support.waiting import eventually

BO = 8
BUDGET = {"of": "all", "usd": 20.0, "per": "day"}


@pytest.fixture
def channel(stack: Stack, directory: Path, bot: TelegramBot) -> Iterator[Channel]:
    """A bot whose agent repeats each message; Ann is its owner, and Bo may write to it."""
    stack.agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    channel = Channel(stack, bot, settings={"allow": [str(BO)]})
    yield channel
    channel.end()
    assert "Traceback" not in channel.log.read_text()


async def shown_request(stack: Stack) -> Request:
    request = await open_request(stack)

    async def is_shown() -> bool:
        found = await stack.fleet.requests.find(request.id)
        return bool(found and found.shown)

    await eventually(is_shown)
    return request


def answers(bot: TelegramBot, chat: int) -> list[str]:
    return [text for text in bot.texts(chat) if text.startswith("heard")]


@pytest.mark.parametrize("way", ["button", "number"])
async def test_an_owner_allows_half_as_much_again_and_what_waited_runs_in_order(
    stack: Stack, bot: TelegramBot, channel: Channel, way: str
) -> None:
    channel.configure(requests={"chat": f"telegram:{ANN}"}, budgets=[BUDGET])
    await spend(stack.fleet, scope="all", micro_usd=20_030_000)
    first = await stack.start_worker()
    channel.start()
    bot.chat(ANN)
    bot.say("one", chat=BO, name="Bo")
    request = await shown_request(stack)
    bot.say("two", chat=BO, name="Bo")
    (card,) = [one for one in bot.chat(ANN) if "reply_markup" in one]
    text = "Budget: All agents have spent $20.03 of $20 today. Messages wait for your answer, or"
    assert card["text"].startswith(text)
    (told,) = await eventually(lambda: bot.texts(BO))
    assert told.startswith("Today's budget is used up. I have asked an owner for more.")

    # The worker that met the limit dies; a stranger's answer has no effect.
    kill(first.pid, signal.SIGKILL)
    press = bot.press(data=f"{request.id}:once", chat=BO, message=1)
    await eventually(lambda: bot.told(press))
    assert await open_request(stack) == await stack.fleet.requests.find(request.id)

    async with stack.swept():
        if way == "button":
            bot.press("Half as much again", chat=ANN, message=int(card["message_id"]))
        else:
            bot.say("1", chat=ANN)
        await stack.start_worker()
        await eventually(lambda: len(answers(bot, BO)) == 2)

    assert answers(bot, BO) == ["heard one, knew -", "heard two, knew one"]
    await eventually(lambda: "Half as much again allowed by Ann" in "".join(bot.texts(ANN)))
    assert await stack.fleet.requests.waiting() == []
