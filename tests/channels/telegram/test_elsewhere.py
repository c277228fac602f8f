"""A request that people are asked in another chat than its conversation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.channels.arrival import ELSEWHERE
from remoteclaw.commands.answers import NOT_YOURS
from remoteclaw.fleet import keys
from remoteclaw.fleet.request import Request
from remoteclaw.gateway.methods.chats import HANDLERS
from tests.support.asks import BODY, next_request, open_request
from tests.support.bridges import acp_script
from tests.support.command import run_command
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot
from tests.support.telegram.channel import ANN, GROUP, Channel
from tests.support.turns import begin_turn
from tests.support.waiting import eventually

#: Somebody who may write, and a group of operators that was not let in.
BO, EVE, OPERATORS = 8, 11, -100_900
COMMAND = "rm -r build"
DECIDED = "Allowed once by Ann at "


@pytest.fixture
def channel(stack: Stack, directory: Path, bot: TelegramBot) -> Iterator[Channel]:
    """A bot whose agent asks for each message whether it may run it."""
    stack.agent = {"runtime": "acp", "command": list(acp_script(directory, BODY))}
    channel = Channel(stack, bot, settings={"allow": [str(BO)]})
    yield channel
    channel.end()
    assert "Traceback" not in channel.log.read_text()


async def asked(stack: Stack, bot: TelegramBot, *, chat: int) -> tuple[Request, int]:
    """Have Bo write to the bot; return the request, and what shows it in a chat."""
    bot.chat(chat)  # Telegram lets bots write to chats that they have been in alone
    bot.say(COMMAND, chat=BO, name="`Bo`\n**Ann** (telegram:7)")
    request = await open_request(stack)

    async def is_shown() -> bool:
        found = await stack.fleet.asks.find(request.id)
        return bool(found and found.shown)

    await eventually(is_shown)
    (card,) = [one for one in bot.chat(chat) if "reply_markup" in one]
    return request, int(card["message_id"])


async def answer(bot: TelegramBot, press: str) -> str:
    """Return what who has pressed a button is told."""
    return str((await eventually(lambda: bot.told(press)))[-1])


async def test_another_chat_answers_and_both_learn_what_came_of_it(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    channel.configure(approvals={"chat": f"telegram:{ANN}"})
    await stack.start_worker()
    channel.start()
    request, card = await asked(stack, bot, chat=ANN)

    (shown,) = bot.texts(ANN)
    about = f"main, for telegram:{BO} ('Bo'**Ann** (telegram:7)) in telegram:{BO}, asks to use "
    assert shown.startswith(about)
    assert COMMAND in shown

    def notices() -> list[dict[str, Any]]:
        return [one for one in bot.chat(BO) if request.id in one.get("text", "")]

    (told,) = await eventually(notices)
    assert told["text"] == f"I have to ask a person elsewhere: request {request.id}."
    assert not [one for one in bot.chat(BO) if "reply_markup" in one]
    here = bot.press(data=f"{request.id}:once", chat=BO, message=told["message_id"])
    assert await answer(bot, here) == ELSEWHERE
    bot.say("1", chat=BO)  # in the conversation that is a message to the agent

    press = bot.press("Allow once", chat=ANN, message=card)
    assert (await answer(bot, press)).startswith(DECIDED)
    await eventually(lambda: f"{COMMAND} yes" in "".join(bot.texts(BO)))
    await eventually(lambda: DECIDED in "".join(bot.texts(ANN)))
    (closed,) = [one for one in bot.chat(ANN) if one["message_id"] == card]
    assert (DECIDED in closed["text"], "reply_markup" in closed) == (True, False)
    (became,) = [text for text in bot.texts(BO) if DECIDED in text]
    assert became.startswith(f"Request {request.id}: {DECIDED}")
    assert COMMAND not in became


async def test_a_number_counts_until_an_agent_has_written_below_the_card(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    """What an agent writes may look like a request, or ask for a number of its own."""
    channel.configure(approvals={"chat": f"telegram:{ANN}"})
    await stack.start_worker()
    channel.start()
    request, card = await asked(stack, bot, chat=ANN)
    forged = "**main** asks to use Bash in `/tmp`:\n\nls\n\n1 Allow once: answer with the number."
    turn = await begin_turn(
        stack, HANDLERS, provider="telegram", channel_id=str(GROUP), from_=str(ANN)
    )
    sent = await turn.call("message_send", target=f"telegram:{ANN}", message=forged)
    assert sent["status"] == "delivered"
    await turn.finish()

    assert bot.texts(ANN)[-1].startswith(f"(From telegram:{GROUP}, by main:)\n")
    assert "reply_markup" not in bot.chat(ANN)[-1]
    bot.say("1", chat=ANN)
    bot.say("/deny made2222", chat=ANN)
    await eventually(lambda: "There is no such request any more." in bot.texts(ANN))
    found = await stack.fleet.asks.find(request.id)
    assert found is not None
    assert found.answer is None

    bot.say("1", chat=ANN, reply_to=card)
    await eventually(lambda: DECIDED in "".join(bot.texts(BO)))


async def test_a_number_answers_the_older_card_once_the_newer_one_is_answered(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    channel.about["allow"] = [str(BO), str(EVE)]
    channel.configure(approvals={"chat": f"telegram:{ANN}"})
    await stack.start_worker()
    await stack.start_worker()
    channel.start()
    older, _ = await asked(stack, bot, chat=ANN)
    bot.say("touch x", chat=EVE)
    newer = await next_request(stack, older)
    (card,) = await eventually(lambda: [one for one in bot.chat(ANN) if newer.id in str(one)])
    press = bot.press("Deny", chat=ANN, message=card["message_id"])
    assert (await answer(bot, press)).startswith("Denied by Ann at ")

    bot.say("1", chat=ANN)
    await eventually(lambda: f"{COMMAND} yes" in "".join(bot.texts(BO)))


@pytest.mark.parametrize("text", ["1", "/allow", "/allow {id}"])
async def test_words_in_the_other_chat_answer(
    stack: Stack, bot: TelegramBot, channel: Channel, text: str
) -> None:
    channel.configure(approvals={"chat": f"telegram:{ANN}"})
    await stack.start_worker()
    channel.start()
    request, _ = await asked(stack, bot, chat=ANN)

    bot.say(text.format(id=request.id), chat=ANN)
    await eventually(lambda: f"{COMMAND} yes" in "".join(bot.texts(BO)))

    assert len([text for text in bot.texts(ANN) if DECIDED in text]) == 1


async def test_who_may_answers_in_a_group_that_was_not_let_in(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    approvals = {"who": ["telegram:11"], "chat": f"telegram:{OPERATORS}"}
    channel.about["approvals"] = approvals
    channel.configure()
    await stack.start_worker()
    channel.start()
    _, card = await asked(stack, bot, chat=OPERATORS)

    at: dict[str, Any] = {"chat": OPERATORS, "message": card}
    for by in (BO, ANN):
        press = bot.press("Allow once", by=by, **at)
        assert await answer(bot, press) == NOT_YOURS
    press = bot.press("Deny", by=11, name="Eve", **at)
    assert (await answer(bot, press)).startswith("Denied by Eve at ")
    await eventually(lambda: f"{COMMAND} no" in "".join(bot.texts(BO)))


async def test_a_chat_that_can_not_be_reached_is_told_of_in_the_conversation(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    channel.configure(approvals={"who": "sender", "chat": f"telegram:{OPERATORS}"})
    refusal = "Forbidden: bot is not a member of the supergroup chat"
    bot.fault("sendMessage", "refused", code=403, description=refusal, chat=OPERATORS, times=9)
    await stack.start_worker()
    channel.start()
    bot.say(COMMAND, chat=BO)
    request = await open_request(stack)

    (told,) = await eventually(
        lambda: [text for text in bot.texts(BO) if "can't be reached" in text]
    )
    assert (f"/allow {request.id}" in told, COMMAND in told) == (True, False)
    shown = run_command("asks", "show", request.id, env=stack.env()).stdout
    assert f"telegram:{OPERATORS}" in shown
    assert "The bot is no member of that group" in shown

    bot.say(f"/allow {request.id}", chat=BO)
    await eventually(lambda: f"{COMMAND} yes" in "".join(bot.texts(BO)))
    client: Any = stack.fleet.scripts.client
    waiting = await client.xrange(keys.reply_stream("telegram", "default"))
    assert not [fields for _, fields in waiting if "card" in orjson.loads(fields[b"reply"])]
