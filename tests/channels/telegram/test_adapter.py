"""The Telegram adapter on the test server: what people see, and what errors mean."""

import asyncio
import logging
import random
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remoteclaw.channels.telegram.adapter import UPDATES, TelegramAdapter
from remoteclaw.channels.telegram.settings import TelegramAccount
from remoteclaw.channels.telegram.writer import FormattedText
from remoteclaw.errors import (
    AccountRefused,
    PlatformAway,
    PlatformBusy,
    PlatformRefused,
    PlatformUnknown,
    Unsupported,
)
from remoteclaw.messages import Attachment
from remoteclaw.protocols import (
    Card,
    Incoming,
    Live,
    Operation,
    Part,
    Place,
    PollResult,
    Reply,
    Sent,
)
from tests.support.forwarding import ForwardProxy
from tests.support.telegram import TelegramBot, file, mentions_in
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
    adapter = create_adapter(bot)
    await adapter.connect()
    yield adapter
    await adapter.aclose()


def create_adapter(bot: TelegramBot, **more: Any) -> TelegramAdapter:
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


async def send(adapter: TelegramAdapter, answer: Reply, content: bytes = b"") -> list[Sent]:
    return [await adapter.send(answer, part, content) for part in adapter.parts(answer)]


def attached(name: str, mime_type: str, size: int = 9) -> Attachment:
    return Attachment(name=name, mime_type=mime_type, size=size, blob="a" * 32)


async def test_the_token_goes_to_no_proxy_without_encryption(
    bot: TelegramBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of one's own is called over http:, where a proxy would see the token in each URL."""
    proxy = ForwardProxy()
    async with proxy.running():
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        adapter = create_adapter(bot)
        await adapter.connect()
        await adapter.aclose()

        encrypted = create_adapter(bot, api_url="https://telegram.example")
        with pytest.raises(PlatformAway):  # the proxy refuses the host
            await encrypted.connect()
        await encrypted.aclose()

    assert proxy.targets == ["telegram.example"]
    assert not [head for head in proxy.heads if bot.token in head]


# Replies.


async def test_an_answer_is_shown_with_its_formatting(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    (done,) = await send(adapter, reply("**Done** in `a.py`, 😀 *really*."))

    (seen,) = bot.chat(CHAT)
    assert str(seen["message_id"]) == done.message_id
    assert seen["text"] == "Done in a.py, 😀 really."
    assert [(one["type"], one["offset"], one["length"]) for one in seen["entities"]] == [
        ("bold", 0, 4),
        ("code", 8, 4),
        ("italic", 17, 6),
    ]


async def test_a_preview_and_the_origin_of_an_answer_mention_nobody(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    live = Live(text="@alice", activity="uses Bash: @\u202ealice", plan="1/2 @alice")
    await adapter.preview(Place(str(CHAT)), live, message_id=None)
    await send(adapter, reply("@alice", origin="cron job @\u202ealice"))

    preview, answer = bot.chat(CHAT)
    assert (preview["text"].count("alice"), answer["text"].count("alice")) == (3, 2)
    assert not [*mentions_in(preview), *mentions_in(answer)]


async def test_link_previews_are_disabled(bot: TelegramBot, adapter: TelegramAdapter) -> None:
    await send(adapter, reply("See https://example.org/?secret=1"))
    preview_id = await adapter.preview(
        Place(str(CHAT)), Live(text="https://a.org"), message_id=None
    )
    await adapter.preview(Place(str(CHAT)), Live(text="https://b.org"), message_id=preview_id)

    calls = bot.calls("sendMessage", "editMessageText")
    assert [call["link_preview_options"] for call in calls] == ['{"is_disabled": true}'] * 3


async def test_a_long_answer_is_several_messages_and_only_the_first_notifies(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    await send(adapter, reply("word 😀 " * 2000, reply_to_id=str(bot.say("hi", chat=CHAT))))

    calls = bot.calls("sendMessage")
    assert len(calls) > 3
    assert [call["disable_notification"] for call in calls] == ["false"] + ["true"] * (
        len(calls) - 1
    )
    assert ["reply_to_message" in one for one in bot.chat(CHAT)[1:]] == [True] + [False] * (
        len(calls) - 1
    )


async def test_replies_before_the_end_of_a_turn_are_silent_unless_a_tool_sent_them(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    await send(adapter, reply("first", is_final=False))
    await send(adapter, reply("by a tool", is_final=False, call="call-1"))

    assert [one["disable_notification"] for one in bot.calls("sendMessage")] == ["true", "false"]


async def test_a_reply_to_a_deleted_message_is_still_sent(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    await send(adapter, reply("hello", reply_to_id="999"))
    await send(adapter, reply("hello", reply_to_id="no number"))

    assert bot.texts(CHAT) == ["hello", "hello"]


async def test_an_answer_goes_to_its_topic(bot: TelegramBot, adapter: TelegramAdapter) -> None:
    await send(adapter, reply("here", chat=GROUP, thread="5"))

    assert [one["message_thread_id"] for one in bot.chat(GROUP)] == [5]
    with pytest.raises(PlatformRefused, match="no topic 'main'"):
        await send(adapter, reply("here", chat=GROUP, thread="main"))


async def test_a_reply_without_text_and_files_has_no_parts(adapter: TelegramAdapter) -> None:
    assert adapter.parts(reply("")) == []


async def test_errors_and_replies_of_cron_jobs_are_marked(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    await send(adapter, reply("It **broke**.", is_error=True, origin="cron job *x*"))

    (seen,) = bot.chat(CHAT)
    assert seen["text"] == "(cron job *x*)\n⚠️ It broke."
    assert [(one["type"], one["offset"], one["length"]) for one in seen["entities"]] == [
        ("italic", 0, 14),
        ("bold", 21, 5),
    ]


async def test_a_repeated_send_says_that_it_may_be_a_second_time(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    text, attachment = adapter.parts(
        reply("**Hi**", attachments=(attached("a.txt", "text/plain"),))
    )
    await adapter.send(reply(), text, is_again=True)
    await adapter.send(reply(), attachment, b"content", is_again=True)

    assert bot.texts(CHAT) == ["(perhaps a second time)\nHi", "(perhaps a second time)"]


async def test_a_prefix_that_does_not_fit_is_a_message_of_its_own(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    await adapter.send(reply(), Part(0, FormattedText("x" * 4096)), is_again=True)

    assert bot.texts(CHAT) == ["(perhaps a second time)", "x" * 4096]


async def test_text_whose_formatting_telegram_refuses_is_sent_as_plain_text(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    words = "Bad Request: can't parse entities: something new"
    bot.fault("sendMessage", "refused", code=400, description=words)

    await send(adapter, reply("**bold** `@alice`"))

    (seen,) = bot.chat(CHAT)
    assert (seen["text"].replace("\u2060", ""), seen.get("entities")) == ("bold @alice", None)
    assert not mentions_in(seen), "code is plain text now"


async def test_telegram_accepts_any_text_of_an_agent(
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
        await send(adapter, answer)

    assert [call["refused"] for call in bot.calls() if "refused" in call] == []
    assert len(bot.texts(CHAT)) > 30


async def test_a_known_effect_is_shown_in_direct_chats_only(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    effects = ("confetti", "👍", "thumbs up", "unheard of")
    shown = [(await send(adapter, reply("hi", effect=name)))[0].has_effect for name in effects]
    in_group = await send(adapter, reply("hi", chat=GROUP, effect="confetti"))
    bot_lacks = await send(adapter, reply("hi", effect="poop"))

    assert shown == [True, True, True, False]
    assert not in_group[0].has_effect
    assert not bot_lacks[0].has_effect
    assert len(bot.chat(CHAT)) == 5


# Files.


async def test_a_picture_is_sent_as_a_photo_and_any_other_file_as_a_document(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    for name, mime_type, content in (
        ("a.png", "image/png", PNG),
        ("b.png", "image/png", b"no picture"),
        ("c.png", "image/png", PNG + bytes(10_000_000)),
        ("ü d.txt", "text/plain", b"text"),
    ):
        await send(adapter, reply(attachments=(attached(name, mime_type),)), content)

    photo, *documents = bot.chat(CHAT)
    assert "photo" in photo
    assert [one["document"]["file_name"] for one in documents] == ["b.png", "c.png", "ü d.txt"]


async def test_an_empty_file_is_refused_with_a_clear_error(adapter: TelegramAdapter) -> None:
    with pytest.raises(PlatformRefused, match="File must be non-empty"):
        await send(adapter, reply(attachments=(attached("a", "text/plain"),)), b"")


async def test_a_received_file_is_fetched_and_one_of_21_mb_is_refused(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.say("look", chat=CHAT, files=[file("a.txt", b"content")])
    bot.say("large", chat=CHAT, files=[file("b.bin", size=21 * 2**20)])
    small, large = (await adapter.poll({})).incoming

    assert await adapter.fetch(small.files[0]) == b"content"
    with pytest.raises(PlatformRefused, match="larger than the 20 MB"):
        await adapter.fetch(large.files[0])


# Previews and operations.


async def test_a_preview_is_one_silent_message_that_becomes_the_answer(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    place = Place(str(CHAT))
    preview_id = await adapter.preview(place, Live(text="", activity="Read a.py"), message_id=None)
    same = await adapter.preview(
        place, Live(text="The *first*", activity="Bash: make"), message_id=preview_id
    )
    assert bot.texts(CHAT) == ["The first\n\nBash: make"]
    answer = reply("The first **word**.")
    done = await adapter.replace(answer, adapter.parts(answer)[0], message_id=preview_id)
    again = await adapter.replace(answer, adapter.parts(answer)[0], message_id=preview_id)

    assert {preview_id, same, done.message_id, again.message_id} == {preview_id}
    assert bot.texts(CHAT) == ["The first word."]
    assert [one["disable_notification"] for one in bot.calls("sendMessage")] == ["true"]


async def test_the_same_preview_twice_is_no_error(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    preview_id = await adapter.preview(Place(str(CHAT)), Live(text="hi"), message_id=None)

    assert (
        await adapter.preview(Place(str(CHAT)), Live(text="hi"), message_id=preview_id)
        == preview_id
    )


async def test_a_preview_that_was_deleted_is_sent_again(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    place = Place(str(CHAT))
    preview_id = await adapter.preview(place, Live(text="one"), message_id=None)
    await adapter.remove(place, preview_id)
    await adapter.remove(place, preview_id)
    second = await adapter.preview(place, Live(text="two"), message_id=preview_id)
    await adapter.remove(place, second)
    answer = reply("three")
    with pytest.raises(PlatformRefused):  # the relay then sends a new message
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
    message_id = str(bot.say("hi", chat=CHAT))
    await adapter.operate(operation("react", messageId=message_id, emoji="❤️"))
    await adapter.operate(operation("pin", messageId=message_id))
    (seen,) = bot.chat(CHAT)
    assert (seen["reaction"], seen["is_pinned"]) == ("❤", True)
    await adapter.operate(operation("react", messageId=message_id, emoji=""))
    assert bot.chat(CHAT)[0]["reaction"] == ""
    await adapter.operate(operation("delete", messageId=message_id))

    assert bot.chat(CHAT) == []


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("react", {"messageId": "1", "emoji": "🦞"}, "no such reaction"),
        ("delete", {"messageId": "99", "emoji": ""}, "no such message in that chat"),
        ("pin", {"messageId": "the last"}, "There is no message 'the last'"),
    ],
)
async def test_an_operation_that_telegram_refuses_has_a_clear_error(
    bot: TelegramBot, adapter: TelegramAdapter, name: str, args: dict[str, str], words: str
) -> None:
    bot.say("hi", chat=CHAT)
    with pytest.raises(PlatformRefused, match=words):
        await adapter.operate(operation(name, **args))


async def test_reading_the_history_is_unsupported(adapter: TelegramAdapter) -> None:
    with pytest.raises(Unsupported, match="no history"):
        await adapter.operate(operation("read", limit=5))


async def test_commands_are_shown_in_the_menu(bot: TelegramBot, adapter: TelegramAdapter) -> None:
    await adapter.set_commands([("status", "What runs"), ("new", "x" * 300)])

    assert [one["command"] for one in bot.commands()] == ["status", "new"]


# Incoming messages.


def after(found: PollResult) -> dict[str, str]:
    """Return the cursors with which the next poll begins."""
    return {source: cursor for source, cursor in found.cursors.items() if cursor is not None}


async def test_a_poll_acknowledges_only_updates_before_its_cursor(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.say("one", chat=CHAT)
    first = await adapter.poll({})
    bot.say("two", chat=CHAT)
    again = await adapter.poll({})
    later = await adapter.poll(after(first))

    assert [one.text for one in first.incoming] == ["one"]
    assert [one.text for one in again.incoming] == ["one", "two"]
    assert [one.text for one in later.incoming] == ["two"]
    assert len(bot.pending()) == 1


async def test_an_album_that_arrives_in_parts_is_one_message(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    def part(name: str, text: str = "") -> None:
        bot.say(text, chat=CHAT, files=[file(name, b"x", kind="photo")], media_group_id="g")

    part("a.png", "Look at these")
    bot.fault("getUpdates", "mute")
    polling = asyncio.create_task(adapter.poll({}))
    await eventually(bot.held)  # it has the first part
    part("b.png")
    bot.release()
    found = await polling
    album = Incoming.joined(found.incoming)
    part("c.png")

    assert [one.continues for one in found.incoming] == [None, "\n"]
    assert (album.text, len(album.files)) == ("Look at these", 2)
    (late,) = (await adapter.poll(after(found))).incoming
    assert len(late.files) == 1


async def test_an_album_keeps_its_place_among_the_messages(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.say("Hello", chat=CHAT)
    for name in ("a.png", "b.png"):
        bot.say("", chat=CHAT, files=[file(name, b"x", kind="photo")], media_group_id="g")
    bot.say("What is that?", chat=CHAT)
    found = (await adapter.poll({})).incoming

    assert [(one.text, len(one.files), one.continues) for one in found] == [
        ("Hello", 0, None),
        ("", 1, None),
        ("", 1, "\n"),
        ("What is that?", 0, None),
    ]


async def test_a_text_that_the_app_has_split_is_one_message(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    """An app cuts at a blank if there is one shortly before the limit, and else at the limit."""
    pieces = ["a" * 4096, "b" * 4050, "c"]
    bot.say(pieces[0], chat=CHAT)
    bot.fault("getUpdates", "mute")
    polling = asyncio.create_task(adapter.poll({}))
    await eventually(bot.held)
    for piece in pieces[1:]:
        bot.say(piece, chat=CHAT)
    bot.release()
    found = (await polling).incoming

    assert Incoming.joined(found).text == "a" * 4096 + "b" * 4050 + "\n" + "c"
    assert all(one.continues is not None for one in found[1:])


async def test_long_texts_of_one_person_delay_the_messages_of_others_for_a_limited_time(
    bot: TelegramBot, adapter: TelegramAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them may continue, and Telegram returns up to a hundred updates."""
    monkeypatch.setattr("remoteclaw.channels.telegram.adapter.MAX_ACT_S", 0.5)
    bot.say("hello", chat=GROUP)
    bot.say("a" * 4096, chat=CHAT)
    polling = asyncio.create_task(adapter.poll({}))
    while not polling.done() and len(bot.pending()) < 100:
        bot.say("a" * 4096, chat=CHAT)
        await asyncio.sleep(0.05)
    found = await polling

    assert found.incoming[0].text == "hello"
    assert len(bot.pending()) < 100


async def test_forwarded_messages_and_their_comment_are_one_message(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    origin = {"type": "hidden_user", "sender_user_name": "Eve", "date": 1}
    bot.say("what does she mean?", chat=CHAT)
    for text in ("first", "second"):
        bot.say(text, chat=CHAT, forward_origin=origin)
    bot.say("nothing to do with it", chat=CHAT)
    found = (await adapter.poll({})).incoming

    assert [one.continues for one in found] == [None, "\n\n", "\n\n", None]
    assert Incoming.joined(found[:3]).text == (
        "what does she mean?\n\n(Forwarded from Eve:)\nfirst\n\n(Forwarded from Eve:)\nsecond"
    )
    assert [one.is_forwarded for one in (Incoming.joined(found[:3]), found[3])] == [True, False]


async def test_messages_of_others_and_of_other_times_are_not_joined(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    origin = {"type": "hidden_user", "sender_user_name": "Eve", "date": 1}
    group, long = -CHAT, "a" * 4096
    for by in (1, 2):
        bot.say(long, chat=group, by=by)
    bot.say("forwarded by 3", chat=group, by=3, forward_origin=origin)
    bot.say(long, chat=CHAT, date=1_000_000)
    bot.say("a minute later", chat=CHAT, date=1_000_060)
    bot.say("/status", chat=CHAT, date=1_000_060)
    bot.say("not its argument", chat=CHAT, forward_origin=origin, date=1_000_060)
    found = (await adapter.poll({})).incoming

    assert len(found) == 7
    assert all(one.continues is None for one in found)


async def test_a_location_that_moves_is_reported_once(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    where = {"latitude": 48.1, "longitude": 11.5, "live_period": 900}
    said = bot.say("", chat=CHAT, location=where)
    for step in range(3):
        bot.say("", chat=CHAT, edits=said, location=where | {"latitude": 48.2 + step})
    (place,) = (await adapter.poll({})).incoming

    assert place.text == "(a place: 48.1, 11.5)"


async def test_an_update_of_an_unknown_shape_blocks_no_other(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.tell({"brain_wave": {"message_id": 1, "text": "hm"}})
    bot.tell({"message": {"message_id": {"new": 1}}})
    bot.tell({"message": 5})
    bot.say("still here", chat=CHAT)
    batch = await adapter.poll({})

    assert [one.left_out for one in batch.incoming] == [
        "an update of the kind brain_wave",
        "",
        "",
        "",
    ]
    _, *unreadable, readable = batch.incoming
    assert all("shape" in one.problem and not one.is_for_us for one in unreadable)
    assert (readable.text, readable.problem) == ("still here", "")
    await adapter.poll({UPDATES: str(int(after(batch)[UPDATES]) - 1)})
    assert len(bot.pending()) == 1


# Errors.


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
async def test_each_telegram_error_maps_to_its_exception(
    bot: TelegramBot,
    adapter: TelegramAdapter,
    fault: dict[str, Any],
    meant: type[Exception],
    words: str,
) -> None:
    bot.fault("sendMessage", **fault)
    with pytest.raises(meant, match=words) as raised:
        await send(adapter, reply("hi"))

    assert type(raised.value).__mro__[:2].count(meant) == 1
    assert bot.token not in str(raised.value)
    if isinstance(raised.value, PlatformBusy):
        assert raised.value.after_s == 17
    assert bot.texts(CHAT) == (["hi"] if fault["kind"] == "lost" else [])


async def test_an_unreachable_telegram_server_is_reported_as_away(bot: TelegramBot) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    adapter = create_adapter(bot, api_url=f"http://127.0.0.1:{port}")
    with pytest.raises(PlatformAway, match="can't be reached"):
        await send(adapter, reply("hi"))
    await adapter.aclose()


async def test_a_poll_without_a_response_loses_no_message(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.say("hi", chat=CHAT)
    bot.fault("getUpdates", "lost")
    with pytest.raises(PlatformAway):
        await adapter.poll({})

    assert [one.text for one in (await adapter.poll({})).incoming] == ["hi"]


async def test_replies_to_a_moved_group_go_to_its_supergroup(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.say("hi", chat=-7, by=CHAT)
    bot.move(-7, to=-100_777)
    await send(adapter, reply("one", chat=-7))
    await send(adapter, reply("two", chat=-7))

    assert bot.texts(-100_777) == ["one", "two"]
    assert [call["chat_id"] for call in bot.calls("sendMessage")] == ["-7", "-100777", "-100777"]
    found = (await adapter.poll({})).incoming
    learned, _, announced = (one for one in found if not one.left_out)
    assert (
        (learned.chat, learned.moved_to)
        == (announced.chat, announced.moved_to)
        == ("-7", "-100777")
    )
    found = (await adapter.poll({})).incoming
    assert len([one for one in found if not one.left_out]) == 2


async def test_a_revoked_token_is_reported_when_the_adapter_connects(bot: TelegramBot) -> None:
    bot.set(is_revoked=True)
    adapter = create_adapter(bot)
    with pytest.raises(AccountRefused, match="copy it again from @BotFather"):
        await adapter.connect()
    await adapter.aclose()


async def test_a_configured_webhook_is_reported_when_the_adapter_connects(bot: TelegramBot) -> None:
    bot.set(webhook="https://example.org/hook")
    adapter = create_adapter(bot)
    with pytest.raises(
        AccountRefused, match=f"A webhook is set for @{bot.username}.*deleteWebhook"
    ):
        await adapter.connect()
    with pytest.raises(AccountRefused, match="A webhook is set"):
        await adapter.poll({})
    await adapter.aclose()


async def test_another_program_with_the_same_token_is_reported(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    words = "Conflict: terminated by other getUpdates request; make sure that only one bot"
    bot.fault("getUpdates", "refused", code=409, description=words)
    with pytest.raises(AccountRefused, match="Another program reads"):
        await adapter.poll({})


async def test_no_log_has_the_token_or_a_text(
    bot: TelegramBot, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        adapter = create_adapter(bot)
        await adapter.connect()
        await send(adapter, reply("the secret words"))
        bot.fault("sendMessage", "page", code=502)
        with pytest.raises(PlatformAway):
            await send(adapter, reply("the secret words"))
        await adapter.aclose()

    assert bot.token not in caplog.text
    assert "secret words" not in caplog.text


def test_the_telegram_library_is_loaded_without_unused_modules() -> None:
    code = """
import sys, remoteclaw.channels.telegram.api
print({"rich.console", "cryptography.hazmat.bindings._rust"} & {*sys.modules})
import cryptography.hazmat.primitives.serialization  # other code can still import it
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout == "set()\n"


async def test_a_card_has_buttons_below_its_last_message_until_it_is_closed(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    choices = (("once", "Allow once"), ("deny", "Deny"))
    long = reply(f"```\n{'😀' * 3000}\n```", card=Card("abcdefgh", choices))
    done = await send(adapter, long)

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
