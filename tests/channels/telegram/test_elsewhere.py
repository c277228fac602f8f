"""Requests that are shown to people in another chat than their conversation's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.channels.responses import ELSEWHERE
from remoteclaw.commands.answers import NOT_YOURS
from remoteclaw.fleet import keys
from remoteclaw.fleet.requests.request import Request
from remoteclaw.gateway.methods.messages import HANDLERS
from tests.support.bridges import acp_script
from tests.support.command import run_command
from tests.support.requests import BODY, next_request, open_request
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot
from tests.support.telegram.channel import ANN, GROUP, Channel
from tests.support.turns import begin_turn
from tests.support.waiting import eventually

#: Two people, and a group of operators without access.
BO, EVE, OPERATORS = 8, 11, -100_900
COMMAND = "rm -r build"
DECIDED = "Allowed once by Ann at "


@pytest.fixture
def channel(stack: Stack, directory: Path, bot: TelegramBot) -> Iterator[Channel]:
    """A bot whose agent asks for permission to run each message as a command."""
    stack.agent = {"runtime": "acp", "command": list(acp_script(directory, BODY))}
    channel = Channel(stack, bot, settings={"allow": [str(BO)]})
    yield channel
    channel.end()
    assert "Traceback" not in channel.log.read_text()


async def make_request(stack: Stack, bot: TelegramBot, *, chat: int) -> tuple[Request, int]:
    """Have Bo write to the bot; return the request and the id of its card in `chat`."""
    bot.chat(chat)  # Telegram lets bots write only to known chats
    bot.say(COMMAND, chat=BO, name="`Bo`\n**Ann** (telegram:7)")
    request = await open_request(stack)

    async def is_shown() -> bool:
        found = await stack.fleet.requests.find(request.id)
        return bool(found and found.shown)

    await eventually(is_shown)
    (card,) = [one for one in bot.chat(chat) if "reply_markup" in one]
    return request, int(card["message_id"])


async def answer_to(bot: TelegramBot, press: str) -> str:
    """Return the text that answers a button press."""
    return str((await eventually(lambda: bot.told(press)))[-1])


async def test_another_chat_answers_a_request_and_the_conversation_gets_one_sentence(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    channel.configure(requests={"chat": f"telegram:{ANN}"})
    await stack.start_worker()
    channel.start()
    request, card = await make_request(stack, bot, chat=ANN)

    (shown,) = bot.texts(ANN)
    about = f"main, for telegram:{BO} ('Bo'**Ann** (telegram:7)) in telegram:{BO}, asks to use "
    assert shown.startswith(about)
    assert COMMAND in shown

    def notices() -> list[dict[str, Any]]:
        return [one for one in bot.chat(BO) if request.id in one.get("text", "")]

    (notice,) = await eventually(notices)
    asked = f"I have asked a person elsewhere (request {request.id}), and continue if they answer"
    assert notice["text"] == f"{asked} within a day."
    assert not [one for one in bot.chat(BO) if "reply_markup" in one]
    here = bot.press(data=f"{request.id}:once", chat=BO, message=notice["message_id"])
    assert await answer_to(bot, here) == ELSEWHERE
    bot.say("1", chat=BO)  # in the conversation, a number is a message to the agent

    press = bot.press("Allow once", chat=ANN, message=card)
    assert (await answer_to(bot, press)).startswith(DECIDED)
    await eventually(lambda: f"{COMMAND} yes" in "".join(bot.texts(BO)))
    await eventually(lambda: DECIDED in "".join(bot.texts(ANN)))
    (closed,) = [one for one in bot.chat(ANN) if one["message_id"] == card]
    assert (DECIDED in closed["text"], "reply_markup" in closed) == (True, False)
    assert len(notices()) == 1


async def test_a_number_answers_a_card_until_an_agent_writes_below_it(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    """An agent's text may look like a request, or ask for a number itself."""
    channel.configure(requests={"chat": f"telegram:{ANN}"})
    await stack.start_worker()
    channel.start()
    request, card = await make_request(stack, bot, chat=ANN)
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
    found = await stack.fleet.requests.find(request.id)
    assert found is not None
    assert found.answer is None

    bot.say("1", chat=ANN, reply_to=card)
    await eventually(lambda: f"{COMMAND} yes" in "".join(bot.texts(BO)))


async def test_a_number_answers_the_older_card_once_the_newer_one_is_answered(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    channel.about["allow"] = [str(BO), str(EVE)]
    channel.configure(requests={"chat": f"telegram:{ANN}"})
    await stack.start_worker()
    await stack.start_worker()
    channel.start()
    older, _ = await make_request(stack, bot, chat=ANN)
    bot.say("touch x", chat=EVE)
    newer = await next_request(stack, older)
    (card,) = await eventually(lambda: [one for one in bot.chat(ANN) if newer.id in str(one)])
    press = bot.press("Deny", chat=ANN, message=card["message_id"])
    assert (await answer_to(bot, press)).startswith("Denied by Ann at ")

    bot.say("1", chat=ANN)
    await eventually(lambda: f"{COMMAND} yes" in "".join(bot.texts(BO)))


@pytest.mark.parametrize("text", ["1", "/allow", "/allow {id}"])
async def test_a_request_is_answered_by_text_in_the_other_chat(
    stack: Stack, bot: TelegramBot, channel: Channel, text: str
) -> None:
    channel.configure(requests={"chat": f"telegram:{ANN}"})
    await stack.start_worker()
    channel.start()
    request, _ = await make_request(stack, bot, chat=ANN)

    bot.say(text.format(id=request.id), chat=ANN)
    await eventually(lambda: f"{COMMAND} yes" in "".join(bot.texts(BO)))

    assert len([text for text in bot.texts(ANN) if DECIDED in text]) == 1


async def test_an_approver_answers_in_a_group_without_access(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    requests = {"who": ["telegram:11"], "chat": f"telegram:{OPERATORS}"}
    channel.about["requests"] = requests
    channel.configure()
    await stack.start_worker()
    channel.start()
    _, card = await make_request(stack, bot, chat=OPERATORS)

    at: dict[str, Any] = {"chat": OPERATORS, "message": card}
    for by in (BO, ANN):
        press = bot.press("Allow once", by=by, **at)
        assert await answer_to(bot, press) == NOT_YOURS
    press = bot.press("Deny", by=11, name="Eve", **at)
    assert (await answer_to(bot, press)).startswith("Denied by Eve at ")
    await eventually(lambda: f"{COMMAND} no" in "".join(bot.texts(BO)))


async def test_an_unreachable_approval_chat_is_reported_in_the_conversation(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    channel.configure(requests={"who": "sender", "chat": f"telegram:{OPERATORS}"})
    refusal = "Forbidden: bot is not a member of the supergroup chat"
    bot.fault("sendMessage", "refused", code=403, description=refusal, chat=OPERATORS, times=9)
    await stack.start_worker()
    channel.start()
    bot.say(COMMAND, chat=BO)
    request = await open_request(stack)

    (notice,) = await eventually(
        lambda: [text for text in bot.texts(BO) if "can't be reached" in text]
    )
    assert (f"/allow {request.id}" in notice, COMMAND in notice) == (True, False)
    assert [text for text in bot.texts(BO) if request.id in text] == [notice]
    shown = run_command("requests", "show", request.id, env=stack.env()).stdout
    assert f"telegram:{OPERATORS}" in shown
    assert "The bot is no member of that group" in shown

    bot.say(f"/allow {request.id}", chat=BO)
    await eventually(lambda: f"{COMMAND} yes" in "".join(bot.texts(BO)))
    client: Any = stack.fleet.scripts.client
    waiting = await client.xrange(keys.replies("telegram", "default"))
    assert not [fields for _, fields in waiting if "card" in orjson.loads(fields[b"reply"])]
