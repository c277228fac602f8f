"""The test server of Telegram: it refuses what the real one refuses, and polls like it."""

import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import orjson
import pytest

from tests.support.telegram import TelegramBot, file
from tests.support.waiting import eventually_sync

CHAT = 7


def ask(bot: TelegramBot, method: str, **params: Any) -> Any:
    """Call the Bot API with any parameters; return its response, error or not."""
    form = {
        key: value if isinstance(value, str) else orjson.dumps(value).decode()
        for key, value in params.items()
    }
    address = f"{bot.api_url}/bot{bot.token}/{method}"
    try:
        with urllib.request.urlopen(address, urllib.parse.urlencode(form).encode()) as answer:
            return orjson.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return orjson.loads(refused.read())


def error(bot: TelegramBot, method: str, **params: Any) -> str:
    """Return the code and description of an error."""
    answer = ask(bot, method, **params)
    assert not answer["ok"]
    return f"{answer['error_code']} {answer['description']}"


@pytest.fixture
def bot(bot: TelegramBot) -> TelegramBot:
    """A bot that a person has written to."""
    bot.say("hi", chat=CHAT)
    return bot


@pytest.mark.parametrize(
    "more",
    [
        {"parse_modus": "HTML"},
        {"entities": [{"type": "bold", "offset": 0, "length": 1, "colour": "red"}]},
        {"reply_parameters": {"message_id": 1, "is_loud": True}},
        {"link_preview_options": {"is_disabled": True, "size": 1}},
    ],
)
def test_an_unknown_parameter_is_refused_at_any_depth(
    bot: TelegramBot, more: dict[str, Any]
) -> None:
    assert error(bot, "sendMessage", chat_id=CHAT, text="hello", **more).startswith("400 ")
    assert bot.texts(CHAT) == []


@pytest.mark.parametrize("missing", ["chat_id", "text"])
def test_a_missing_parameter_is_refused(bot: TelegramBot, missing: str) -> None:
    params = {"chat_id": CHAT, "text": "hello"}
    del params[missing]

    assert error(bot, "sendMessage", **params).startswith(f"400 Bad Request: {missing}")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"text": "x" * 4097}, "message is too long"),
        ({"text": "😀" * 2049}, "message is too long"),
        ({"text": " \n"}, "message text is empty"),
        ({"text": "😀", "entities": [{"type": "bold", "offset": 1, "length": 1}]}, "middle"),
        ({"text": "ab", "entities": [{"type": "bold", "offset": 1, "length": 2}]}, "outside"),
        ({"text": "ab", "entities": [{"type": "bold", "offset": 0, "length": 1}] * 101}, "101"),
        (
            {
                "text": "a",
                "entities": [{"type": "text_link", "offset": 0, "length": 1, "url": "x"}],
            },
            "no usable address",
        ),
        ({"text": "a", "chat_id": 8}, "chat not found"),
        ({"text": "a", "message_thread_id": 5}, "message thread not found"),
        ({"text": "a", "reply_parameters": {"message_id": 99}}, "to be replied not found"),
        ({"text": "a", "message_effect_id": "1"}, "EFFECT_ID_INVALID"),
    ],
)
def test_the_test_server_refuses_what_telegram_refuses(
    bot: TelegramBot, params: dict[str, Any], words: str
) -> None:
    assert words in error(bot, "sendMessage", **{"chat_id": CHAT, **params})


def test_an_unknown_method_and_an_invalid_token_have_different_errors(bot: TelegramBot) -> None:
    assert error(bot, "sendMassage", chat_id=CHAT).startswith("404 ")
    bot.set(is_revoked=True)
    assert error(bot, "getMe") == "401 Unauthorized"
    bot.token = "none"
    assert error(bot, "getMe") == "404 Not Found"


def test_an_update_stays_until_a_later_one_is_requested(bot: TelegramBot) -> None:
    bot.say("again", chat=CHAT)
    first, second = (one["update_id"] for one in ask(bot, "getUpdates")["result"])

    assert len(ask(bot, "getUpdates", offset=first)["result"]) == 2
    assert [one["update_id"] for one in ask(bot, "getUpdates", offset=second)["result"]] == [second]
    assert bot.pending() != []
    assert ask(bot, "getUpdates", offset=second + 1)["result"] == []
    assert bot.pending() == []


def test_a_poll_waits_for_a_message_and_ends_an_older_poll(bot: TelegramBot) -> None:
    last = ask(bot, "getUpdates")["result"][-1]["update_id"]
    answers: dict[str, Any] = {}

    def poll(name: str) -> None:
        answers[name] = ask(bot, "getUpdates", offset=last + 1, timeout=50)

    older, newer = (threading.Thread(target=poll, args=(name,)) for name in ("older", "newer"))
    older.start()
    eventually_sync(bot.is_polled)
    newer.start()
    older.join()
    assert answers["older"]["error_code"] == 409
    bot.say("there", chat=CHAT)
    newer.join()
    assert answers["newer"]["result"][0]["message"]["text"] == "there"


def test_only_allowed_updates_are_delivered(bot: TelegramBot) -> None:
    bot.react("👍", chat=CHAT, message=1)
    assert [*map(sorted, bot.pending())] == [
        ["message", "update_id"],
        ["edited_message", "update_id"],
    ]
    ask(bot, "getUpdates", allowed_updates=["message_reaction"])
    bot.react("👍", chat=CHAT, message=1)
    bot.say("unwanted", chat=CHAT)
    assert ["message_reaction" in one for one in bot.pending()] == [False, False, True]


def test_a_file_is_fetched_in_two_steps_up_to_20_mb(bot: TelegramBot) -> None:
    bot.say("two", chat=CHAT, files=[file("a.txt", b"content")])
    bot.say("large", chat=CHAT, files=[file("b.bin", size=21 * 2**20)])
    small, large = (one["document"]["file_id"] for one in bot.chat(CHAT)[1:])

    path = ask(bot, "getFile", file_id=small)["result"]["file_path"]
    with urllib.request.urlopen(f"{bot.api_url}/file/bot{bot.token}/{path}") as answer:
        assert answer.read() == b"content"
    assert "file is too big" in error(bot, "getFile", file_id=large)
