"""Requests with buttons in Telegram, from the card in a chat to the result."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.channels.responses import ELSEWHERE
from remoteclaw.commands.answers import GONE, NOT_YOURS
from remoteclaw.fleet import keys
from tests.support.bridges import acp_script, claude_script
from tests.support.cli import run
from tests.support.requests import BODY, QUESTIONS, next_request, open_request
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot, file
from tests.support.telegram.channel import ANN, GROUP, Channel
from tests.support.waiting import eventually

#: Another owner, and a guest in the group.
EVE, BO = 11, 8


@pytest.fixture
def channel(stack: Stack, directory: Path, bot: TelegramBot) -> Iterator[Channel]:
    """A bot whose agent asks for permission to run each message as a command."""
    stack.agent = {"runtime": "acp", "command": list(acp_script(directory, BODY))}
    channel = Channel(stack, bot, settings={"owners": [str(ANN), str(EVE)]})
    yield channel
    channel.end()
    assert "Traceback" not in channel.log.read_text()


async def card(bot: TelegramBot, chat: int, *, after: int = 0) -> dict[str, Any]:
    """Wait for a message with buttons that is newer than the message `after`."""

    def found() -> list[dict[str, Any]]:
        messages = bot.chat(chat)
        return [one for one in messages if "reply_markup" in one and one["message_id"] > after]

    (first, *_) = await eventually(found)
    return dict(first)


async def answer_to(bot: TelegramBot, press: str) -> str:
    """Wait for the text that answers a button press."""
    return str((await eventually(lambda: bot.told(press)))[-1])


async def test_a_button_answers_a_request_and_the_agent_continues(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    channel.start()
    bot.say(f"@{bot.username} touch x", chat=GROUP, by=ANN)
    shown = await card(bot, GROUP)
    at = {"chat": GROUP, "message": shown["message_id"]}
    rows = shown["reply_markup"]["inline_keyboard"]
    assert [row[0]["text"] for row in rows] == [
        "Allow once",
        "Allow for this conversation",
        "Deny",
    ]
    assert "touch x" in shown["text"]
    assert "1 Allow once" not in shown["text"]

    assert await answer_to(bot, bot.press("Allow once", by=BO, **at)) == NOT_YOURS
    request = await open_request(stack)
    bot.say("hello", chat=ANN)
    other = await card(bot, ANN)
    forwarded = {"chat": ANN, "message": other["message_id"]}
    stranger = bot.press(data=f"{request.id}:once", chat=9, message=bot.say("hi", chat=9))
    assert await answer_to(bot, stranger) == NOT_YOURS
    made_up = bot.press(data=f"{request.id}:all", by=ANN, **at)
    unknown = bot.press(data="abcdefgh:once", by=ANN, **at)
    elsewhere = bot.press(data=f"{request.id}:once", **forwarded)
    assert [await answer_to(bot, one) for one in (made_up, unknown, elsewhere)] == [
        GONE,
        GONE,
        ELSEWHERE,
    ]

    press = bot.press("Allow once", by=ANN, name="Ann", **at)
    assert (await answer_to(bot, press)).startswith("Allowed once by Ann at ")
    await eventually(lambda: "touch x yes" in "".join(bot.texts(GROUP)))
    (closed,) = [one for one in bot.chat(GROUP) if "asks to use" in one.get("text", "")]
    assert closed["message_id"] == shown["message_id"]
    assert "Allowed once by Ann at " in closed["text"]
    assert "reply_markup" not in closed

    late = bot.press(data=f"{request.id}:deny", by=EVE, name="Eve", **at)
    assert (await answer_to(bot, late)).startswith(
        "It was answered before: Allowed once by Ann at "
    )
    alerts = [call["show_alert"] for call in bot.calls("answerCallbackQuery")]
    assert alerts == ["true"] * 5 + ["false", "true"]
    assert not [call for call in bot.calls() if "refused" in call]


async def test_presses_that_telegram_does_not_take_hold_up_nobody_else(
    bot: TelegramBot, channel: Channel
) -> None:
    channel.start()
    bot.fault("answerCallbackQuery", "mute", times=4)
    message = bot.say("/status", chat=ANN)
    for _ in range(4):
        bot.press(data="abcdefgh:once", by=ANN, chat=ANN, message=message)
    await eventually(lambda: bot.calls("answerCallbackQuery"))
    bot.say(f"@{bot.username} /whoami", chat=GROUP, by=ANN)
    await eventually(lambda: bot.texts(GROUP))

    assert len(bot.calls("answerCallbackQuery")) == 1


async def test_questions_are_answered_by_a_button_and_by_numbers(
    stack: Stack, bot: TelegramBot, channel: Channel, directory: Path
) -> None:
    command = list(claude_script(directory, QUESTIONS))
    stack.agent = {"runtime": "claude", "command": command}
    channel.configure()
    await stack.start_worker()
    channel.start()
    bot.say("go", chat=ANN)
    first = await card(bot, ANN)
    rows = first["reply_markup"]["inline_keyboard"]
    assert [row[0]["text"] for row in rows] == ["Postgres", "SQLite", "No answer"]
    request = await open_request(stack)
    at = {"chat": ANN, "message": first["message_id"]}
    assert await answer_to(bot, bot.press(data=f"{request.id}:once", **at)) == GONE
    assert (await answer_to(bot, bot.press("SQLite", **at))).endswith(": “SQLite”")

    await next_request(stack, request)
    second = await card(bot, ANN, after=first["message_id"])
    assert "write their numbers" in second["text"]
    bot.say("1, 3", chat=ANN, reply_to=second["message_id"])
    await eventually(lambda: '"Which colours?": "red, blue"' in "".join(bot.texts(ANN)))
    assert '"Which DB?": "SQLite"' in "".join(bot.texts(ANN))
    assert not [one for one in bot.chat(ANN) if "reply_markup" in one]


async def test_a_long_request_is_attached_in_full_as_a_file(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    channel.start()
    bot.say("touch LONG", chat=ANN)
    shown = await card(bot, ANN)
    request = await open_request(stack)
    whole, name = "touch " + "x " * 100_000 + ".", f"request-{request.id}.txt"
    assert request.file is not None
    client, file = stack.fleet.scripts.client, keys.blob(request.session.sid, request.file.blob)
    assert "… 197,007 characters …" in shown["text"]
    assert f"All of it is in the file {name}." in shown["text"]
    await eventually(lambda: bot.files(ANN) == {name: whole.encode()})

    assert await client.pttl(file) == -1  # no expiry while the request is open
    press = bot.press("Allow once", chat=ANN, message=shown["message_id"])
    assert (await answer_to(bot, press)).startswith("Allowed once by Ann at ")
    await eventually(lambda: "touch LONG yes" in "".join(bot.texts(ANN)))
    closed = next(one for one in bot.chat(ANN) if one["message_id"] == shown["message_id"])
    assert "Allowed once by Ann at " in closed["text"]
    assert "reply_markup" not in closed
    assert list(bot.files(ANN)) == [name]

    # The operator can read the file for as long as the request is stored.
    assert run(stack, "requests", "show", request.id).stdout.endswith(f"\n\n{whole}\n")
    left = [await client.pttl(name) for name in (keys.request(request.id), file)]
    assert abs(left[1] - left[0]) < 1000


async def test_a_button_press_counts_once_even_if_the_process_is_killed(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    process = channel.start()
    bot.say("touch x", chat=ANN)
    shown = await card(bot, ANN)
    bot.fault("answerCallbackQuery", "mute")
    press = bot.press("Deny", chat=ANN, message=shown["message_id"])
    await eventually(bot.held)
    process.kill()
    process.wait()
    bot.release()
    channel.start()
    await eventually(lambda: "touch x no" in "".join(bot.texts(ANN)))
    await eventually(lambda: len(bot.told(press)) == 2)

    first, again = bot.told(press)
    assert first == again
    assert first.startswith("Denied by Ann at ")
    closed = [text for text in bot.texts(ANN) if "Denied by Ann" in text]
    assert len(closed) == 1


async def test_a_button_press_too_old_to_acknowledge_counts_and_blocks_nothing(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    channel.start()
    bot.say("touch x", chat=ANN)
    shown = await card(bot, ANN)
    bot.fault("answerCallbackQuery", "refused", code=400, description="Bad Request: query is old")
    bot.press("Allow once", chat=ANN, message=shown["message_id"])
    await eventually(lambda: "touch x yes" in "".join(bot.texts(ANN)))
    await eventually(lambda: not bot.pending())

    assert "the outcome of a button press was not reported" in channel.log.read_text()


async def test_a_reply_to_the_file_of_a_request_answers_it_and_other_replies_do_not(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    channel.start()
    bot.say("touch LONG", chat=ANN)
    (words,) = await eventually(
        lambda: [one for one in bot.chat(ANN) if one.get("text") == "I try."]
    )
    await card(bot, ANN)
    request = await open_request(stack)
    (file,) = await eventually(lambda: [one for one in bot.chat(ANN) if "document" in one])

    bot.say("1", chat=ANN, reply_to=words["message_id"])
    bot.say("/deny made2222", chat=ANN)
    await eventually(lambda: GONE in bot.texts(ANN))
    found = await stack.fleet.requests.find(request.id)
    assert found is not None
    assert found.answer is None

    bot.say("2", chat=ANN, reply_to=file["message_id"])
    await eventually(lambda: "Allowed for this conversation by" in "".join(bot.texts(ANN)))


async def test_a_button_does_not_wait_for_a_slow_file(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    channel.start()
    bot.say("touch x", chat=ANN)
    shown = await card(bot, ANN)
    bot.fault("getFile", "mute")
    bot.say("look", chat=ANN, files=[file("plan.txt", b"the plan")])
    await eventually(bot.held)

    press = bot.press("Allow once", chat=ANN, message=shown["message_id"])
    assert (await answer_to(bot, press)).startswith("Allowed once by Ann at ")
    assert bot.held()
    bot.release()


async def test_a_number_that_was_written_before_the_request_does_not_answer_it(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    """It is about something else, and only arrives later than the request."""
    # All direct chats number their messages together.
    earlier, early = (bot.say("hi", chat=99) for _ in range(2))
    await stack.start_worker()
    channel.start()
    bot.say("touch x", chat=ANN)
    shown = await card(bot, ANN)
    request = await open_request(stack)
    assert shown["message_id"] > early
    bot.say("1", chat=ANN, message_id=earlier)
    bot.say("/allow", chat=ANN, message_id=early)
    await eventually(lambda: f"Say which: {request.id}." in bot.texts(ANN))
    assert (await open_request(stack)).id == request.id

    bot.say("1", chat=ANN)
    await eventually(lambda: "touch x yes" in "".join(bot.texts(ANN)))
