"""The adapter of Telegram on the tests' own Telegram: what people see, what an error means."""

import asyncio
import logging
import random
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remoteclaw.channels.telegram.adapter import TelegramAdapter
from remoteclaw.channels.telegram.settings import TelegramAccount
from remoteclaw.channels.telegram.writer import Text
from remoteclaw.errors import (
    AccountRefused,
    PlatformAway,
    PlatformBusy,
    PlatformRefused,
    PlatformUnknown,
    Unsupported,
)
from remoteclaw.messages import Attachment
from remoteclaw.protocols import Card, Live, Operation, Part, Place, Reply, Sent
from tests.support.telegram import TelegramBot, file
from tests.support.waiting import eventually

CHAT, GROUP = 7, -100_500
PNG = b"\x89PNG rest"


@pytest.fixture
def bot(bot: TelegramBot) -> TelegramBot:
    """A bot that may write to a person and in a group with a topic."""
    bot.chat(CHAT)
    bot.chat(GROUP, topics=[5])
    return bot


@pytest.fixture
async def adapter(bot: TelegramBot) -> AsyncIterator[TelegramAdapter]:
    """The bot's adapter, connected."""
    adapter = made(bot)
    await adapter.connect()
    yield adapter
    await adapter.aclose()


def made(bot: TelegramBot, **more: Any) -> TelegramAdapter:
    settings = {"token": bot.token, "api_url": bot.api_url, **more}
    return TelegramAdapter(TelegramAccount.model_validate(settings))


def reply(text: str = "", *, chat: int = CHAT, thread: str | None = None, **more: Any) -> Reply:
    fields: dict[str, Any] = {
        "id": "1-0",
        "sid": "0" * 32,
        "turn": "1-0",
        "attempt": 1,
        "index": 0,
        "is_error": False,
        "reply_to_id": None,
        "attachments": (),
        "is_final": True,
        "entries": (),
    }
    return Reply(channel_id=str(chat), thread_id=thread, text=text, **{**fields, **more})


async def sent(adapter: TelegramAdapter, answer: Reply, content: bytes = b"") -> list[Sent]:
    return [await adapter.send(answer, part, content) for part in adapter.parts(answer)]


def attached(name: str, mime_type: str, size: int = 9) -> Attachment:
    return Attachment(name=name, mime_type=mime_type, size=size, blob="a" * 32)


# What is sent.


async def test_an_answer_is_shown_with_its_look(bot: TelegramBot, adapter: TelegramAdapter) -> None:
    (done,) = await sent(adapter, reply("**Done** in `a.py`, 😀 *really*."))

    (seen,) = bot.chat(CHAT)
    assert str(seen["message_id"]) == done.message_id
    assert seen["text"] == "Done in a.py, 😀 really."
    assert [(one["type"], one["offset"], one["length"]) for one in seen["entities"]] == [
        ("bold", 0, 4),
        ("code", 8, 4),
        ("italic", 17, 6),
    ]


async def test_no_address_in_an_answer_is_opened(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    await sent(adapter, reply("See https://example.org/?secret=1"))
    name = await adapter.preview(Place(str(CHAT)), Live(text="https://a.org"), message_id=None)
    await adapter.preview(Place(str(CHAT)), Live(text="https://b.org"), message_id=name)

    calls = bot.calls("sendMessage", "editMessageText")
    assert [call["link_preview_options"] for call in calls] == ['{"is_disabled": true}'] * 3


async def test_a_long_answer_comes_as_several_messages_of_which_one_sounds(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    await sent(adapter, reply("word 😀 " * 2000, reply_to_id=str(bot.say("hi", chat=CHAT))))

    calls = bot.calls("sendMessage")
    assert len(calls) > 3
    assert [call["disable_notification"] for call in calls] == ["false"] + ["true"] * (
        len(calls) - 1
    )
    assert ["reply_to_message" in one for one in bot.chat(CHAT)[1:]] == [True] + [False] * (
        len(calls) - 1
    )


async def test_what_comes_before_the_end_of_a_turn_makes_no_sound(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    await sent(adapter, reply("first", is_final=False))
    await sent(adapter, reply("by a tool", is_final=False, call="call-1"))

    assert [one["disable_notification"] for one in bot.calls("sendMessage")] == ["true", "false"]


async def test_a_quoted_message_that_is_gone_costs_nothing(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    await sent(adapter, reply("hello", reply_to_id="999"))
    await sent(adapter, reply("hello", reply_to_id="no number"))

    assert bot.texts(CHAT) == ["hello", "hello"]


async def test_an_answer_goes_to_its_topic(bot: TelegramBot, adapter: TelegramAdapter) -> None:
    await sent(adapter, reply("here", chat=GROUP, thread="5"))

    assert [one["message_thread_id"] for one in bot.chat(GROUP)] == [5]
    with pytest.raises(PlatformRefused, match="no topic 'main'"):
        await sent(adapter, reply("here", chat=GROUP, thread="main"))


async def test_the_mere_end_of_a_turn_is_nothing(adapter: TelegramAdapter) -> None:
    assert adapter.parts(reply("")) == []


async def test_an_error_and_what_nobody_asked_for_are_marked(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    await sent(adapter, reply("It **broke**.", is_error=True, origin="cron job *x*"))

    (seen,) = bot.chat(CHAT)
    assert seen["text"] == "(cron job *x*)\n⚠️ It broke."
    assert [(one["type"], one["offset"], one["length"]) for one in seen["entities"]] == [
        ("italic", 0, 14),
        ("bold", 21, 5),
    ]


async def test_what_may_have_arrived_says_so_when_it_is_sent_again(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    text, attachment = adapter.parts(
        reply("**Hi**", attachments=(attached("a.txt", "text/plain"),))
    )
    await adapter.send(reply(), text, is_again=True)
    await adapter.send(reply(), attachment, b"content", is_again=True)

    assert bot.texts(CHAT) == ["(perhaps a second time)\nHi", "(perhaps a second time)"]


async def test_words_of_ours_that_leave_no_room_are_a_message_of_their_own(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    await adapter.send(reply(), Part(0, Text("x" * 4096)), is_again=True)

    assert bot.texts(CHAT) == ["(perhaps a second time)", "x" * 4096]


async def test_what_telegram_can_not_show_goes_as_plain_text(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    words = "Bad Request: can't parse entities: something new"
    bot.fault("sendMessage", "refused", code=400, description=words)

    await sent(adapter, reply("**bold**"))

    assert [(one["text"], one.get("entities")) for one in bot.chat(CHAT)] == [("bold", None)]


async def test_telegram_takes_whatever_an_agent_writes(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    pieces = (
        "**bold _both_ **", "`code`", "```python\nx = '😀'\n```\n", "\n\n", "\n- item\n  - deeper ",
        "\n> quote **b**\n", "[a](https://a.org/?q=😀)", "[b](javascript:alert(1))", "😀👩‍👩‍👧",
        "\n| a | b |\n|---|---|\n| `c` | " + "wide " * 20 + "|\n", "<script>x</script>", "~~s~~",
        "\n# Heading *x*\n", "\u202e\u2066 ", "\x00\x1b[31m", "word ", "\ud800", "1. one\n2. two\n",
        "https://example.org/(a)", "\t", "&amp; &lt;", "![p](https://p.org/x.png)", "***",
    )  # fmt: skip
    chosen = random.Random(18)
    for length in (*range(1, 40, 2), 400, 2000):
        answer = reply("".join(chosen.choice(pieces) for _ in range(length)))
        await sent(adapter, answer)

    assert [call["refused"] for call in bot.calls() if "refused" in call] == []
    assert len(bot.texts(CHAT)) > 30


async def test_an_effect_is_shown_by_its_name_where_there_is_one(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    effects = ("confetti", "👍", "thumbs up", "unheard of")
    shown = [(await sent(adapter, reply("hi", effect=name)))[0].has_effect for name in effects]
    in_group = await sent(adapter, reply("hi", chat=GROUP, effect="confetti"))
    bot_lacks = await sent(adapter, reply("hi", effect="poop"))

    assert shown == [True, True, True, False]
    assert not in_group[0].has_effect
    assert not bot_lacks[0].has_effect
    assert len(bot.chat(CHAT)) == 5


# Files.


async def test_a_picture_is_shown_as_one_and_else_a_file_is_sent(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    for name, mime_type, content in (
        ("a.png", "image/png", PNG),
        ("b.png", "image/png", b"no picture"),
        ("c.png", "image/png", PNG + bytes(10_000_000)),
        ("ü d.txt", "text/plain", b"text"),
    ):
        await sent(adapter, reply(attachments=(attached(name, mime_type),)), content)

    photo, *documents = bot.chat(CHAT)
    assert "photo" in photo
    assert [one["document"]["file_name"] for one in documents] == ["b.png", "c.png", "ü d.txt"]


async def test_an_empty_file_is_refused_in_words(adapter: TelegramAdapter) -> None:
    with pytest.raises(PlatformRefused, match="File must be non-empty"):
        await sent(adapter, reply(attachments=(attached("a", "text/plain"),)), b"")


async def test_a_file_of_a_person_is_fetched_and_one_of_21_mb_refused(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.say("look", chat=CHAT, files=[file("a.txt", b"content")])
    bot.say("large", chat=CHAT, files=[file("b.bin", size=21 * 2**20)])
    small, large = (await adapter.poll(None)).incoming

    assert await adapter.fetch(small.files[0]) == b"content"
    with pytest.raises(PlatformRefused, match="larger than the 20 MB"):
        await adapter.fetch(large.files[0])


# Previews and operations.


async def test_a_preview_is_one_silent_message_that_becomes_the_answer(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    place = Place(str(CHAT))
    name = await adapter.preview(place, Live(text="", activity="Read a.py"), message_id=None)
    same = await adapter.preview(
        place, Live(text="The *first*", activity="Bash: make"), message_id=name
    )
    assert bot.texts(CHAT) == ["The first\n\nBash: make"]
    answer = reply("The first **word**.")
    done = await adapter.replace(answer, adapter.parts(answer)[0], message_id=name)
    again = await adapter.replace(answer, adapter.parts(answer)[0], message_id=name)

    assert {name, same, done.message_id, again.message_id} == {name}
    assert bot.texts(CHAT) == ["The first word."]
    assert [one["disable_notification"] for one in bot.calls("sendMessage")] == ["true"]


async def test_the_same_preview_twice_is_no_error(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    name = await adapter.preview(Place(str(CHAT)), Live(text="hi"), message_id=None)

    assert await adapter.preview(Place(str(CHAT)), Live(text="hi"), message_id=name) == name


async def test_a_preview_that_was_deleted_is_sent_again(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    place = Place(str(CHAT))
    name = await adapter.preview(place, Live(text="one"), message_id=None)
    await adapter.remove(place, name)
    await adapter.remove(place, name)
    second = await adapter.preview(place, Live(text="two"), message_id=name)
    await adapter.remove(place, second)
    answer = reply("three")
    with pytest.raises(PlatformRefused):  # the relay sends it then
        await adapter.replace(answer, adapter.parts(answer)[0], message_id=second)

    assert bot.texts(CHAT) == []


async def test_typing_is_shown_in_the_topic(bot: TelegramBot, adapter: TelegramAdapter) -> None:
    await adapter.typing(Place(str(GROUP), "5"))

    (call,) = bot.calls("sendChatAction")
    assert (call["message_thread_id"], call["action"]) == ("5", "typing")


def operation(name: Any, **args: Any) -> Operation:
    return Operation(name=name, channel_id=str(CHAT), thread_id=None, args=args, expires_ms=0)


async def test_a_message_is_reacted_to_pinned_and_deleted(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    name = str(bot.say("hi", chat=CHAT))
    await adapter.operate(operation("react", messageId=name, emoji="❤️"))
    await adapter.operate(operation("pin", messageId=name))
    (seen,) = bot.chat(CHAT)
    assert (seen["reaction"], seen["is_pinned"]) == ("❤", True)
    await adapter.operate(operation("react", messageId=name, emoji=""))
    assert bot.chat(CHAT)[0]["reaction"] == ""
    await adapter.operate(operation("delete", messageId=name))

    assert bot.chat(CHAT) == []


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("react", {"messageId": "1", "emoji": "🦞"}, "no such reaction"),
        ("delete", {"messageId": "99", "emoji": ""}, "no such message in that chat"),
        ("pin", {"messageId": "the last"}, "There is no message 'the last'"),
    ],
)
async def test_what_telegram_will_not_do_is_said_in_a_sentence(
    bot: TelegramBot, adapter: TelegramAdapter, name: str, args: dict[str, str], words: str
) -> None:
    bot.say("hi", chat=CHAT)
    with pytest.raises(PlatformRefused, match=words):
        await adapter.operate(operation(name, **args))


async def test_there_is_nothing_to_read(adapter: TelegramAdapter) -> None:
    with pytest.raises(Unsupported, match="no history"):
        await adapter.operate(operation("read", limit=5))


async def test_commands_are_shown_in_the_menu(bot: TelegramBot, adapter: TelegramAdapter) -> None:
    await adapter.set_commands([("status", "What runs"), ("new", "x" * 300)])

    assert [one["command"] for one in bot.commands()] == ["status", "new"]


# What people write.


async def test_nothing_is_acknowledged_before_the_next_position(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.say("one", chat=CHAT)
    first = await adapter.poll(None)
    bot.say("two", chat=CHAT)
    again = await adapter.poll(None)
    later = await adapter.poll(first.position)

    assert [one.text for one in first.incoming] == ["one"]
    assert [one.text for one in again.incoming] == ["one", "two"]
    assert [one.text for one in later.incoming] == ["two"]
    assert len(bot.pending()) == 1


async def test_an_album_is_one_message_though_it_comes_in_parts(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    def part(name: str, text: str = "") -> None:
        bot.say(text, chat=CHAT, files=[file(name, b"x", kind="photo")], media_group_id="g")

    part("a.png", "Look at these")
    bot.fault("getUpdates", "mute")
    polling = asyncio.create_task(adapter.poll(None))
    await eventually(bot.held)  # it has the first part
    part("b.png")
    bot.release()
    found = await polling
    (album,) = found.incoming
    part("c.png")

    assert (album.text, len(album.files)) == ("Look at these", 2)
    (late,) = (await adapter.poll(found.position)).incoming
    assert len(late.files) == 1


async def test_an_album_stands_before_what_was_written_after_it(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.say("Hello", chat=CHAT)
    for name in ("a.png", "b.png"):
        bot.say("", chat=CHAT, files=[file(name, b"x", kind="photo")], media_group_id="g")
    bot.say("What is that?", chat=CHAT)
    found = (await adapter.poll(None)).incoming

    assert [(one.text, len(one.files)) for one in found] == [
        ("Hello", 0),
        ("", 2),
        ("What is that?", 0),
    ]


async def test_an_update_of_an_unknown_shape_holds_nothing_up(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.tell({"brain_wave": {"message_id": 1, "text": "hm"}})
    bot.tell({"message": {"message_id": {"new": 1}}})
    bot.tell({"message": 5})
    bot.say("still here", chat=CHAT)
    batch = await adapter.poll(None)

    assert [one.text for one in batch.incoming if not one.problem] == ["still here"]
    problems = [one.problem for one in batch.incoming if one.problem]
    assert len(problems) == 2
    assert "shape" in problems[0]
    await adapter.poll(batch.position.replace(batch.position, str(int(batch.position) - 1)))
    assert len(bot.pending()) == 1


# What goes wrong.


@pytest.mark.parametrize(
    ("fault", "meant", "words"),
    [
        ({"kind": "busy", "retry_after": 17}, PlatformBusy, "too often"),
        ({"kind": "page", "code": 502}, PlatformAway, "out of order"),
        ({"kind": "refused", "code": 500}, PlatformAway, "out of order"),
        ({"kind": "page", "code": 504}, PlatformUnknown, "did not answer"),
        ({"kind": "lost"}, PlatformUnknown, "did not answer"),
        (
            {"kind": "refused", "code": 413, "description": "Request Entity Too Large"},
            PlatformRefused,
            "50 MB",
        ),
        (
            {"kind": "refused", "code": 400, "description": "Bad Request: new_words"},
            PlatformRefused,
            "Telegram refused it: New_words",
        ),
        (
            {
                "kind": "refused",
                "code": 403,
                "description": "Forbidden: bot was blocked by the user",
            },
            PlatformRefused,
            "has blocked the bot",
        ),
        (
            {
                "kind": "refused",
                "code": 403,
                "description": "Forbidden: bot was kicked from the supergroup chat",
            },
            PlatformRefused,
            "was removed from that group: add it there again",
        ),
        (
            {"kind": "refused", "code": 400, "description": "Bad Request: chat not found"},
            PlatformRefused,
            "Telegram knows no such chat",
        ),
        (
            {"kind": "refused", "code": 401, "description": "Unauthorized"},
            AccountRefused,
            "@BotFather",
        ),
    ],
)
async def test_each_error_is_what_it_means(
    bot: TelegramBot,
    adapter: TelegramAdapter,
    fault: dict[str, Any],
    meant: type[Exception],
    words: str,
) -> None:
    bot.fault("sendMessage", **fault)
    with pytest.raises(meant, match=words) as raised:
        await sent(adapter, reply("hi"))

    assert type(raised.value).__mro__[:2].count(meant) == 1
    assert bot.token not in str(raised.value)
    if isinstance(raised.value, PlatformBusy):
        assert raised.value.after_s == 17
    assert bot.texts(CHAT) == (["hi"] if fault["kind"] == "lost" else [])


async def test_a_server_that_is_not_there_has_certainly_done_nothing(bot: TelegramBot) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    adapter = made(bot, api_url=f"http://127.0.0.1:{port}")
    with pytest.raises(PlatformAway, match="can't be reached"):
        await sent(adapter, reply("hi"))
    await adapter.aclose()


async def test_a_poll_that_gets_no_answer_is_simply_repeated(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.say("hi", chat=CHAT)
    bot.fault("getUpdates", "lost")
    with pytest.raises(PlatformAway):
        await adapter.poll(None)

    assert [one.text for one in (await adapter.poll(None)).incoming] == ["hi"]


async def test_a_group_that_has_become_a_supergroup_is_written_to(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.say("hi", chat=-7, by=CHAT)
    bot.move(-7, to=-100_777)
    await sent(adapter, reply("one", chat=-7))
    await sent(adapter, reply("two", chat=-7))

    assert bot.texts(-100_777) == ["one", "two"]
    assert [call["chat_id"] for call in bot.calls("sendMessage")] == ["-7", "-100777", "-100777"]
    learned, _, told = (await adapter.poll(None)).incoming
    assert (learned.chat, learned.moved_to) == (told.chat, told.moved_to) == ("-7", "-100777")
    assert len((await adapter.poll(None)).incoming) == 2


async def test_a_token_that_was_revoked_is_said_when_it_connects(bot: TelegramBot) -> None:
    bot.set(is_revoked=True)
    adapter = made(bot)
    with pytest.raises(AccountRefused, match="copy it again from @BotFather"):
        await adapter.connect()
    await adapter.aclose()


async def test_a_webhook_that_is_set_is_said_when_it_connects(bot: TelegramBot) -> None:
    bot.set(webhook="https://example.org/hook")
    adapter = made(bot)
    with pytest.raises(
        AccountRefused, match=f"A webhook is set for @{bot.username}.*deleteWebhook"
    ):
        await adapter.connect()
    with pytest.raises(AccountRefused, match="A webhook is set"):
        await adapter.poll(None)
    await adapter.aclose()


async def test_another_program_with_the_same_token_is_said(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    words = "Conflict: terminated by other getUpdates request; make sure that only one bot"
    bot.fault("getUpdates", "refused", code=409, description=words)
    with pytest.raises(AccountRefused, match="Another program reads"):
        await adapter.poll(None)


async def test_no_log_has_the_token_or_a_text(
    bot: TelegramBot, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        adapter = made(bot)
        await adapter.connect()
        await sent(adapter, reply("the secret words"))
        bot.fault("sendMessage", "page", code=502)
        with pytest.raises(PlatformAway):
            await sent(adapter, reply("the secret words"))
        await adapter.aclose()

    assert bot.token not in caplog.text
    assert "secret words" not in caplog.text


def test_the_library_is_loaded_without_what_nobody_uses_of_it() -> None:
    code = """
import sys, remoteclaw.channels.telegram.api
print({"rich.console", "cryptography.hazmat.bindings._rust"} & {*sys.modules})
import cryptography.hazmat.primitives.serialization  # who needs it may still have it
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout == "set()\n"


async def test_a_card_has_its_buttons_below_its_last_words_and_loses_them(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    choices = (("once", "Allow once"), ("deny", "Deny"))
    long = reply(f"```\n{'😀' * 3000}\n```", card=Card("abcdefgh", choices))
    done = await sent(adapter, long)

    seen = bot.chat(CHAT)
    assert ["reply_markup" in one for one in seen] == [False, True]
    assert [row[0]["callback_data"] for row in seen[1]["reply_markup"]["inline_keyboard"]] == [
        "abcdefgh:once",
        "abcdefgh:deny",
    ]
    closed = reply("Denied.", card=Card("abcdefgh"))
    (part,) = adapter.parts(closed)
    await adapter.replace(closed, part, message_id=done[-1].message_id or "")
    assert not any("reply_markup" in one for one in bot.chat(CHAT))
