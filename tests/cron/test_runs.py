"""The end of cron runs: the log entry, the effect on the job, and the alert in the chat."""

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from remoteclaw.cron.job import Job
from remoteclaw.cron.schedule import Schedule
from remoteclaw.cron.settle import Settler
from remoteclaw.fleet import Fleet, keys
from tests.support.cron import calls_of, cron_of, look_together, scheduler_of
from tests.support.failpoints import Proxy, Side
from tests.support.jobs import (
    HOUR_MS,
    SESSION,
    add,
    entries,
    fired,
    job_of,
    ms,
    set_clock,
    statuses,
    store,
    work,
)
from tests.support.stack import REPLIES

START = ms("2026-11-21T08:00Z")
MINUTE_MS = 60_000
EVERY = Schedule(every_s=60, anchor_ms=START)
ONCE = Schedule(at="2026-11-21T08:01")


async def started(fleet: Fleet, schedule: Schedule = EVERY, **fields: Any) -> Job:
    """Store a job at eight o'clock."""
    await set_clock(fleet, START)
    return await add(fleet, schedule, **fields)


async def kept(fleet: Fleet, job: Job) -> Job:
    return await job_of(fleet, job.id)


async def run_at(fleet: Fleet, at_ms: int, *, status: str = "done", category: str = "") -> int:
    """Fire the jobs due at a time, and end their runs at once; return how many were fired."""
    await set_clock(fleet, at_ms)
    count = await scheduler_of(fleet).tick()
    await work(fleet, status=status, category=category)
    await scheduler_of(fleet).tick()
    return count


async def alerts(fleet: Fleet) -> list[dict[str, Any]]:
    """Return the messages on the chat's reply stream."""
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
        ("failed", "usage_limit", "The agent failed: usage limit."),
        ("failed", "", "The agent failed."),
        ("stopped", "aborted", None),
        ("dropped", "", None),
        (
            *("dead", "interrupted"),
            "It was tried more than once and given up; `remoteclaw deadletters list` shows it.",
        ),
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
    after = await kept(fleet, job)
    assert (after.last_status, after.last_detail, after.running) == (status, detail, None)
    assert after.failures == int(status in ("failed", "dead"))


async def test_the_log_has_nothing_that_a_cli_printed(fleet: Fleet) -> None:
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
    await fleet.scripts.client.delete(keys.outcome(SESSION.sid, entry.id))

    await scheduler_of(fleet).tick()

    (run,) = await cron_of(fleet).runs(once.id)
    assert run.status == "unknown"
    assert run.detail == "Its outcome is no longer known."
    after = await kept(fleet, once)
    assert (after.enabled, after.next_ms, after.last_status) == (False, None, "unknown")


async def test_a_damaged_run_stops_no_other(fleet: Fleet) -> None:
    job = await started(fleet)
    client = fleet.scripts.client
    outcome = keys.outcome("a").encode() + b"1-1"
    for name, value in (("a", b"{"), ("b", outcome + b" {}"), ("c", outcome + b" []")):
        await client.hset(keys.CRON_OPEN, name, value)

    await run_at(fleet, START + MINUTE_MS)

    assert statuses(await cron_of(fleet).runs(job.id)) == ["done"]


# -- unfinished runs ------------------------------------------------------------------------------


async def test_a_due_time_during_an_unfinished_run_is_skipped(fleet: Fleet) -> None:
    """It is logged once; otherwise a run of a day would push everything else out of the log."""
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
    assert (await kept(fleet, job)).missed_ms is None


async def test_a_run_that_just_ended_does_not_block_the_next_one(fleet: Fleet) -> None:
    """It ends between the scheduler's check of open runs and its check of due jobs."""
    job = await started(fleet)
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    await work(fleet)
    due_ms, data = START + 2 * MINUTE_MS, (await kept(fleet, job)).stored
    await set_clock(fleet, due_ms)

    assert await scheduler_of(fleet)._handle(job.id, due_ms, data, due_ms) == "left"
    assert await scheduler_of(fleet).tick() == 1

    assert statuses(await cron_of(fleet).runs(job.id)) == ["fired", "done"]


async def test_an_unknown_unfinished_run_does_not_block_the_next_one(fleet: Fleet) -> None:
    job = await started(fleet, running="gone")

    await set_clock(fleet, START + MINUTE_MS)
    assert await scheduler_of(fleet).tick() == 1

    assert (await kept(fleet, job)).running == f"{job.id}:{START + MINUTE_MS}"


async def test_a_one_time_job_does_not_wait_for_a_manual_run(fleet: Fleet) -> None:
    job = await started(fleet, ONCE)
    await manual(fleet, job)
    await set_clock(fleet, START + MINUTE_MS)

    assert await scheduler_of(fleet).tick() == 1

    assert len(await entries(fleet)) == 2


async def manual(fleet: Fleet, job: Job, call: str = "c1") -> str:
    """Have a job run now, as the gateway does."""
    found = await kept(fleet, job)
    now_ms = await fleet.scripts.now_ms()
    return await calls_of(fleet).run(None, call, found, call, now_ms=now_ms, effect=None)


# -- failures -------------------------------------------------------------------------------------


async def test_a_failing_job_pauses_longer_after_each_failure(fleet: Fleet) -> None:
    job = await started(fleet)
    at_ms = START
    minutes = []
    for _ in range(7):
        before = (await kept(fleet, job)).next_ms
        assert before is not None
        minutes.append((before - at_ms) // MINUTE_MS)
        at_ms = before
        assert await run_at(fleet, at_ms - MINUTE_MS // 2) == 0
        assert await run_at(fleet, at_ms, status="failed", category="fatal") == 1

    # The next due time is the first one after a pause of 30 s, 1, 2, 4, 8 or 16 minutes.
    assert minutes == [1, 1, 2, 3, 5, 9, 17]
    skipped = [run for run in await cron_of(fleet).runs(job.id) if run.status == "skipped"]
    assert [run.detail for run in skipped][-1] == (
        "It had failed 2 times in a row, so it pauses for 60 s."
    )
    assert len(skipped) == 6
    assert (await kept(fleet, job)).failures == 7


async def test_a_successful_run_ends_the_backoff(fleet: Fleet) -> None:
    job = await started(fleet, failures=4)

    await run_at(fleet, START + MINUTE_MS)

    after = await kept(fleet, job)
    assert (after.failures, after.next_ms) == (0, START + 2 * MINUTE_MS)


async def test_a_run_that_a_person_stopped_is_no_failure(fleet: Fleet) -> None:
    job = await started(fleet, failures=1, alert_after=1)

    await run_at(fleet, START + MINUTE_MS, status="stopped")

    after = await kept(fleet, job)
    assert (after.failures, after.next_ms) == (1, START + 2 * MINUTE_MS)
    assert await alerts(fleet) == []


async def test_a_job_paused_during_its_run_stays_paused(fleet: Fleet) -> None:
    job = await started(fleet, alert_after=1)
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    before = await kept(fleet, job)
    await store(fleet, before, replace(before, enabled=False, next_ms=None))
    await work(fleet, status="failed", category="retryable")

    await scheduler_of(fleet).tick()

    after = await kept(fleet, job)
    assert (after.enabled, after.next_ms) == (False, None)
    assert await alerts(fleet) == []


# -- one-time jobs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "category"),
    [("failed", "retryable"), ("dead", "retryable"), ("stopped", "aborted")],
)
async def test_a_one_time_job_that_did_not_succeed_is_kept_and_switched_off(
    fleet: Fleet, status: str, category: str
) -> None:
    job = await started(fleet, ONCE)

    await run_at(fleet, START + MINUTE_MS, status=status, category=category)

    after = await kept(fleet, job)
    assert (after.enabled, after.next_ms, after.last_status) == (False, None, status)
    await set_clock(fleet, START + 24 * HOUR_MS)
    assert await scheduler_of(fleet).tick() == 0


async def test_a_job_rescheduled_during_its_run_keeps_the_new_time(
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


async def test_the_chat_is_alerted_once_after_enough_failures_in_a_row(fleet: Fleet) -> None:
    schedule = Schedule(cron="*/10 * * * *", tz="Europe/Berlin")
    job = await started(fleet, schedule, alert_after=2, name='a "job"\nof two lines')
    counts = []
    for status in ("failed", "failed", "failed", "done", "failed", "failed", "failed"):
        at_ms = (await kept(fleet, job)).next_ms
        assert at_ms is not None
        await run_at(fleet, at_ms, status=status, category="auth")
        counts.append(len(await alerts(fleet)))

    assert counts == [0, 1, 1, 1, 1, 2, 2]
    first = (await alerts(fleet))[0]
    assert first["text"] == (
        'The cron job "a "job" of two lines" has failed 2 times in a row, '
        "next try 2026-11-21 at 09:30 (Europe/Berlin): the agent failed: auth."
    )
    assert (first["channel_id"], first["thread_id"], first["is_error"]) == ("chat-1", None, True)
    assert len({reply["call"] for reply in await alerts(fleet)}) == 2


async def test_an_adapter_delivers_the_alert(fleet: Fleet) -> None:
    job = await started(fleet, alert_after=1)
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


async def test_the_chat_is_alerted_when_a_one_time_job_fails(fleet: Fleet) -> None:
    await started(fleet, ONCE, alert_after=9)

    await run_at(fleet, START + MINUTE_MS, status="failed", category="auth")

    (reply,) = await alerts(fleet)
    assert reply["text"] == (
        'The cron job "standup" has failed and is off now: the agent failed: auth.'
    )


# -- manual runs ----------------------------------------------------------------------------------


async def test_a_manual_run_does_not_change_the_schedule(fleet: Fleet) -> None:
    once = await started(fleet, ONCE, alert_after=1)

    assert await manual(fleet, once)
    await work(fleet, status="failed", category="auth")
    await scheduler_of(fleet).tick()

    after = await kept(fleet, once)
    assert (after.enabled, after.next_ms) == (True, START + MINUTE_MS)
    assert (after.failures, after.last_status) == (0, "failed")
    assert await alerts(fleet) == []
    (run,) = await cron_of(fleet).runs(once.id)
    assert (run.status, run.is_manual) == ("failed", True)


async def test_a_successful_manual_run_keeps_a_one_time_job(fleet: Fleet) -> None:
    once = await started(fleet, ONCE, failures=2)

    assert await manual(fleet, once)
    await work(fleet)
    await scheduler_of(fleet).tick()

    after = await kept(fleet, once)
    assert (after.next_ms, after.failures) == (START + MINUTE_MS, 0)


# -- misfires -------------------------------------------------------------------------------------


@pytest.mark.parametrize("misfire", ["skip", "run_once"])
async def test_after_a_day_asleep_a_job_that_is_on_time_runs_under_any_policy(
    fleet: Fleet, misfire: Any
) -> None:
    """A machine wakes at 8:00:20 of the next day, and the job is due every ten minutes."""
    job = await started(fleet, Schedule(cron="*/10 * * * *"), misfire=misfire)

    assert await run_at(fleet, ms("2026-11-22T08:00:20Z")) == 1

    done, skipped = await cron_of(fleet).runs(job.id)
    assert (done.status, done.due_ms) == ("done", ms("2026-11-22T08:00Z"))
    assert (skipped.status, skipped.due_ms) == ("skipped", START + 10 * MINUTE_MS)
    assert str(skipped.detail).endswith("a later due time was fired instead.")


@pytest.mark.parametrize(
    ("misfire", "why"),
    [
        ("run_once", None),
        ("skip", "it is more than an hour ago."),
    ],
)
async def test_after_a_day_asleep_a_daily_job_follows_its_misfire_policy(
    fleet: Fleet, misfire: Any, why: str | None
) -> None:
    """A machine wakes at half past ten, and the job was due at nine on both days."""
    job = await started(fleet, Schedule(cron="0 9 * * *"), misfire=misfire)

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
async def test_a_missed_one_time_job_is_never_lost(fleet: Fleet, misfire: Any) -> None:
    job = await started(fleet, ONCE, misfire=misfire)

    count = await run_at(fleet, START + 24 * HOUR_MS)

    (run,) = await cron_of(fleet).runs(job.id)
    assert run.due_ms == START + MINUTE_MS
    if misfire == "run_once":
        assert (count, run.status) == (1, "done")
    else:
        assert (count, run.status) == (0, "skipped")
        after = await kept(fleet, job)
        assert (after.enabled, after.next_ms) == (False, None)


async def test_a_clock_that_jumps_back_fires_no_due_time_twice(fleet: Fleet) -> None:
    job = await started(fleet, Schedule(cron="0 9 * * *"), misfire="run_once")
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


@pytest.mark.parametrize("what_happens", ["killed", "late", "cut"])
@pytest.mark.parametrize(
    ("step", "side"),
    [(step, side) for step in ("unsettled_runs", "settle") for side in ("before", "after")],
)
async def test_a_settler_stopped_at_any_step_settles_the_run_once(
    pair: tuple[Fleet, Fleet, Proxy], step: str, side: Side, what_happens: str
) -> None:
    """It is stopped at a step while another one checks; then it dies, continues or is cut off."""
    first, second, proxy = pair
    now_ms = await second.scripts.now_ms()
    hourly = Schedule(every_s=3600, anchor_ms=now_ms)  # not at the full hour, which may be now
    job = await add(second, hourly, next_ms=now_ms, alert_after=1)
    await scheduler_of(second).tick()
    await work(second, status="failed", category="auth")
    failpoint = proxy.arm(step, side)

    await look_together(first, second, failpoint, what_happens)

    assert statuses(await cron_of(second).runs(job.id)) == ["failed"]
    assert (await kept(second, job)).failures == 1
    assert len(await alerts(second)) == 1


async def test_a_run_of_a_removed_job_is_logged_once(
    pair: tuple[Fleet, Fleet, Proxy],
) -> None:
    first, second, proxy = pair
    job = await add(second, EVERY, next_ms=await second.scripts.now_ms())
    await scheduler_of(second).tick()
    await store(second, await kept(second, job), None)
    await work(second)
    failpoint = proxy.arm("settle", "after")
    failpoint.cut()

    await scheduler_of(first).tick()

    assert failpoint.reached.is_set()
    assert statuses(await cron_of(second).runs(job.id)) == ["done"]


async def test_a_change_of_a_job_during_its_settlement_is_kept(
    pair: tuple[Fleet, Fleet, Proxy],
) -> None:
    first, second, proxy = pair
    now_ms = await second.scripts.now_ms()
    job = await add(second, Schedule(every_s=3600), next_ms=now_ms)
    await scheduler_of(second).tick()
    await work(second, status="failed")
    failpoint = proxy.arm("settle", "before")
    checking = asyncio.create_task(scheduler_of(first).tick())
    await failpoint.wait()
    before = await kept(second, job)

    await store(second, before, replace(before, name="new"))
    failpoint.release()
    await checking
    await scheduler_of(second).tick()

    after = await kept(second, job)
    assert (after.name, after.failures) == ("new", 1)
    assert statuses(await cron_of(second).runs(job.id)) == ["failed"]


async def test_concurrent_settlers_alert_the_chat_once(four: list[Fleet]) -> None:
    one = four[0]
    job = await started(one, alert_after=1)
    for _ in range(6):
        at_ms = (await kept(one, job)).next_ms
        assert at_ms is not None
        await set_clock(one, at_ms)
        await asyncio.gather(*(scheduler_of(fleet).tick() for fleet in four))
        await work(one, status="failed", category="retryable")
        run = await cron_of(one).open_run(await kept(one, job))
        assert run is not None
        settlers = [Settler(fleet.scripts) for fleet in four]
        await asyncio.gather(*(each.settle(run) for each in settlers))

    after = await kept(one, job)
    assert after.failures == 6
    assert statuses(await cron_of(one).runs(job.id)).count("failed") == 6
    assert len(await alerts(one)) == 1


# -- other versions -------------------------------------------------------------------------------


async def test_a_damaged_line_of_the_log_hides_no_other(fleet: Fleet) -> None:
    line = {"job_id": "j", "agent": "main", "due_ms": 1, "status": "fired", "detail": None}
    newer = {**line, "due_ms": 2, "what": "ever"}
    for fields, entry in ((line, "1-1"), (newer, "2-1")):
        data = orjson.dumps({**fields, "sid": "s"})
        await fleet.scripts.client.lpush(keys.cron_job_runs("j"), f"{entry} ".encode() + data)
    await fleet.scripts.client.lpush(keys.cron_job_runs("j"), b"damaged", b"3-1 {}", b" []")

    assert [run.run_id for run in await cron_of(fleet).runs("j")] == ["s-2-1", "s-1-1"]


@pytest.mark.parametrize("stored", [b'{"v":99}', b"{"])
async def test_a_run_of_an_unreadable_job_stays_unsettled(fleet: Fleet, stored: bytes) -> None:
    job = await started(fleet)
    await set_clock(fleet, START + MINUTE_MS)
    await scheduler_of(fleet).tick()
    await fleet.scripts.client.hset(keys.CRON_JOBS, job.id, stored)
    await work(fleet)

    await scheduler_of(fleet).tick()

    assert len(await fleet.scripts.client.hkeys(keys.CRON_OPEN)) == 1
    assert await fleet.scripts.client.hget(keys.CRON_JOBS, job.id) == stored


async def test_jobs_of_a_newer_version_delay_no_other_job(fleet: Fleet) -> None:
    job = await started(fleet)
    client = fleet.scripts.client
    for number in range(100):
        newer = orjson.loads(job.encode()) | {"id": f"n{number}", "v": 99}
        await client.hset(keys.CRON_JOBS, f"n{number}", orjson.dumps(newer))
        await client.zadd(keys.CRON_DUE, {f"n{number}": START - 1000})
    await set_clock(fleet, START + MINUTE_MS)

    assert await scheduler_of(fleet).tick() == 1
