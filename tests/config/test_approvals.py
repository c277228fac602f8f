"""The people who may answer requests of agents, and the chats that show the requests."""

import pytest

from remoteclaw.config.approvals import Approvals, approvals_of, can_be_asked, may_answer
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import Config
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
[approvals]
who = "sender"
hold_s = 60
chat = "telegram:7"
[agents.main]
[agents.other.approvals]
who = ["telegram:9"]
{BOTS}
[channels.telegram.approvals]
chat = "telegram/work:-5"
thread = "3"
[channels.telegram.groups."-1".approvals]
who = []
hold_s = 30
[channels.telegram.groups."-2".approvals]
chat = ""
[channels.telegram.groups."*".approvals]
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

    approvals = {
        place: approvals_of(config, place)
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

    assert [*approvals.values()] == [
        Approvals(who="sender", hold_s=60, chat=owner),
        Approvals(who="sender", hold_s=60, chat=topic),
        Approvals(who=("telegram:9",), hold_s=60, chat=topic),
        Approvals(who="sender", hold_s=60, chat=topic),
        Approvals(who=(), hold_s=30, chat=topic),
        Approvals(who="sender", hold_s=60, chat=None),
        Approvals(who=("telegram:8",), hold_s=60, chat=topic),
    ]
    people = ("telegram:8",)
    asked = [can_be_asked(config, place, people) for place in approvals]
    assert asked == [True] * 4 + [False, True, True]
    assert approvals_of(Config(), session("8")) == Approvals()


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
    config = load(home, f'[approvals]\nchat = "telegram:7"\n{BOTS}')

    assert approvals_of(config, session("7", user="7")).chat is None
    assert approvals_of(config, session("8")).chat == ChatPlace("telegram", "default", "7")


@for_each(
    ("text", "why"),
    [
        ("[approvals]\nchat = '7'", "chat is not valid: is '7': write CHANNEL:CHAT or CHANNEL/"),
        ("[approvals]\nchat = 'telegram/:7'", "write CHANNEL:CHAT or CHANNEL/ACCOUNT:CHAT"),
        ("[approvals]\nchat = 'Telegram:7'", "has the channel 'Telegram'"),
        ("[approvals]\nthread = '7'", "has a thread and no chat: name the chat of the thread"),
        (
            "[approvals]\nchat = 'telegram:7'",
            'approvals.chat is "telegram:7", but nothing is sent there: there is no account '
            "telegram/default (there are none). Name a chat of an account, or add it with "
            "`remoteclaw channel add telegram`.",
        ),
        (
            f"[agents.main.approvals]\nchat = 'telegram/wrk:7'{BOTS}",
            'agents.main.approvals.chat is "telegram/wrk:7", but nothing is sent there: there is '
            "no account telegram/wrk (there are telegram/default, telegram/work).",
        ),
        (
            f"[agents.main]{BOTS}[channels.telegram.groups.'-1'.approvals]\nchat = 'telegram:ops'",
            'channels.telegram.groups."-1".approvals.chat is "telegram:ops", which is no chat '
            "there: ids have the form",
        ),
        (f"[agents.main]{BOTS}[channels.telegram.approvals]\nchat = 'test:7'", "account test/def"),
    ],
)
def test_an_approvals_chat_without_an_account_is_refused(home: Home, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(home, text)
    assert why in str(refusal.value)
