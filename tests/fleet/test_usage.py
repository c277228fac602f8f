"""The sums of the usage of turns and asides."""

from datetime import date
from typing import Any

from remoteclaw.cli.usage import MAX_DAYS
from remoteclaw.events import AgentRunResult, AgentUsage, AsideAnswer
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.sessions.usage import (
    USAGE_DAYS,
    USAGE_MS,
    PeriodUsage,
    SessionDay,
    Usage,
    UsageScopes,
    sum_usage,
)
from remoteclaw.fleet.turns.asides import AsideEnd, Asides
from tests.support.leases import accept, acquire, begun, let_pass, postpone

TURN = Usage.of(
    AgentRunResult(duration_ms=1500, usage=AgentUsage(100, 7, 5000, 30), total_cost_usd=0.0123456)
)

ASIDE = Usage.of_aside(
    AsideAnswer("yes", AgentUsage(cache_read_tokens=300), cost_usd=0.002, is_estimated=True)
)


async def test_a_repeated_finish_counts_its_usage_once(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)
    batch = lease.turns._batch
    assert batch is not None

    await lease.turns.finish("done", reply=[], usage=TURN)
    lease.turns._batch = batch  # the reply was lost: the caller repeats it
    await lease.turns.finish("done", reply=[], usage=TURN)

    (part,) = await fleet.usage.days(days=1)
    assert (part.agent, part.sid, part.usage) == ("main", lease.sid, TURN)
    assert await fleet.usage.agents() == {"main": TURN}
    outcome = await fleet.outcomes.read(lease.sid, batch.turn)
    assert outcome is not None
    assert outcome.usage == TURN
    (day,) = await fleet.scripts.client.keys(keys.usage_day("*"))
    assert USAGE_MS - 60_000 < await fleet.scripts.client.pttl(day) <= USAGE_MS


async def test_usage_is_summed_by_session_and_agent(fleet: Fleet) -> None:
    for chat in ("a", "b", "a"):
        lease, _ = await begun(fleet, channel_id=chat)
        await lease.turns.finish("done", reply=[], usage=TURN)
        await lease.close()

    assert await fleet.usage.session("main", lease.sid) == TURN + TURN
    assert await fleet.usage.agents() == {"main": TURN + TURN + TURN}
    assert sorted(part.usage.turns for part in await fleet.usage.days(days=1)) == [1, 2]


async def test_a_turn_without_an_agent_has_no_usage(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)

    await lease.turns.finish("stopped", reply=[])

    assert await fleet.usage.days(days=1) == []
    assert await fleet.usage.agents() == {}


# -- asides ---------------------------------------------------------------------------------------


async def test_a_repeated_end_of_an_aside_counts_its_usage_once(fleet: Fleet) -> None:
    """Whatever the verdict is, and also if the message has become part of a turn meanwhile."""
    lease, first = await begun(fleet)
    asides = Asides(lease)
    for verdict in ("answered", "later"):
        message = await accept(fleet, verdict)
        for _ in range(2):
            await asides.end(first.entry_id, message.entry_id, verdict, AsideEnd(usage=ASIDE))
        outcome = await fleet.outcomes.read(lease.sid, message.entry_id)
        assert outcome is not None
        assert outcome.aside_usage == ASIDE
        assert outcome.usage == (ASIDE if verdict == "answered" else None)
    joined = await accept(fleet)
    assert await lease.turns.join([joined.entry_id])
    for _ in range(2):
        end = AsideEnd(usage=ASIDE)
        assert await asides.end(first.entry_id, joined.entry_id, "answered", end) == "gone"

    assert await fleet.usage.session("main", lease.sid) == ASIDE + ASIDE + ASIDE
    assert await fleet.usage.agents() == {"main": ASIDE + ASIDE + ASIDE}


async def test_an_aside_adds_to_sums_of_an_older_version(fleet: Fleet) -> None:
    """They have fewer numbers; a newer version may add more, which this one keeps."""
    lease, first = await begun(fleet)
    client = fleet.scripts.client
    await client.hset(keys.USAGE, "main", "3 300 21 0 0 90 0")

    await Asides(lease).end(first.entry_id, "9-9", "answered", AsideEnd(usage=ASIDE))

    assert await fleet.usage.agents() == {"main": Usage(3, 300, 21, 0, 0, 90, 0) + ASIDE}
    await client.hset(keys.USAGE, "main", f"{ASIDE.encode()} 7 8")
    assert await fleet.usage.agents() == {"main": ASIDE}
    await lease.turns.finish("done", reply=[], usage=TURN)
    numbers: Any = await client.hget(keys.USAGE, "main")
    assert numbers.decode() == f"{(ASIDE + TURN).encode()} 7 8"


# -- attempts -------------------------------------------------------------------------------------


async def test_the_usage_of_postponed_and_cut_off_attempts_counts_once_with_the_turn(
    fleet: Fleet,
) -> None:
    """A postponed attempt leaves all of its usage, an attempt that was cut off its last report."""
    lease, accepted = await begun(fleet)
    await postpone(fleet, lease, 1000, usage=TURN)
    await let_pass(fleet, 2000)
    second = await acquire(fleet, accepted)
    batch = await second.turns.begin([])
    assert batch is not None
    assert batch.spent == TURN
    for tokens in (1, 2):
        live = Usage(input_tokens=tokens)
        await second.turns.publish_live_text({"text": "so far"}, usage=live)
    await fleet.scripts.client.hset(keys.state(lease.sid), "lease_until_ms", 1)

    third = await acquire(fleet, accepted)
    batch = await third.turns.begin([])
    assert batch is not None
    assert batch.spent == TURN + Usage(input_tokens=2)
    await third.turns.finish("done", reply=[], usage=batch.spent + TURN)
    assert await fleet.usage.agents() == {"main": TURN + TURN + Usage(input_tokens=2)}

    next_message = await accept(fleet)
    batch = await third.turns.begin([next_message.entry_id])
    assert batch is not None
    assert batch.spent == Usage()


async def test_late_live_text_leaves_no_usage_for_the_next_turn(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)
    batch = lease.turns._batch
    await lease.turns.finish("done", reply=[], usage=TURN)
    lease.turns._batch = batch  # the call was sent before the turn's end, and arrives after it

    await lease.turns.publish_live_text({"text": "so far"}, usage=TURN)

    next_message = await accept(fleet)
    next_batch = await lease.turns.begin([next_message.entry_id])
    assert next_batch is not None
    assert next_batch.spent == Usage()


def test_the_usage_command_covers_all_stored_days() -> None:
    assert MAX_DAYS == USAGE_DAYS


def test_a_day_on_which_more_was_corrected_than_used_shows_no_negative_sum() -> None:
    """What people read; the sums of several days keep the correction."""
    monday, tuesday = date(2026, 11, 23), date(2026, 11, 24)
    used, corrected = (
        Usage(input_tokens=2000, cost_micro_usd=50),
        Usage(input_tokens=-1500, cost_micro_usd=-20),
    )
    days = [SessionDay(monday, "main", "sid", used), SessionDay(tuesday, "main", "sid", corrected)]

    assert PeriodUsage("2026-11-24", {"main": corrected}, None).total == Usage()
    assert sum_usage(days, by="agent") == {"main": Usage(input_tokens=500, cost_micro_usd=30)}


async def test_turns_are_summed_by_hour_and_day_with_the_longest_wait(fleet: Fleet) -> None:
    """Each finish counts once, also a repeated one; a turn that waited less changes no wait."""
    for chat, waited_ms in (("a", 2000), ("b", 0)):
        lease, accepted = await begun(fleet, channel_id=chat)
        batch = lease.turns._batch
        outcome = keys.outcome(lease.sid, accepted.entry_id)
        sent_ms = int(accepted.entry_id.partition("-")[0])
        await fleet.scripts.client.hset(outcome, "begun.1", sent_ms + waited_ms)
        await lease.turns.finish("done", reply=[], usage=TURN)
        lease.turns._batch = batch  # the reply was lost: the caller repeats it
        await lease.turns.finish("done", reply=[], usage=TURN)

    *quiet, hour = await fleet.usage.by_hour(24)
    *_, day = await fleet.usage.by_day(7)

    assert len(quiet) == 23
    assert not any(one.total or one.wait_ms for one in quiet)
    assert hour.name.startswith(day.name)
    for period in (hour, day):
        assert (period.agents, period.wait_ms) == ({"main": TURN + TURN}, 2000)
    (key,) = await fleet.scripts.client.keys(keys.usage_hour("*"))
    assert 8 * 24 * 3_600_000 < await fleet.scripts.client.pttl(key) <= 9 * 24 * 3_600_000


async def test_the_hours_of_a_day_are_those_of_the_time_zone_of_the_configuration(
    fleet: Fleet,
) -> None:
    """Python names the hours that Lua has counted, also where the offset is half an hour."""
    lease, _ = await begun(fleet)
    lease.usage_scopes = lambda: UsageScopes("main", lease.sid, zone="Asia/Kolkata")
    await lease.turns.finish("done", reply=[], usage=TURN)

    *_, hour = await fleet.usage.by_hour(24, zone="Asia/Kolkata")

    assert hour.name.endswith(":00+05:30")
    assert hour.total == TURN
