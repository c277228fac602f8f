"""The people who may answer requests of agents, and the chats that show the requests."""

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import Config
from remoteclaw.config.requests import RequestSettings, can_be_asked, may_answer, request_settings
from remoteclaw.errors import ConfigError
from remoteclaw.messages import ChatPlace, SessionKey
from tests.support.rows import for_each

BOTS = """
[channels.telegram]
token = "1:x"
owners = ["7"]
[channels.telegram.accounts.work]
token = "2:x"
"""
TABLES = f"""
[requests]
who = "sender"
hold_s = 60
chat = "telegram:7"
[agents.main]
[agents.other.requests]
who = ["telegram:9"]
{BOTS}
[channels.telegram.requests]
chat = "telegram/work:-5"
thread = "3"
[channels.telegram.groups."-1".requests]
who = []
hold_s = 30
[channels.telegram.groups."-2".requests]
chat = ""
[channels.telegram.groups."*".requests]
who = ["telegram:8"]
"""


def load(home: Home, text: str) -> Config:
    home.config_file.write_text(text)
    return load_config(home.config_file, {})


def session(chat: str, *, agent: str = "main", user: str = "8", channel: str = "") -> SessionKey:
    return SessionKey(agent, channel or "telegram", "default", chat, user)


def test_the_narrowest_table_decides_each_setting(home: Home) -> None:
    config = load(home, TABLES)
    topic = ChatPlace("telegram", "work", "-5", "3")
    owner = ChatPlace("telegram", "default", "7")

    requests = {
        place: request_settings(config, place)
        for place in (
            session("ann", channel="test", user="ann"),
            session("8"),
            session("8", agent="other"),
            session("8", agent="gone"),
            session("-1"),
            session("-2"),
            session("-3", agent="other"),
        )
    }

    assert [*requests.values()] == [
        RequestSettings(who="sender", hold_s=60, chat=owner),
        RequestSettings(who="sender", hold_s=60, chat=topic),
        RequestSettings(who=("telegram:9",), hold_s=60, chat=topic),
        RequestSettings(who="sender", hold_s=60, chat=topic),
        RequestSettings(who=(), hold_s=30, chat=topic),
        RequestSettings(who="sender", hold_s=60, chat=None),
        RequestSettings(who=("telegram:8",), hold_s=60, chat=topic),
    ]
    people = ("telegram:8",)
    asked = [can_be_asked(config, place, people) for place in requests]
    assert asked == [True] * 4 + [False, True, True]
    assert request_settings(Config(), session("8")) == RequestSettings()


def test_without_settings_requests_can_be_answered_on_the_page() -> None:
    """A user of the page with the scope admin is an owner."""
    page, telegram = session("admin.ada", channel="web"), session("8")

    assert [can_be_asked(Config(), place, ()) for place in (page, telegram)] == [True, False]


def test_each_conversation_has_its_own_approvers(home: Home) -> None:
    config = load(home, TABLES)

    def may(place: SessionKey, who: str, *, is_owner: bool = False) -> bool:
        return may_answer(config, place, who, ["telegram:8"], is_owner=is_owner)

    assert may(session("8"), "telegram:8")
    assert not may(session("8"), "telegram:9")
    assert may(session("8", agent="other"), "telegram:9")
    assert not may(session("8", agent="other"), "telegram:8")
    assert not may(session("-1"), "telegram:7", is_owner=True)
    assert may(session("-1"), "operator")


def test_a_request_from_the_approvals_chat_stays_in_that_chat(home: Home) -> None:
    config = load(home, f'[requests]\nchat = "telegram:7"\n{BOTS}')

    assert request_settings(config, session("7", user="7")).chat is None
    assert request_settings(config, session("8")).chat == ChatPlace("telegram", "default", "7")


@for_each(
    ("text", "why"),
    [
        ("[requests]\nchat = '7'", "chat is not valid: is '7': write CHANNEL:CHAT or CHANNEL/"),
        ("[requests]\nchat = 'telegram/:7'", "write CHANNEL:CHAT or CHANNEL/ACCOUNT:CHAT"),
        ("[requests]\nchat = 'Telegram:7'", "has the channel 'Telegram'"),
        ("[requests]\nthread = '7'", "has a thread and no chat: name the chat of the thread"),
        (
            "[requests]\nchat = 'telegram:7'",
            'requests.chat is "telegram:7", but nothing is sent there: there is no account '
            "telegram/default (there are none). Name a chat of an account, or add it with "
            "`remoteclaw channel add telegram`.",
        ),
        (
            f"[agents.main.requests]\nchat = 'telegram/wrk:7'{BOTS}",
            'agents.main.requests.chat is "telegram/wrk:7", but nothing is sent there: there is '
            "no account telegram/wrk (there are telegram/default, telegram/work).",
        ),
        (
            f"[agents.main]{BOTS}[channels.telegram.groups.'-1'.requests]\nchat = 'telegram:ops'",
            'channels.telegram.groups."-1".requests.chat is "telegram:ops", which is no chat '
            "there: ids have the form",
        ),
        (f"[agents.main]{BOTS}[channels.telegram.requests]\nchat = 'test:7'", "account test/def"),
    ],
)
def test_an_approvals_chat_without_an_account_is_refused(home: Home, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(home, text)
    assert why in str(refusal.value)


def test_the_former_name_of_the_table_is_read(home: Home) -> None:
    former = TABLES.replace("requests]", "approvals]")

    assert load(home, former) == load(home, TABLES)
    with pytest.raises(ConfigError, match=r"former name `approvals`: keep `requests`"):
        load(home, "[approvals]\nhold_s = 60\n[requests]\nhold_s = 60\n")
