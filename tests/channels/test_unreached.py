"""Answers that a platform refuses: the person hears of each in a place that works, once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.channels.relay import relay
from remoteclaw.channels.unreached import notice_of
from remoteclaw.config.chats import NO_FACTS
from remoteclaw.config.load import load_config
from remoteclaw.errors import PlatformRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.replies.reader import DeliveryFailure
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.messages import ChatPlace
from remoteclaw.protocols import Reply
from tests.support.bridges import script
from tests.support.conversations import AGENT, go
from tests.support.platform import Recipient
from tests.support.stack import SID, Stack
from tests.support.telegram import TelegramBot
from tests.support.telegram.channel import ANN, GROUP, Channel
from tests.support.waiting import eventually

#: A group with a topic, the person who asks there, the chat for requests, and an owner.
TOPIC, PERSON, REQUESTS, OWNER = "-1/5", "8", "-2", "7"
WHY = "That topic of the chat is closed."


class Chats(Recipient):
    """Some chats and topics, written as CHAT or CHAT/TOPIC, of which some are closed."""

    def __init__(self, *closed: str) -> None:
        self.closed = set(closed)
        self.tried: list[str] = []
        self.texts: dict[str, list[str]] = {}

    async def take(self, reply: Reply, *_: object) -> None:
        """Take a message, or refuse it."""
        place = "/".join(filter(None, (reply.channel_id, reply.thread_id)))
        self.tried.append(place)
        if {place, reply.channel_id} & self.closed or reply.text in self.closed:
            raise PlatformRefused(WHY)
        self.texts.setdefault(place, []).append(reply.text)

    def notices(self) -> list[str]:
        """Return the places that have got a notice."""
        return [place for place, texts in self.texts.items() for text in texts if WHY in text]


@contextlib.asynccontextmanager
async def delivering(stack: Stack, chats: Chats) -> AsyncIterator[None]:
    """Deliver the replies of a Telegram account."""
    settings = {"token": "1:x", "owners": [OWNER]}
    stack.configure(channels={"telegram": settings}, requests={"chat": f"telegram:{REQUESTS}"})
    config = load_config(stack.home.config_file, {})

    async def notice(
        reply: Reply, failure: DeliveryFailure
    ) -> tuple[ChatPlace, Mapping[str, Any]] | None:
        place = ChatPlace("telegram", "default", reply.channel_id, reply.thread_id)
        return notice_of(config, NO_FACTS, place, reply, failure)

    reader = stack.fleet.replies.reader("telegram", "default")
    task = asyncio.create_task(relay(reader, chats, notice_of=notice))
    yield
    task.cancel()
    await asyncio.wait((task,))


async def answer(stack: Stack, text: str, *, number: int = 1, **more: Any) -> None:
    """Queue the answer of a turn to the person in the topic, and wait for its receipt."""
    client: Any = stack.fleet.scripts.client
    chat, _, thread = TOPIC.partition("/")
    place = ChatPlace("telegram", "default", chat, thread)
    about = {"turn": f"{number}-0", "attempt": 1, "asked_by": PERSON, **more}
    payload = reply_payload(place, text, sid=SID, **about)
    stream = keys.replies("telegram", "default")
    await client.xadd(stream, {"reply": orjson.dumps(payload)})

    async def is_empty() -> bool:
        return not await client.xlen(stream)

    await eventually(is_empty)


@pytest.mark.parametrize(
    ("closed", "place"),
    [
        (["an answer"], TOPIC),
        ([TOPIC], "-1"),
        (["-1"], PERSON),
        (["-1", PERSON], REQUESTS),
        (["-1", PERSON, REQUESTS], OWNER),
    ],
)
async def test_a_refused_answer_is_told_in_the_first_place_that_works(
    stack: Stack, closed: list[str], place: str
) -> None:
    chats = Chats(*closed)
    async with delivering(stack, chats):
        await answer(stack, "an answer")

    assert chats.notices() == [place]
    (text,) = chats.texts[place]
    where = "here" if place == TOPIC else "in telegram:-1, thread 5"
    assert text.startswith(f"A message of mine was refused {where}: {WHY} Whoever runs me")
    (letter,) = await stack.fleet.dead_letters.list()
    assert letter.text == "an answer"


async def test_a_notice_that_every_place_refuses_ends(stack: Stack) -> None:
    chats = Chats("-1", PERSON, REQUESTS, OWNER)
    async with delivering(stack, chats):
        await answer(stack, "an answer")

    assert chats.tried == [TOPIC, TOPIC, "-1", PERSON, REQUESTS, OWNER]
    assert await stack.fleet.dead_letters.count() == 1


async def test_a_closed_place_is_told_once_until_a_reply_is_delivered_there(stack: Stack) -> None:
    chats = Chats(TOPIC)
    async with delivering(stack, chats):
        for number in range(3):
            await answer(stack, "an answer", number=number)
        assert chats.notices() == ["-1"]
        await answer(stack, "another person's", number=3, asked_by="9")
        assert chats.notices() == ["-1", "-1"]
        chats.closed.clear()
        await answer(stack, "open again", number=4)
        chats.closed.add(TOPIC)
        await answer(stack, "an answer", number=5)

    assert chats.notices() == ["-1"] * 3


async def test_only_answers_are_told_and_not_the_messages_of_tools(stack: Stack) -> None:
    chats = Chats(TOPIC)
    async with delivering(stack, chats):
        await answer(stack, "a tool's", call="{x}:1", asked_by=None)
        await answer(stack, "of a command", call="{operator}:2", turn="")
        await answer(stack, "of a cron job", asked_by=None, number=2)

    assert [text.count("deadletters") for text in chats.texts["-1"]] == [0, 1]


async def test_a_member_hears_that_the_bot_was_removed_from_the_group(
    stack: Stack, bot: TelegramBot, directory: Path
) -> None:
    stack.agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    channel = Channel(stack, bot, settings={"allow": ["8"]})
    await stack.start_worker()
    channel.start()
    try:
        bot.chat(8)
        bot.chat(ANN)
        bot.say(f"@{bot.username} wait", chat=GROUP, by=8)
        await eventually(lambda: bot.calls("sendChatAction"))
        bot.chat(GROUP, closed="bot was kicked from the supergroup chat")
        go(stack)
        await eventually(lambda: bot.texts(8))
        bot.say("/status", chat=8)
        await eventually(lambda: len(bot.texts(8)) == 2)
    finally:
        channel.end()

    assert bot.texts(8)[0].startswith(
        f"A message of mine was refused in telegram:{GROUP}: The bot was removed from that group"
    )
    assert bot.texts(ANN) == []
