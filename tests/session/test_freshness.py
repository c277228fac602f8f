"""Conversations that end by themselves: each day, or after so long; by channel and kind of chat."""

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
#: All conversations that were not at work at midnight have ended.
AT_MIDNIGHT = {"sessions": {"reset": {"daily": "00:00", "timezone": "UTC"}}}


# -- without I/O ------------------------------------------------------------------------------


def at(text: str) -> int:
    """Return an instant: a local time with its zone, and a ! for the second of two."""
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
        # A turn that went on over the hour, and a message that came in its midst.
        ("04:00", "2026-06-02 04:10 Europe/Berlin", "2026-06-02 04:05 Europe/Berlin", False),
        # Elsewhere it is another day.
        ("00:00", "2026-06-02 00:30 Asia/Tokyo", "2026-06-01 23:00 Europe/Berlin", False),
        # Clocks go forward from 02:00 to 03:00: that time doesn't come, so it comes at 03:30.
        ("02:30", "2026-03-29 01:59 Europe/Berlin", "2026-03-29 03:29 Europe/Berlin", False),
        ("02:30", "2026-03-29 01:59 Europe/Berlin", "2026-03-29 03:30 Europe/Berlin", True),
        # Clocks go back from 03:00 to 02:00: it comes twice, and counts once.
        ("02:30", "2026-10-25 02:29 Europe/Berlin", "2026-10-25 02:30 Europe/Berlin", True),
        ("02:30", "2026-10-25 02:31 Europe/Berlin", "2026-10-25 02:31 Europe/Berlin!", False),
        # Over midnight: the old day comes again for an hour.
        ("00:00", "2026-10-31 23:30 America/Havana", "2026-11-01 00:30 America/Havana", True),
        ("00:00", "2026-11-01 00:30 America/Havana", "2026-11-01 00:30 America/Havana!", False),
    ],
)
def test_a_day_ends_at_its_time(daily: str, last: str, now: str, is_stale: bool) -> None:
    zone = now.removesuffix("!").rsplit(" ", 1)[1]
    policy = ResetConfig(daily=daily, timezone=zone)

    why = staleness(policy, last_ms=at(last), now_ms=at(now))

    assert why == ("daily" if is_stale else None)


@for_each(
    ("settings", "minutes", "why"),
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
def test_a_conversation_ends_after_so_long(
    settings: dict[str, Any], minutes: int, why: str | None
) -> None:
    policy, last_ms = ResetConfig(**settings), at("2026-06-01 12:00 UTC")

    assert staleness(policy, last_ms=last_ms, now_ms=last_ms + minutes * 60_000) == why


def test_the_zone_is_this_computer_s(monkeypatch: pytest.MonkeyPatch) -> None:
    zone = "America/New_York"
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    policy = ResetConfig(daily="04:00")
    before, behind = at(f"2026-03-08 03:59 {zone}"), at(f"2026-03-08 04:00 {zone}")

    try:
        assert staleness(policy, last_ms=before, now_ms=before) is None
        assert staleness(policy, last_ms=before, now_ms=behind) == "daily"
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
def test_each_day_ends_once(now: int, passed: int, daily: str, zone: str) -> None:
    """Of any moment, whatever the clocks do: with time, what is stale stays so."""
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
        ("console", None, "direct"),
        ("general", None, "group"),
        ("general", "t", "thread"),
        ("alice", "t", "thread"),
    ],
)
def test_kinds_of_chats(chat: str, thread: str | None, kind: str) -> None:
    assert kind_of(SessionKey("main", "console", "default", chat, "alice", thread)) == kind


@pytest.mark.parametrize("kind", ["direct", "group", "thread", None])
def test_a_message_knows_its_kind_of_chat_better_than_its_ids(kind: ChatKind | None) -> None:
    """A direct chat may have an id of its own."""
    messages = [message("a tool's"), message("a person's", chat_kind=kind)]

    assert kind_of(SessionKey.of(messages[0], agent="main"), messages) == (kind or "group")


async def test_a_direct_chat_with_an_id_of_its_own_ends_as_direct_ones_do(stack: Stack) -> None:
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
def test_the_most_specific_table_holds(
    home: Home, channel: str, kind: ChatKind, minutes: int
) -> None:
    home.config_file.write_text(
        "[sessions.reset]\nidle_minutes = 1\n"
        "[sessions.reset_by_kind.group]\nidle_minutes = 2\n"
        "[channels.test.reset]\nidle_minutes = 3\n"
    )

    assert load_config(home.config_file, {}).reset_of(channel, kind).idle_minutes == minutes


def test_a_table_holds_as_a_whole_and_an_empty_one_ends_nothing(home: Home) -> None:
    home.config_file.write_text(
        '[sessions.reset]\ndaily = "04:00"\n'
        "[sessions.reset_by_kind.group]\nidle_minutes = 2\n"
        "[channels.console.reset]\n"
    )
    config = load_config(home.config_file, {})

    assert config.reset_of("test", "group") == ResetConfig(idle_minutes=2)
    assert config.reset_of("console", "direct") == ResetConfig()
    assert config.reset_of("test", "thread") == ResetConfig(daily="04:00")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[sessions.reset]\ndaily = '4:00'", "must be a time of day such as 04:00, not '4:00'"),
        ("[sessions.reset]\nidle_minutes = 0", "idle_minutes is not valid"),
        ("[sessions.reset]\ntimezone = 'Europe'", "must be a time zone such as Europe/Berlin"),
        ("[sessions.reset]\nidle_minute = 1", "did you mean 'idle_minutes'?"),
        ("[sessions.reset_by_kind.groups]\ndaily = '04:00'", "'direct', 'group' or 'thread'"),
    ],
)
def test_a_mistake_in_the_configuration(home: Home, text: str, why: str) -> None:
    home.config_file.write_text(text)

    with pytest.raises(ConfigError) as error:
        load_config(home.config_file, {})

    assert why in str(error.value)


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
async def test_a_conversation_that_is_too_old_ends_and_it_is_said(
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


async def test_it_is_the_time_of_the_answer_that_counts(agent: Stack) -> None:
    """An agent may have worked for hours: whoever reads what it did and replies goes on."""
    configure(agent, **IDLE_2_H)
    first = await answered(agent, "one")
    before: Any = await agent.fleet.scripts.client.hget(
        keys.state(first.session.sid), "last_heard_ms"
    )
    await answered(agent, "two")
    heard: Any = await agent.fleet.scripts.client.hget(
        keys.state(first.session.sid), "last_heard_ms"
    )

    outcome = await agent.fleet.outcomes.read(first.session.sid, first.entry_id)
    assert outcome is not None
    assert int(before) == outcome.steps[-1].at_ms
    assert int(heard) > int(before)


@pytest.mark.parametrize("origin", ["cron", "session"])
async def test_what_nobody_said_neither_keeps_a_conversation_nor_ends_it(
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


async def test_what_nobody_heard_does_not_keep_a_conversation(agent: Stack) -> None:
    configure(agent, **IDLE_2_H)
    first = await answered(agent, "one")
    await passed(agent, first, 3)
    stopped = await agent.append("stopped")
    await agent.fleet.sessions.stop(stopped.session.sid)
    await drain(agent, stopped)

    assert await talk(agent, "two") == [f"{RESET}\n\nheard two, knew -"]


async def test_a_session_that_begins_has_nothing_to_end(agent: Stack) -> None:
    """Neither has one that began anew; and a thread's past is told to an agent that begins."""
    configure(agent, **AT_MIDNIGHT)

    first = await answered(agent, "one", thread_id="t", thread_context="what was said before")

    assert said(await agent.outcome(first)) == "heard one, knew -"
    assert "what was said before" in prompts(agent)
    await answered(agent, "/new", thread_id="t")
    await passed(agent, first, 48)
    assert await talk(agent, "two", thread_id="t") == ["heard two, knew -"]


async def test_a_copy_is_not_too_old_to_begin(agent: Stack) -> None:
    configure(agent, **IDLE_2_H)
    first = await answered(agent, "one")
    view = await agent.fleet.sessions.view(first.session.sid)
    assert view is not None
    await agent.fleet.sessions.fork(view, replace(first.session, thread="t"), [])

    (reply,) = await talk(agent, "two", thread_id="t")

    assert reply.startswith(CONTEXT_LOST)


async def test_what_is_recorded_of_a_session_that_was_idle_for_weeks_ends_too(
    agent: Stack,
) -> None:
    configure(agent, **IDLE_2_H)
    first = await answered(agent, "one")
    client, sid = agent.fleet.scripts.client, first.session.sid
    await client.delete(keys.state(sid), keys.session_map(sid))

    assert await talk(agent, "two") == [f"{RESET}\n\nheard two, knew -"]
    assert "conversation_before" not in prompts(agent)


@pytest.mark.parametrize("phase", ["", "output"])
async def test_another_attempt_ends_nothing_more(agent: Stack, phase: str) -> None:
    configure(agent, **IDLE_2_H)
    first = await answered(agent, "one")
    await passed(agent, first, 3)
    two = await agent.append("two")
    async with dying(agent, two) as lease:
        await lease.reset(two.entry_id, "idle", keep_ms=60_000, keep=10)
        if phase:
            name = f"demo|{agent.home.path}/workspaces/main"
            await lease.remember(name, "of-the-new-conversation")
            await lease.turns.note_phase(phase)

    await drain(agent, two)

    again = [SECOND_TRY] if phase else []
    assert await answers(agent, two) == ["\n\n".join([RESET, *again, "heard two, knew -"])]
    assert await ended(agent, first) == ["one"]
    view = await agent.fleet.sessions.view(lease.sid)
    assert view is not None
    if phase:
        assert [*view.session_ids.values()] == ["of-the-new-conversation"]
