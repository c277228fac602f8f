"""Automatic ends of stale conversations: daily or after idle time, by channel and kind of chat."""

import time
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.bridge.freshness import kind_of, staleness
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import ResetConfig
from remoteclaw.errors import ConfigError
from remoteclaw.fleet import keys
from remoteclaw.messages import ChatKind, SessionKey
from remoteclaw.protocols import Conversation
from remoteclaw.session.notices import CONTEXT_LOST, RESET, SECOND_TRY
from tests.support.conversations import (
    IDLE_2_H,
    answered,
    answers,
    configure,
    drain,
    dying,
    ended,
    passed,
    prompts,
    talk,
)
from tests.support.rows import for_each
from tests.support.stack import Stack, message, said

HOUR_MS = 3_600_000
#: Conversations end at midnight, once their turn is over.
AT_MIDNIGHT = {"sessions": {"reset": {"daily": "00:00", "timezone": "UTC"}}}


# -- without I/O ------------------------------------------------------------------------------


def at(text: str) -> int:
    """Parse a local time and its zone; a `!` selects the second of two equal local times."""
    clock, zone = text.removesuffix("!").rsplit(" ", 1)
    moment = datetime.fromisoformat(clock).replace(
        tzinfo=ZoneInfo(zone), fold=int(text.endswith("!"))
    )
    return int(moment.timestamp() * 1000)


@for_each(
    ("daily", "last", "now", "is_stale"),
    [
        ("04:00", "2026-06-01 23:00 Europe/Berlin", "2026-06-02 03:59 Europe/Berlin", False),
        ("04:00", "2026-06-01 23:00 Europe/Berlin", "2026-06-02 04:00 Europe/Berlin", True),
        ("04:00", "2026-06-02 04:00 Europe/Berlin", "2026-06-02 23:00 Europe/Berlin", False),
        ("04:00", "2026-05-01 12:00 Europe/Berlin", "2026-06-02 03:00 Europe/Berlin", True),
        # The last turn ended after the reset time, and the message arrived during it.
        ("04:00", "2026-06-02 04:10 Europe/Berlin", "2026-06-02 04:05 Europe/Berlin", False),
        # In another time zone, it is another day.
        ("00:00", "2026-06-02 00:30 Asia/Tokyo", "2026-06-01 23:00 Europe/Berlin", False),
        # Clocks go forward from 02:00 to 03:00: 02:30 does not exist, so 03:30 counts.
        ("02:30", "2026-03-29 01:59 Europe/Berlin", "2026-03-29 03:29 Europe/Berlin", False),
        ("02:30", "2026-03-29 01:59 Europe/Berlin", "2026-03-29 03:30 Europe/Berlin", True),
        # Clocks go back from 03:00 to 02:00: 02:30 exists twice, and counts once.
        ("02:30", "2026-10-25 02:29 Europe/Berlin", "2026-10-25 02:30 Europe/Berlin", True),
        ("02:30", "2026-10-25 02:31 Europe/Berlin", "2026-10-25 02:31 Europe/Berlin!", False),
        # Clocks go back at midnight: the old day is repeated for an hour.
        ("00:00", "2026-10-31 23:30 America/Havana", "2026-11-01 00:30 America/Havana", True),
        ("00:00", "2026-11-01 00:30 America/Havana", "2026-11-01 00:30 America/Havana!", False),
    ],
)
def test_a_conversation_is_stale_after_the_daily_reset_time(
    daily: str, last: str, now: str, is_stale: bool
) -> None:
    zone = now.removesuffix("!").rsplit(" ", 1)[1]
    policy = ResetConfig(daily=daily, timezone=zone)

    reason = staleness(policy, last_ms=at(last), now_ms=at(now))

    assert reason == ("daily" if is_stale else None)


@for_each(
    ("settings", "minutes", "reason"),
    [
        ({}, 10_000_000, None),
        ({"idle_minutes": 120}, 120, None),
        ({"idle_minutes": 120}, 121, "idle"),
        ({"daily": "13:30", "idle_minutes": 120, "timezone": "UTC"}, 60, None),
        ({"daily": "13:30", "idle_minutes": 120, "timezone": "UTC"}, 100, "daily"),
        ({"daily": "04:00", "idle_minutes": 120, "timezone": "UTC"}, 180, "idle"),
        ({"daily": "04:00", "idle_minutes": 1, "timezone": "UTC"}, -10_000, None),
    ],
)
def test_a_conversation_is_stale_after_its_idle_minutes(
    settings: dict[str, Any], minutes: int, reason: str | None
) -> None:
    policy, last_ms = ResetConfig(**settings), at("2026-06-01 12:00 UTC")

    assert staleness(policy, last_ms=last_ms, now_ms=last_ms + minutes * 60_000) == reason


def test_the_default_time_zone_is_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    zone = "America/New_York"
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    policy = ResetConfig(daily="04:00")
    before, after = at(f"2026-03-08 03:59 {zone}"), at(f"2026-03-08 04:00 {zone}")

    try:
        assert staleness(policy, last_ms=before, now_ms=before) is None
        assert staleness(policy, last_ms=before, now_ms=after) == "daily"
    finally:
        monkeypatch.undo()
        time.tzset()


ZONES = ("Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Beirut")


@given(
    now=st.integers(0, 4_000_000_000_000),
    passed=st.integers(0, 3 * 24 * HOUR_MS),
    daily=st.times().map(lambda moment: f"{moment:%H:%M}"),
    zone=st.sampled_from(ZONES),
)
def test_a_conversation_becomes_stale_once_per_day(
    now: int, passed: int, daily: str, zone: str
) -> None:
    """This holds at any moment, even when clocks change."""
    policy = ResetConfig(daily=daily, timezone=zone)

    assert staleness(policy, last_ms=now, now_ms=now) is None
    is_stale = staleness(policy, last_ms=now, now_ms=now + passed)
    if passed < 22 * HOUR_MS and is_stale:
        assert staleness(policy, last_ms=now + passed, now_ms=now + 22 * HOUR_MS) is None
    if passed > 50 * HOUR_MS:
        assert is_stale == "daily"


@pytest.mark.parametrize(
    ("chat", "thread", "kind"),
    [
        ("alice", None, "direct"),
        ("general", None, "group"),
        ("general", "t", "thread"),
        ("alice", "t", "thread"),
    ],
)
def test_the_kind_of_a_chat_is_derived_from_its_session_key(
    chat: str, thread: str | None, kind: str
) -> None:
    assert kind_of(SessionKey("main", "test", "default", chat, "alice", thread)) == kind


@pytest.mark.parametrize("kind", ["direct", "group", "thread", None])
def test_the_chat_kind_of_a_message_takes_precedence_over_its_ids(kind: ChatKind | None) -> None:
    """A direct chat may have an id that differs from its user's, which looks like a group."""
    messages = [message("a tool's"), message("a person's", chat_kind=kind)]

    assert kind_of(SessionKey.of(messages[0], agent="main"), messages) == (kind or "group")


async def test_a_direct_chat_with_its_own_id_uses_the_reset_settings_of_direct_chats(
    stack: Stack,
) -> None:
    configure(stack, sessions={"reset_by_kind": {"direct": {"idle_minutes": 120}}})
    first = await answered(stack, "one", chat_kind="direct")
    await passed(stack, first, hours=3)
    second = await answered(stack, "two", chat_kind="direct")

    assert (await answers(stack, second))[0].startswith(RESET)


# -- configuration ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "kind", "minutes"),
    [("other", "direct", 1), ("other", "group", 2), ("test", "group", 3), ("test", "direct", 3)],
)
def test_the_most_specific_reset_table_applies(
    home: Home, channel: str, kind: ChatKind, minutes: int
) -> None:
    home.config_file.write_text(
        "[sessions.reset]\nidle_minutes = 1\n"
        "[sessions.reset_by_kind.group]\nidle_minutes = 2\n"
        "[channels.test.reset]\nidle_minutes = 3\n"
    )

    assert load_config(home.config_file, {}).reset_of(channel, kind).idle_minutes == minutes


def test_reset_tables_are_not_merged_and_an_empty_one_disables_resets(home: Home) -> None:
    home.config_file.write_text(
        '[sessions.reset]\ndaily = "04:00"\n'
        "[sessions.reset_by_kind.group]\nidle_minutes = 2\n"
        "[channels.web.reset]\n"
    )
    config = load_config(home.config_file, {})

    assert config.reset_of("test", "group") == ResetConfig(idle_minutes=2)
    assert config.reset_of("web", "direct") == ResetConfig()
    assert config.reset_of("test", "thread") == ResetConfig(daily="04:00")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[sessions.reset]\ndaily = '4:00'", "must be a time of day such as 04:00, not '4:00'"),
        ("[sessions.reset]\nidle_minutes = 0", "idle_minutes is not valid"),
        ("[sessions.reset]\ntimezone = 'Europe'", "must be a time zone such as Europe/Berlin"),
        ("[sessions.reset]\nidle_minute = 1", "did you mean 'idle_minutes'?"),
        ("[sessions.reset_by_kind.groups]\ndaily = '04:00'", "'direct', 'group' or 'thread'"),
    ],
)
def test_an_invalid_reset_setting_is_reported(home: Home, text: str, reason: str) -> None:
    home.config_file.write_text(text)

    with pytest.raises(ConfigError) as error:
        load_config(home.config_file, {})

    assert reason in str(error.value)


# -- conversations ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sections", "hours"),
    [
        (IDLE_2_H, 2.1),
        (AT_MIDNIGHT, 24.1),
        ({"sessions": {"reset_by_kind": {"group": {"idle_minutes": 120}}}}, 2.1),
    ],
    ids=["idle", "daily", "by kind"],
)
async def test_a_stale_conversation_ends_with_a_notice(
    agent: Stack, sections: dict[str, Any], hours: float
) -> None:
    configure(agent, **sections)
    first = await answered(agent, "one")
    assert await talk(agent, "two") == ["heard two, knew one"]
    await passed(agent, first, hours)

    assert await talk(agent, "three", "four") == [
        f"{RESET}\n\nheard three, knew -",
        "heard four, knew three",
    ]
    assert await ended(agent, first) == ["one"]


async def test_idle_time_is_measured_from_the_answer(agent: Stack) -> None:
    """An agent may work for hours, and a person who then replies continues the conversation."""
    configure(agent, **IDLE_2_H)
    first = await answered(agent, "one")
    before: Any = await agent.fleet.scripts.client.hget(
        keys.state(first.session.sid), "last_heard_ms"
    )
    await answered(agent, "two")
    after: Any = await agent.fleet.scripts.client.hget(
        keys.state(first.session.sid), "last_heard_ms"
    )

    outcome = await agent.fleet.outcomes.read(first.session.sid, first.entry_id)
    assert outcome is not None
    assert int(before) == outcome.steps[-1].at_ms
    assert int(after) > int(before)


@pytest.mark.parametrize("origin", ["cron", "session"])
async def test_entries_of_cron_jobs_and_sessions_neither_extend_nor_end_a_conversation(
    agent: Stack, origin: Any
) -> None:
    configure(agent, **IDLE_2_H)
    first = await answered(agent, "one")
    await passed(agent, first, 3)
    entry_id = await agent.write(first.session, "tick", origin)
    await drain(agent, first)
    ticked = await agent.fleet.outcomes.read(first.session.sid, entry_id)

    assert ticked is not None
    assert said(ticked) == "heard tick, knew one"
    assert await talk(agent, "two") == [f"{RESET}\n\nheard two, knew -"]


async def test_a_stopped_message_does_not_extend_a_conversation(agent: Stack) -> None:
    configure(agent, **IDLE_2_H)
    first = await answered(agent, "one")
    await passed(agent, first, 3)
    stopped = await agent.append("stopped")
    await agent.fleet.sessions.stop(stopped.session.sid)
    await drain(agent, stopped)

    assert await talk(agent, "two") == [f"{RESET}\n\nheard two, knew -"]


async def test_a_new_session_has_no_conversation_to_end(agent: Stack) -> None:
    """Also directly after a reset; and the new agent gets the earlier messages of its thread."""
    configure(agent, **AT_MIDNIGHT)

    first = await answered(agent, "one", thread_id="t", thread_context="an earlier message")

    assert said(await agent.outcome(first)) == "heard one, knew -"
    assert "an earlier message" in prompts(agent)
    await answered(agent, "/new", thread_id="t")
    await passed(agent, first, 48)
    assert await talk(agent, "two", thread_id="t") == ["heard two, knew -"]


async def test_a_copied_conversation_is_not_stale_at_its_start(agent: Stack) -> None:
    configure(agent, **IDLE_2_H)
    first = await answered(agent, "one")
    view = await agent.fleet.sessions.view(first.session.sid)
    assert view is not None
    await agent.fleet.sessions.fork(
        view, replace(first.session, thread="t"), [], view.limits.of_fork
    )

    (reply,) = await talk(agent, "two", thread_id="t")

    assert reply.startswith(CONTEXT_LOST)


async def test_the_record_of_a_session_whose_state_has_expired_becomes_stale_too(
    agent: Stack,
) -> None:
    configure(agent, **IDLE_2_H)
    first = await answered(agent, "one")
    client, sid = agent.fleet.scripts.client, first.session.sid
    await client.delete(keys.state(sid), keys.session_map(sid))

    assert await talk(agent, "two") == [f"{RESET}\n\nheard two, knew -"]
    assert "conversation_before" not in prompts(agent)


@pytest.mark.parametrize("phase", ["", "output"])
async def test_a_retry_does_not_end_a_second_conversation(agent: Stack, phase: str) -> None:
    configure(agent, **IDLE_2_H)
    first = await answered(agent, "one")
    await passed(agent, first, 3)
    two = await agent.append("two")
    async with dying(agent, two) as lease:
        await lease.reset(two.entry_id, "idle", keep_ms=60_000, keep=10)
        if phase:
            name = f"main|demo|{agent.home.path}/workspaces/main"
            await lease.remember(name, Conversation("of-the-new-conversation"))
            await lease.turns.note_phase(phase)

    await drain(agent, two)

    notice = [SECOND_TRY] if phase else []
    assert await answers(agent, two) == ["\n\n".join([RESET, *notice, "heard two, knew -"])]
    assert await ended(agent, first) == ["one"]
    view = await agent.fleet.sessions.view(lease.sid)
    assert view is not None
    if phase:
        assert [*view.session_ids.values()] == ["of-the-new-conversation"]
