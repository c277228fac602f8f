"""How runs of cron jobs end: what is noted, what that means for the job, what the chat is told."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.cron.job import Job, Policy, State
from remoteclaw.cron.schedule import Schedule
from remoteclaw.cron.settle import AT_MOST, LONGEST_MS, Settler
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import Scripts, open_redis
from tests.conftest import shifted
from tests.support.cron import calls_of, cron_of, scheduler_of
from tests.support.failpoints import Proxy, Side
from tests.support.jobs import (
    HOUR_MS,
    SESSION,
    add,
    entries,
    fired,
    ms,
    set_clock,
    statuses,
    store,
    work,
)
from tests.support.servers import Server
from tests.support.stack import REPLIES

START = ms("2026-11-21T08:00Z")
MINUTE_MS = 60_000
EVERY = Schedule(every_s=60, anchor_ms=START)
ONCE = Schedule(at="2026-11-21T08:01")
LOUD = Policy(alert_after=2)


async def started(fleet: Fleet, schedule: Schedule = EVERY, **fields: Any) -> Job:
    """Store a job at eight o'clock."""
    await set_clock(fleet, START)
    return await add(fleet, schedule, **fields)


async def kept(fleet: Fleet, job: Job) -> Job:
    found = await cron_of(fleet).job(job.id)
    assert found is not None
    return found


async def run_at(fleet: Fleet, at_ms: int, *, status: str = "done", category: str = "") -> int:
    """Fire what is due at a time, and have it end so at once; return how many ran."""
    await set_clock(fleet, at_ms)
    count = await scheduler_of(fleet).tick()
    await work(fleet, status=status, category=category)
    await scheduler_of(fleet).tick()
    return count


async def alerts(fleet: Fleet) -> list[dict[str, Any]]:
    """Return what is on the chat's reply stream."""
    found: Any = await fleet.scripts.client.xrange(REPLIES)
    return [orjson.loads(fields[b"reply"]) for _, fields in found]


async def read_lines(fleet: Fleet) -> list[bytes]:
    found: Any = await fleet.scripts.client.lrange(keys.CRON_RUNS, 0, -1)
    return list(found)


# -- the log --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "category", "detail"),
    [
        ("done", "", None),
        ("steered", "", None),
        ("failed", "auth", "The agent was not signed in to its model."),
        ("failed", "of a newer version", "The agent failed."),
        ("failed", "", "The agent failed."),
        ("stopped", "aborted", "It was stopped."),
        ("interrupted", "", "A newer message interrupted it."),
        ("dropped", "", "Too many messages waited in its session."),
    ],
)
async def test_the_log_says_how_a_run_ended(
    fleet: Fleet, status: str, category: str, detail: str | None
) -> None:
    job = await started(fleet)

    await run_at(fleet, START + MINUTE_MS, status=status, category=category)

    (run,) = await cron_of(fleet).runs(job.id)
    assert (run.status, run.detail, run.is_manual) == (status, detail, False)
    assert run.due_ms == START + MINUTE_MS
    assert str(run.run_id).startswith(f"{SESSION.sid}-")
    assert run.duration_ms is not None
    assert run.duration_ms >= 0
    assert await cron_of(fleet).runs() == [run]
    state = (await kept(fleet, job)).state
    assert (state.last_status, state.last_detail, state.running) == (status, detail, None)
    assert state.failures == int(status == "failed")


async def test_a_run_that_was_given_up_is_a_failure(fleet: Fleet) -> None:
    job = await started(fleet)

    await run_at(fleet, START + MINUTE_MS, status="dead", category="interrupted")

    (run,) = await cron_of(fleet).runs(job.id)
    assert run.status == "dead"
    assert "`remoteclaw deadletters list` shows it" in str(run.detail)
    assert (await kept(fleet, job)).state.failures == 1


async def test_nothing_that_a_cli_printed_is_in_the_log(fleet: Fleet) -> None:
    job = await started(fleet)

    await run_at(fleet, START + MINUTE_MS, status="failed", category="fatal")

    client = fleet.scripts.client
    assert b"secret" not in (await client.hget(keys.CRON_JOBS, job.id) or b"")
    assert not any(b"secret" in line for line in await read_lines(fleet))


async def test_a_run_whose_outcome_is_forgotten_is_settled_as_unknown(fleet: Fleet) -> None:
    once = await started(fleet, ONCE)
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    (entry,) = await entries(fleet)
    await fleet.scripts.client.delete(keys.outcome_prefix(SESSION.sid) + entry.id)

    await scheduler_of(fleet).tick()

    (run,) = await cron_of(fleet).runs(once.id)
    assert run.status == "unknown"
    assert run.detail == "Its outcome is not known any more."
    after = await kept(fleet, once)
    assert (after.enabled, after.next_ms, after.state.last_status) == (False, None, "unknown")


@pytest.mark.parametrize("is_due", [True, False])
async def test_a_run_whose_message_somebody_removed_holds_nothing_up(
    fleet: Fleet, is_due: bool
) -> None:
    job = await started(fleet)
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    await fleet.scripts.client.delete(keys.inbound(SESSION.sid))
    if is_due:  # and it is not looked at before
        name = f"{job.id}:{START + MINUTE_MS}"
        await fleet.scripts.client.zadd(keys.CRON_LOOKS, {name: START + 2 * MINUTE_MS + 9000})
        await set_clock(fleet, START + 2 * MINUTE_MS)

    await scheduler_of(fleet).tick()

    assert statuses(await cron_of(fleet).runs(job.id)) == ["unknown"]
    await set_clock(fleet, START + 2 * MINUTE_MS)
    assert await scheduler_of(fleet).tick() == 1


async def test_a_run_of_a_job_that_was_removed_is_noted(fleet: Fleet) -> None:
    job = await started(fleet)
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    await store(fleet, await kept(fleet, job), None)
    await work(fleet, status="failed", category="auth")

    await scheduler_of(fleet).tick()

    (run,) = await cron_of(fleet).runs(job.id)
    assert run.status == "failed"
    assert await fleet.scripts.client.exists(keys.CRON_OPEN, keys.CRON_LOOKS, keys.CRON_JOBS) == 0


async def test_a_damaged_run_stops_no_other(fleet: Fleet) -> None:
    job = await started(fleet)
    client = fleet.scripts.client
    outcome = keys.outcome_prefix("a").encode() + b"1-1"
    for name, value in (("a", b"{"), ("b", outcome + b" {}"), ("c", outcome + b" []")):
        await client.hset(keys.CRON_OPEN, name, value)
        await client.zadd(keys.CRON_LOOKS, {name: START, "gone": START})

    await run_at(fleet, START + MINUTE_MS)

    assert statuses(await cron_of(fleet).runs(job.id)) == ["done"]
    assert await client.exists(keys.CRON_OPEN, keys.CRON_LOOKS) == 0


async def test_a_run_of_a_damaged_job_is_noted_and_leaves_it_as_it_is(fleet: Fleet) -> None:
    job = await started(fleet)
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    await fleet.scripts.client.hset(keys.CRON_JOBS, job.id, b"{")
    await work(fleet)

    await scheduler_of(fleet).tick()

    assert statuses(await cron_of(fleet).runs(job.id)) == ["done"]
    assert await fleet.scripts.client.hget(keys.CRON_JOBS, job.id) == b"{"
    assert await fleet.scripts.client.zscore(keys.CRON_DUE, job.id) == START + 2 * MINUTE_MS


async def test_a_look_is_bounded_and_each_run_has_its_turn(fleet: Fleet) -> None:
    await set_clock(fleet, START)
    sessions = [replace(SESSION, user=f"user {number}") for number in range(AT_MOST + 20)]
    for session in sessions:
        await add(fleet, EVERY, session=session)
    await set_clock(fleet, START + MINUTE_MS)
    assert await scheduler_of(fleet).tick() == len(sessions)
    for session in sessions:
        await work(fleet, session)

    await scheduler_of(fleet).tick()
    assert len(await fleet.scripts.client.hkeys(keys.CRON_OPEN)) == 20
    await scheduler_of(fleet).tick()

    assert statuses(await cron_of(fleet).runs()) == ["done"] * len(sessions)


async def test_what_takes_long_is_looked_at_seldom(fleet: Fleet) -> None:
    job = await started(fleet)
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    (entry,) = await entries(fleet)
    now_ms = int(entry.id.partition("-")[0]) + HOUR_MS
    await set_clock(fleet, now_ms)
    await fleet.scripts.client.delete(keys.CRON_DUE)

    await scheduler_of(fleet).tick()

    score: Any = await fleet.scripts.client.zscore(keys.CRON_LOOKS, f"{job.id}:{START + MINUTE_MS}")
    assert LONGEST_MS <= score - now_ms < 2 * LONGEST_MS


async def test_a_clock_that_is_set_back_leaves_no_run_open(fleet: Fleet) -> None:
    job = await started(fleet)
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    await scheduler_of(fleet).tick()
    await work(fleet)
    await set_clock(fleet, START - HOUR_MS)

    await scheduler_of(fleet).tick()

    assert statuses(await cron_of(fleet).runs(job.id)) == ["done"]


# -- what is not finished -------------------------------------------------------------------------


async def test_what_is_due_while_a_run_is_unfinished_is_left_out(fleet: Fleet) -> None:
    """Once it is noted: else a run of a day would push everything else out of the log."""
    job = await started(fleet)
    for minute in range(1, 5):
        await set_clock(fleet, START + minute * MINUTE_MS)
        await scheduler_of(fleet).tick()
    assert len(await entries(fleet)) == 1
    await work(fleet)

    await run_at(fleet, START + 5 * MINUTE_MS)

    last, skipped, first = await cron_of(fleet).runs(job.id)
    assert (first.status, last.status, skipped.status) == ("done", "done", "skipped")
    assert skipped.due_ms == START + 2 * MINUTE_MS
    assert skipped.detail == (
        "The run before it was unfinished; no other one begins until it ends."
    )
    assert (await kept(fleet, job)).state.missed_ms is None


async def test_a_run_that_ended_this_moment_holds_nothing_up(fleet: Fleet) -> None:
    """It may be put off when it is looked at, but not what is due."""
    job = await started(fleet)
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    await work(fleet, status="failed", category="retryable")
    name = f"{job.id}:{START + MINUTE_MS}"
    await fleet.scripts.client.zadd(keys.CRON_LOOKS, {name: START + 2 * MINUTE_MS + 10_000})
    await set_clock(fleet, START + 2 * MINUTE_MS)

    assert await scheduler_of(fleet).tick() == 0
    assert await scheduler_of(fleet).tick() == 1

    assert statuses(await cron_of(fleet).runs(job.id)) == ["fired", "failed"]


async def test_a_run_that_nobody_knows_of_holds_nothing_up(fleet: Fleet) -> None:
    job = await started(fleet, state=State(running="gone"))

    await set_clock(fleet, START + MINUTE_MS)
    assert await scheduler_of(fleet).tick() == 1

    assert (await kept(fleet, job)).state.running == f"{job.id}:{START + MINUTE_MS}"


async def test_what_is_due_once_waits_for_no_other_run(fleet: Fleet) -> None:
    job = await started(fleet, ONCE)
    await manual(fleet, job)
    await set_clock(fleet, START + MINUTE_MS)

    assert await scheduler_of(fleet).tick() == 1

    assert len(await entries(fleet)) == 2


async def manual(fleet: Fleet, job: Job, call: str = "c1") -> str | None:
    """Have a job run now, as the gateway does."""
    found = await kept(fleet, job)
    now_ms = await cron_of(fleet).now_ms()
    return await calls_of(fleet).run(
        None, call, found, f"{job.id}:{call}", now_ms=now_ms, note=None
    )


# -- failures -------------------------------------------------------------------------------------


async def test_a_job_that_fails_is_left_alone_for_longer_and_longer(fleet: Fleet) -> None:
    job = await started(fleet)
    at_ms = START
    found = []
    for _ in range(7):
        before = (await kept(fleet, job)).next_ms
        assert before is not None
        found.append((before - at_ms) // MINUTE_MS)
        at_ms = before
        assert await run_at(fleet, at_ms - MINUTE_MS // 2) == 0
        assert await run_at(fleet, at_ms, status="failed", category="fatal") == 1

    # What is due next is the first due time behind 30 s, 1, 2, 4, 8, 16 minutes from the end.
    assert found == [1, 1, 2, 3, 5, 9, 17]
    skipped = [run for run in await cron_of(fleet).runs(job.id) if run.status == "skipped"]
    assert [run.detail for run in skipped][-1] == (
        "It had failed 2 times in a row, so it pauses for 60 s."
    )
    assert len(skipped) == 6
    assert (await kept(fleet, job)).state.failures == 7


async def test_a_run_that_goes_well_ends_the_backoff(fleet: Fleet) -> None:
    job = await started(fleet, state=State(failures=4))

    await run_at(fleet, START + MINUTE_MS)

    after = await kept(fleet, job)
    assert (after.state.failures, after.next_ms) == (0, START + 2 * MINUTE_MS)


@pytest.mark.parametrize("status", ["stopped", "interrupted", "dropped"])
async def test_what_people_do_is_no_failure(fleet: Fleet, status: str) -> None:
    job = await started(fleet, state=State(failures=1), policy=replace(LOUD, alert_after=1))

    await run_at(fleet, START + MINUTE_MS, status=status)

    after = await kept(fleet, job)
    assert (after.state.failures, after.next_ms) == (1, START + 2 * MINUTE_MS)
    assert await alerts(fleet) == []


async def test_a_job_that_is_paused_meanwhile_stays_so(fleet: Fleet) -> None:
    job = await started(fleet, policy=replace(LOUD, alert_after=1))
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    before = await kept(fleet, job)
    await store(fleet, before, replace(before, enabled=False, next_ms=None))
    await work(fleet, status="failed", category="retryable")

    await scheduler_of(fleet).tick()

    after = await kept(fleet, job)
    assert (after.enabled, after.next_ms) == (False, None)
    assert await alerts(fleet) == []


async def test_a_change_meanwhile_is_kept(fleet: Fleet) -> None:
    job = await started(fleet)
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    before = await kept(fleet, job)
    await store(fleet, before, replace(before, name="new"))
    await work(fleet, status="failed")

    await scheduler_of(fleet).tick()

    after = await kept(fleet, job)
    assert (after.name, after.state.failures) == ("new", 1)


# -- once -----------------------------------------------------------------------------------------


async def test_what_is_due_once_is_tried_again_after_a_failure_that_may_pass(fleet: Fleet) -> None:
    job = await started(fleet, ONCE)
    at_ms = START + MINUTE_MS
    waits = []
    for _ in range(3):
        await run_at(fleet, at_ms, status="failed", category="retryable")
        after = await kept(fleet, job)
        assert after.enabled
        assert after.next_ms is not None
        waits.append((after.next_ms - at_ms) // 1000)
        at_ms = after.next_ms
    await run_at(fleet, at_ms, status="failed", category="retryable")

    assert waits == [30, 60, 120]
    after = await kept(fleet, job)
    assert (after.enabled, after.next_ms, after.state.failures) == (False, None, 4)
    assert statuses(await cron_of(fleet).runs(job.id)) == ["failed"] * 4


async def test_a_try_that_goes_well_is_the_last_one(fleet: Fleet) -> None:
    job = await started(fleet, ONCE)
    await run_at(fleet, START + MINUTE_MS, status="failed", category="timeout")
    again = (await kept(fleet, job)).next_ms
    assert again is not None

    assert await run_at(fleet, again) == 1

    assert await cron_of(fleet).job(job.id) is None
    assert statuses(await cron_of(fleet).runs(job.id)) == ["done", "failed"]


@pytest.mark.parametrize(
    ("status", "category"),
    [
        *[("failed", "auth"), ("failed", "died"), ("dead", "retryable")],
        *[("stopped", "aborted"), ("dropped", "")],
    ],
)
async def test_what_is_due_once_and_did_not_go_well_is_kept_and_off(
    fleet: Fleet, status: str, category: str
) -> None:
    job = await started(fleet, ONCE)

    await run_at(fleet, START + MINUTE_MS, status=status, category=category)

    after = await kept(fleet, job)
    assert (after.enabled, after.next_ms, after.state.last_status) == (False, None, status)
    await set_clock(fleet, START + 24 * HOUR_MS)
    assert await scheduler_of(fleet).tick() == 0


@pytest.mark.parametrize("schedule", [ONCE, EVERY], ids=["once", "every"])
@pytest.mark.parametrize("goes", [True, False, None])
async def test_whether_a_job_goes_after_it_went_well_is_its_own(
    fleet: Fleet, schedule: Schedule, goes: bool | None
) -> None:
    job = await started(fleet, schedule, policy=Policy(delete_after_run=goes))

    await run_at(fleet, START + MINUTE_MS)

    is_gone = await cron_of(fleet).job(job.id) is None
    assert is_gone == (goes if goes is not None else schedule is ONCE)
    if not is_gone:
        assert (await kept(fleet, job)).enabled == (schedule is EVERY)


async def test_a_job_that_goes_after_it_went_well_stays_while_it_fails(fleet: Fleet) -> None:
    job = await started(fleet, policy=Policy(delete_after_run=True))

    await run_at(fleet, START + MINUTE_MS, status="failed")

    assert (await kept(fleet, job)).next_ms == START + 2 * MINUTE_MS


async def test_a_job_that_was_given_another_time_meanwhile_has_that_before_it(
    fleet: Fleet,
) -> None:
    job = await started(fleet, ONCE)
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    before = await kept(fleet, job)
    later = replace(before, schedule=Schedule(at="2026-11-21T09:00"), next_ms=START + HOUR_MS)
    await store(fleet, before, later)
    await work(fleet)

    await scheduler_of(fleet).tick()

    assert (await kept(fleet, job)).next_ms == START + HOUR_MS
    assert await run_at(fleet, START + HOUR_MS) == 1


# -- alerts ---------------------------------------------------------------------------------------


async def test_the_chat_is_told_once_of_so_many_failures_in_a_row(fleet: Fleet) -> None:
    schedule = Schedule(cron="*/10 * * * *", tz="Europe/Berlin")
    job = await started(fleet, schedule, policy=LOUD, name='a "job"\nof two lines')
    told = []
    for status in ("failed", "failed", "failed", "done", "failed", "failed", "failed"):
        at_ms = (await kept(fleet, job)).next_ms
        assert at_ms is not None
        await run_at(fleet, at_ms, status=status, category="auth")
        told.append(len(await alerts(fleet)))

    assert told == [0, 1, 1, 1, 1, 2, 2]
    first = (await alerts(fleet))[0]
    assert first["text"] == (
        'The cron job "a "job" of two lines" has failed 2 times in a row, '
        "next try 2026-11-21 at 09:30 (Europe/Berlin): the agent was not signed in to its model."
    )
    assert (first["channel_id"], first["thread_id"], first["is_error"]) == ("chat-1", None, True)
    assert len({reply["call"] for reply in await alerts(fleet)}) == 2


async def test_an_adapter_delivers_the_alert(fleet: Fleet) -> None:
    job = await started(fleet, policy=replace(LOUD, alert_after=1))
    await run_at(fleet, START + MINUTE_MS, status="failed", category="auth")
    reader = fleet.replies.reader("test", "default")
    replies = reader.replies()

    reply = await anext(replies)
    await reader.receipt(reply)

    assert reply.text.startswith('The cron job "standup" has failed, next try ')
    assert (reply.channel_id, reply.is_final, reply.sid) == ("chat-1", False, SESSION.sid)
    assert job.id in reply.key
    assert await alerts(fleet) == []
    await replies.aclose()


@pytest.mark.parametrize(("alert_after", "count"), [(0, 0), (1, 1), (2, 0)])
async def test_the_chat_is_told_of_no_fewer_failures(
    fleet: Fleet, alert_after: int, count: int
) -> None:
    await started(fleet, policy=Policy(alert_after=alert_after))

    await run_at(fleet, START + MINUTE_MS, status="failed")

    assert len(await alerts(fleet)) == count


async def test_the_chat_is_told_when_what_is_due_once_is_given_up(fleet: Fleet) -> None:
    await started(fleet, ONCE, policy=replace(LOUD, alert_after=9))

    await run_at(fleet, START + MINUTE_MS, status="failed", category="auth")

    (reply,) = await alerts(fleet)
    assert reply["text"] == (
        'The cron job "standup" has failed and is off now: '
        "the agent was not signed in to its model."
    )


# -- a run that somebody asks for -----------------------------------------------------------------


async def test_a_run_that_is_asked_for_moves_nothing(fleet: Fleet) -> None:
    once = await started(fleet, ONCE, policy=replace(LOUD, alert_after=1))

    assert await manual(fleet, once)
    await work(fleet, status="failed", category="auth")
    await scheduler_of(fleet).tick()

    after = await kept(fleet, once)
    assert (after.enabled, after.next_ms) == (True, START + MINUTE_MS)
    assert (after.state.failures, after.state.last_status) == (0, "failed")
    assert await alerts(fleet) == []
    (run,) = await cron_of(fleet).runs(once.id)
    assert (run.status, run.is_manual) == ("failed", True)


async def test_a_run_that_is_asked_for_and_goes_well_keeps_the_job(fleet: Fleet) -> None:
    once = await started(fleet, ONCE, state=State(failures=2))

    assert await manual(fleet, once)
    await work(fleet)
    await scheduler_of(fleet).tick()

    after = await kept(fleet, once)
    assert (after.next_ms, after.state.failures) == (START + MINUTE_MS, 0)


async def test_a_run_that_is_asked_for_is_known_by_its_call(fleet: Fleet) -> None:
    job = await started(fleet)

    first = await manual(fleet, job)
    again = await manual(fleet, job)
    other = await manual(fleet, job, "c2")

    assert first == again
    assert other != first
    assert len(await entries(fleet)) == 2


# -- misfires -------------------------------------------------------------------------------------


@pytest.mark.parametrize("misfire", ["skip", "run_once"])
async def test_after_a_day_asleep_what_is_on_time_runs_whatever_the_policy(
    fleet: Fleet, misfire: Any
) -> None:
    """A machine wakes at 8:00:20 of the next day, and the job is due every ten minutes."""
    job = await started(fleet, Schedule(cron="*/10 * * * *"), policy=Policy(misfire=misfire))

    assert await run_at(fleet, ms("2026-11-22T08:00:20Z")) == 1

    done, skipped = await cron_of(fleet).runs(job.id)
    assert (done.status, done.due_ms) == ("done", ms("2026-11-22T08:00Z"))
    assert (skipped.status, skipped.due_ms) == ("skipped", START + 10 * MINUTE_MS)


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Policy(misfire="run_once"), None),
        (Policy(misfire="skip"), "it is more than an hour ago."),
    ],
)
async def test_after_a_day_asleep_a_daily_job_does_what_its_policy_says(
    fleet: Fleet, policy: Policy, why: str | None
) -> None:
    """A machine wakes at half past ten, and the job was due at nine of both days."""
    job = await started(fleet, Schedule(cron="0 9 * * *"), policy=policy)

    fired_now = await run_at(fleet, ms("2026-11-22T10:30Z"))

    first = ms("2026-11-21T09:00Z")
    found = {run.due_ms: run for run in await cron_of(fleet).runs(job.id)}
    assert found[first].status == "skipped"
    if why is None:
        assert fired_now == 1
        assert found[first + 24 * HOUR_MS].status == "done"
    else:
        assert fired_now == 0
        assert str(found[first].detail).endswith(why)
        assert len(found) == 1
    assert (await kept(fleet, job)).next_ms == ms("2026-11-23T09:00Z")


@pytest.mark.parametrize("misfire", ["skip", "run_once"])
async def test_what_is_due_once_and_was_missed_is_never_lost(fleet: Fleet, misfire: Any) -> None:
    job = await started(fleet, ONCE, policy=Policy(misfire=misfire))

    count = await run_at(fleet, START + 24 * HOUR_MS)

    (run,) = await cron_of(fleet).runs(job.id)
    assert run.due_ms == START + MINUTE_MS
    if misfire == "run_once":
        assert (count, run.status) == (1, "done")
    else:
        assert (count, run.status) == (0, "skipped")
        after = await kept(fleet, job)
        assert (after.enabled, after.next_ms) == (False, None)


async def test_a_clock_that_jumps_forth_and_back_fires_nothing_twice(fleet: Fleet) -> None:
    job = await started(fleet, Schedule(cron="0 9 * * *"), policy=Policy(misfire="run_once"))
    nine = ms("2026-11-21T09:00Z")
    assert await run_at(fleet, nine) == 1
    assert await run_at(fleet, nine + 24 * HOUR_MS) == 1

    assert await run_at(fleet, nine - HOUR_MS) == 0
    assert await run_at(fleet, nine) == 0
    assert await run_at(fleet, nine + 24 * HOUR_MS) == 0
    assert await run_at(fleet, nine + 48 * HOUR_MS) == 1

    due = [nine + days * 24 * HOUR_MS for days in (2, 1, 0)]
    assert fired(await cron_of(fleet).runs(job.id)) == due


# -- any number of schedulers ---------------------------------------------------------------------


@pytest.fixture
async def pair(any_server: Server, directory: Path) -> AsyncIterator[tuple[Fleet, Fleet, Proxy]]:
    """Two fleets on one server, the first one behind a proxy."""
    proxy = Proxy(any_server.socket, directory / "proxy")
    await proxy.start()
    fleets = [
        Fleet.open("unix:///nobody", lease_s=30, scripts=Scripts(open_redis(url)))
        for url in (proxy.url, any_server.url)
    ]
    await fleets[1].scripts.client.flushall()
    yield fleets[0], fleets[1], proxy
    for fleet in fleets:
        await fleet.aclose()
    await proxy.stop()


@pytest.mark.parametrize("what_happens", ["killed", "late", "cut"])
@pytest.mark.parametrize(
    ("step", "side"),
    [(step, side) for step in ("unsettled", "settle") for side in ("before", "after")],
)
async def test_a_settler_at(
    pair: tuple[Fleet, Fleet, Proxy], step: str, side: Side, what_happens: str
) -> None:
    """Each is stopped at a step while another one looks; then it dies, goes on, or is cut off."""
    first, second, proxy = pair
    now_ms = await cron_of(second).now_ms()
    policy = replace(LOUD, alert_after=1)
    job = await add(second, Schedule(every_s=3600), next_ms=now_ms, policy=policy)
    await scheduler_of(second).tick()
    await work(second, status="failed", category="auth")
    failpoint = proxy.arm(step, side)
    looking = asyncio.create_task(scheduler_of(first).tick())
    await failpoint.wait()

    async def look() -> None:
        await second.scripts.client.zadd(keys.CRON_LOOKS, {f"{job.id}:{now_ms}": 0}, xx=True)
        await scheduler_of(second).tick()

    if what_happens == "killed":
        looking.cancel()
        failpoint.cut()
        await asyncio.wait((looking,))
        await look()
    else:
        await look()
        failpoint.release() if what_happens == "late" else failpoint.cut()
        await looking

    assert statuses(await cron_of(second).runs(job.id)) == ["failed"]
    assert (await kept(second, job)).state.failures == 1
    assert len(await alerts(second)) == 1


async def test_a_run_of_a_job_that_was_removed_is_noted_once(
    pair: tuple[Fleet, Fleet, Proxy],
) -> None:
    first, second, proxy = pair
    job = await add(second, EVERY, next_ms=await cron_of(second).now_ms())
    await scheduler_of(second).tick()
    await store(second, await kept(second, job), None)
    await work(second)
    failpoint = proxy.arm("settle", "after")
    failpoint.cut()

    await scheduler_of(first).tick()

    assert failpoint.reached.is_set()
    assert statuses(await cron_of(second).runs(job.id)) == ["done"]


async def test_a_change_at_the_moment_of_settling_is_kept(
    pair: tuple[Fleet, Fleet, Proxy],
) -> None:
    first, second, proxy = pair
    now_ms = await cron_of(second).now_ms()
    job = await add(second, Schedule(every_s=3600), next_ms=now_ms)
    await scheduler_of(second).tick()
    await work(second, status="failed")
    failpoint = proxy.arm("settle", "before")
    looking = asyncio.create_task(scheduler_of(first).tick())
    await failpoint.wait()
    before = await kept(second, job)

    await store(second, before, replace(before, name="new"))
    failpoint.release()
    await looking
    await second.scripts.client.zadd(keys.CRON_LOOKS, {f"{job.id}:{now_ms}": 0})
    await scheduler_of(second).tick()

    after = await kept(second, job)
    assert (after.name, after.state.failures) == ("new", 1)
    assert statuses(await cron_of(second).runs(job.id)) == ["failed"]


async def test_several_settlers_tell_the_chat_once(any_server: Server) -> None:
    fleets = [
        Fleet.open(
            "unix:///nobody",
            lease_s=30,
            scripts=Scripts(open_redis(any_server.url), edit=shifted),
        )
        for _ in range(4)
    ]
    one = fleets[0]
    await one.scripts.client.flushall()
    job = await started(one, policy=replace(LOUD, alert_after=1))
    for _ in range(6):
        at_ms = (await kept(one, job)).next_ms
        assert at_ms is not None
        await set_clock(one, at_ms)
        await asyncio.gather(*(scheduler_of(fleet).tick() for fleet in fleets))
        await work(one, status="failed", category="retryable")
        run = await cron_of(one).open_run(await kept(one, job))
        assert run is not None
        settlers = [Settler(fleet.scripts) for fleet in fleets]
        await asyncio.gather(*(each.settle(run) for each in settlers))

    after = await kept(one, job)
    assert after.state.failures == 6
    assert statuses(await cron_of(one).runs(job.id)).count("failed") == 6
    assert len(await alerts(one)) == 1
    for fleet in fleets:
        await fleet.aclose()


# -- other versions -------------------------------------------------------------------------------


async def test_a_damaged_line_of_the_log_hides_no_other(fleet: Fleet) -> None:
    line = {"job_id": "j", "agent": "main", "due_ms": 1, "status": "fired", "detail": None}
    newer = {**line, "due_ms": 2, "what": "ever"}
    for told, entry in ((line, "1-1"), (newer, "2-1")):
        data = orjson.dumps({**told, "sid": "s"})
        await fleet.scripts.client.lpush(keys.cron_runs("j"), f"{entry} ".encode() + data)
    await fleet.scripts.client.lpush(keys.cron_runs("j"), b"damaged", b"3-1 {}", b" []")

    assert [run.run_id for run in await cron_of(fleet).runs("j")] == ["s-2-1", "s-1-1"]


async def test_a_run_of_a_job_of_a_newer_version_waits_for_its_scheduler(fleet: Fleet) -> None:
    job = await started(fleet)
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    await fleet.scripts.client.hset(keys.CRON_JOBS, job.id, b'{"v":99}')
    await work(fleet)

    await scheduler_of(fleet).tick()

    assert len(await fleet.scripts.client.hkeys(keys.CRON_OPEN)) == 1
    assert await fleet.scripts.client.hget(keys.CRON_JOBS, job.id) == b'{"v":99}'


async def test_jobs_of_a_newer_version_keep_nobody_waiting(fleet: Fleet) -> None:
    job = await started(fleet)
    client = fleet.scripts.client
    for number in range(100):
        newer = orjson.loads(job.encode()) | {"id": f"n{number}", "v": 99}
        await client.hset(keys.CRON_JOBS, f"n{number}", orjson.dumps(newer))
        await client.zadd(keys.CRON_DUE, {f"n{number}": START - 1000})
    await set_clock(fleet, START + MINUTE_MS)

    assert await scheduler_of(fleet).tick() == 1
