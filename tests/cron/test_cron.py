"""Jobs are fired once for each due time, however many schedulers look and however they end."""

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest

from remoteclaw.config.home import Home
from remoteclaw.cron.job import Policy, State
from remoteclaw.cron.schedule import GRACE_S, Schedule
from remoteclaw.cron.store import MOST_RUNS_OF_JOB
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import Scripts, open_redis
from remoteclaw.fleet.inbound import GRACE_MS
from remoteclaw.messages import SessionKey
from tests.conftest import shifted
from tests.support.command import start_program
from tests.support.cron import cron_of, scheduler_of
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
from tests.support.servers import Server, installed_servers, running_server
from tests.support.stack import REPLIES, Stack, message
from tests.support.terminal import REMOTECLAW
from tests.support.up import remoteclaw, running
from tests.support.waiting import HANG_S, eventually, eventually_sync

LATE_MS = GRACE_S * 1000


# -- firing ---------------------------------------------------------------------------------------


async def test_a_job_that_is_due_gives_its_session_a_message(fleet: Fleet) -> None:
    await set_clock(fleet, ms("2026-11-21T08:30Z"))
    job = await add(fleet, Schedule(cron="0 10 * * *", tz="Europe/Berlin"))
    due = ms("2026-11-21T09:00Z")

    await set_clock(fleet, due - 1000)
    assert await scheduler_of(fleet).tick() == 0
    await set_clock(fleet, due + 300)
    assert await scheduler_of(fleet).tick() == 1
    assert await scheduler_of(fleet).tick() == 0

    (entry,) = await entries(fleet)
    assert (entry.origin, entry.deliver) == ("cron", "channel")
    assert entry.message.id == f"cron-{job.id}-{due}"
    assert entry.message.text == "What is new?"
    assert entry.message.user_name == "cron job standup"
    assert entry.message.timezone == "Europe/Berlin"
    assert entry.message.timestamp == due
    assert SessionKey.of(entry.message, agent="main") == SESSION
    view = await fleet.sessions.view(SESSION.sid)
    assert view is not None
    assert (view.status, view.lane, view.waiting) == ("scheduled", "background", 1)
    assert await fleet.scripts.client.llen("rq:queue:background") == 1
    kept = await cron_of(fleet).job(job.id)
    assert kept is not None
    assert (kept.last_ms, kept.next_ms) == (due, due + 24 * HOUR_MS)


async def test_a_run_names_its_message(fleet: Fleet) -> None:
    job = await add(fleet, Schedule(every_s=60), next_ms=await cron_of(fleet).now_ms())
    await scheduler_of(fleet).tick()

    (run,) = await cron_of(fleet).runs(job.id)

    assert (run.job_id, run.agent, run.status) == (job.id, "main", "fired")
    assert await cron_of(fleet).runs() == [run]
    sid, _, entry_id = str(run.run_id).partition("-")
    outcome = await fleet.outcomes.read(sid, entry_id)
    assert outcome is not None
    assert outcome.status == "accepted"


async def test_a_job_that_is_due_once_is_gone_when_it_went_well(fleet: Fleet) -> None:
    await set_clock(fleet, ms("2026-11-21T08:30Z"))
    job = await add(fleet, Schedule(at="2026-11-21T09:00"))
    await set_clock(fleet, ms("2026-11-21T09:00Z"))

    assert await scheduler_of(fleet).tick() == 1
    assert await fleet.scripts.client.exists(keys.CRON_JOBS, keys.CRON_DUE) == 1
    assert await work(fleet) == 1
    assert await scheduler_of(fleet).tick() == 0

    assert await cron_of(fleet).job(job.id) is None
    left = (keys.CRON_JOBS, keys.CRON_DUE, keys.CRON_OPEN, keys.CRON_LOOKS)
    assert await fleet.scripts.client.exists(*left) == 0
    (run,) = await cron_of(fleet).runs(job.id)
    assert (run.status, run.due_ms) == ("done", ms("2026-11-21T09:00Z"))


async def test_a_message_of_a_person_does_not_wait_behind_the_job_that_came_first(
    fleet: Fleet,
) -> None:
    await add(fleet, Schedule(every_s=60), next_ms=await cron_of(fleet).now_ms())
    await scheduler_of(fleet).tick()

    await fleet.inbound.append(message("hello"), agent="main")

    view = await fleet.sessions.view(SESSION.sid)
    assert view is not None
    assert (view.lane, view.waiting) == ("agents", 2)


@pytest.mark.parametrize(
    ("zone", "days", "cron", "times"),
    [
        ("Europe/Berlin", "2026-03-28", "30 2 * * *",
         ["03-28 02:30+0100", "03-29 03:00+0200", "03-30 02:30+0200"]),
        ("Europe/Berlin", "2026-10-24", "30 2 * * *",
         ["10-24 02:30+0200", "10-25 02:30+0200", "10-26 02:30+0100"]),
        ("America/New_York", "2026-03-07", "30 2 * * *",
         ["03-07 02:30-0500", "03-08 03:00-0400", "03-09 02:30-0400"]),
        ("America/New_York", "2026-10-31", "30 1 * * *",
         ["10-31 01:30-0400", "11-01 01:30-0400", "11-02 01:30-0500"]),
        ("Australia/Lord_Howe", "2026-10-03", "15 2 * * *",
         ["10-03 02:15+1030", "10-04 02:30+1100", "10-05 02:15+1100"]),
        ("Australia/Lord_Howe", "2026-04-04", "45 1 * * *",
         ["04-04 01:45+1100", "04-05 01:45+1100", "04-06 01:45+1030"]),
    ],
)  # fmt: skip
async def test_nights_in_which_clocks_are_changed(
    fleet: Fleet, zone: str, days: str, cron: str, times: list[str]
) -> None:
    start = int(datetime.fromisoformat(days).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)
    await set_clock(fleet, start)
    job = await add(fleet, Schedule(cron=cron, tz=zone))
    told: list[int] = []

    for quarters in range(60 * 4):
        await set_clock(fleet, start + quarters * HOUR_MS // 4)
        if await scheduler_of(fleet).tick():
            told += [entry.message.timestamp for entry in await entries(fleet)]
            await work(fleet)
    await scheduler_of(fleet).tick()

    due = [ms(f"2026-{time[:5]}T{time[6:]}") for time in times]
    runs = await cron_of(fleet).runs(job.id)
    assert (fired(runs), statuses(runs)) == (due[::-1], ["done"] * 3)
    assert told == due


async def test_many_jobs_of_one_minute_are_all_fired(fleet: Fleet) -> None:
    now_ms = await cron_of(fleet).now_ms()
    for number in range(250):
        session = replace(SESSION, user=f"user {number}")
        await add(fleet, Schedule(every_s=3600), session=session, next_ms=now_ms)

    assert await scheduler_of(fleet).tick() == 250


async def test_what_runs_leave_behind_is_bounded(fleet: Fleet) -> None:
    now_ms = await cron_of(fleet).now_ms()
    job = await add(fleet, Schedule(every_s=60, anchor_ms=now_ms))
    for minute in range(1, MOST_RUNS_OF_JOB + 6):
        await set_clock(fleet, now_ms + minute * 60_000)
        await scheduler_of(fleet).tick()
        await work(fleet)
    await scheduler_of(fleet).tick()

    runs = await cron_of(fleet).runs(job.id)

    assert len(runs) == MOST_RUNS_OF_JOB
    assert runs[0].due_ms == now_ms + (MOST_RUNS_OF_JOB + 5) * 60_000
    assert await fleet.scripts.client.pttl(keys.cron_runs(job.id)) > 0


async def test_it_is_known_that_a_scheduler_looks(fleet: Fleet) -> None:
    assert not await cron_of(fleet).has_scheduler()

    await scheduler_of(fleet).tick()

    assert await cron_of(fleet).has_scheduler()
    assert await fleet.scripts.client.pttl(keys.CRON_SCHEDULER) > 0


# -- what was missed ------------------------------------------------------------------------------


async def test_the_latest_of_what_was_missed_is_run_once(fleet: Fleet) -> None:
    await set_clock(fleet, ms("2026-11-21T11:59Z"))
    job = await add(fleet, Schedule(cron="*/10 * * * *"))

    await set_clock(fleet, ms("2026-11-21T12:34Z"))
    assert await scheduler_of(fleet).tick() == 1

    latest, first = await cron_of(fleet).runs(job.id)
    assert (latest.status, latest.due_ms) == ("fired", ms("2026-11-21T12:30Z"))
    assert (first.status, first.due_ms, first.run_id) == ("skipped", ms("2026-11-21T12:00Z"), None)
    assert first.detail == "No scheduler was there to fire it; a later due time was fired instead."
    kept = await cron_of(fleet).job(job.id)
    assert kept is not None
    assert kept.next_ms == ms("2026-11-21T12:40Z")


@pytest.mark.parametrize("schedule", [{"cron": "0 9 * * *"}, {"at": "2026-11-21T09:00"}])
async def test_what_is_an_hour_late_is_only_noted(fleet: Fleet, schedule: Any) -> None:
    await set_clock(fleet, ms("2026-11-21T08:00Z"))
    job = await add(fleet, Schedule(**schedule))
    due = ms("2026-11-21T09:00Z")

    await set_clock(fleet, due + LATE_MS)
    assert await scheduler_of(fleet).tick() == 0

    assert await entries(fleet) == []
    (run,) = await cron_of(fleet).runs(job.id)
    assert (run.status, run.due_ms) == ("skipped", due)
    assert run.detail == "No scheduler was there to fire it, and it is more than an hour ago."
    kept = await cron_of(fleet).job(job.id)
    assert (kept.next_ms if kept else None) == (due + 24 * HOUR_MS if "cron" in schedule else None)


# -- at the same time -----------------------------------------------------------------------------


async def test_a_due_time_that_two_have_seen_is_taken_by_one(fleet: Fleet) -> None:
    """Also if for the later one another of the due times that were missed is the latest."""
    now_ms = await cron_of(fleet).now_ms()
    job = await add(fleet, Schedule(every_s=60, anchor_ms=now_ms), next_ms=now_ms)
    data = job.encode()

    first = await scheduler_of(fleet)._handle(job.id, now_ms, data, now_ms)
    second = await scheduler_of(fleet)._handle(job.id, now_ms, data, now_ms + 60_000)

    assert (first, second) == ("fired", "handled")
    assert len(await entries(fleet)) == 1
    assert [run.status for run in await cron_of(fleet).runs(job.id)] == ["fired"]
    kept = await cron_of(fleet).job(job.id)
    assert kept is not None
    assert kept.next_ms == now_ms + 60_000


async def test_a_clock_that_is_set_back_fires_nothing_again(fleet: Fleet) -> None:
    now_ms = await cron_of(fleet).now_ms()
    job = await add(fleet, Schedule(every_s=60, anchor_ms=now_ms - 60_000), next_ms=now_ms)
    await scheduler_of(fleet).tick()
    assert await work(fleet) == 1
    await scheduler_of(fleet).tick()
    kept = await cron_of(fleet).job(job.id)
    assert kept is not None

    # Enabled anew by a clock that is behind, it is due at the same time again.
    assert await store(fleet, kept, replace(kept, next_ms=now_ms)) == "done"
    assert await scheduler_of(fleet).tick() == 0

    assert await entries(fleet) == []
    runs = await cron_of(fleet).runs(job.id)
    assert fired(runs) == [now_ms]
    assert sorted(statuses(runs)) == ["done", "skipped"]
    assert {run.detail for run in runs} == {None, "It was fired before: the clock was set back."}
    after = await cron_of(fleet).job(job.id)
    assert after is not None
    assert (after.next_ms, after.state.running) == (kept.next_ms, None)


async def test_a_job_that_is_changed_meanwhile_is_not_fired_as_it_was(fleet: Fleet) -> None:
    now_ms = await cron_of(fleet).now_ms()
    job = await add(fleet, Schedule(every_s=60), next_ms=now_ms)
    before = await cron_of(fleet).job(job.id)
    assert before is not None
    await store(fleet, before, replace(before, message="Something else."))

    assert await scheduler_of(fleet)._handle(job.id, now_ms, before.stored, now_ms) == "handled"
    assert await entries(fleet) == []
    assert await scheduler_of(fleet).tick() == 1

    assert [entry.message.text for entry in await entries(fleet)] == ["Something else."]


async def test_a_job_that_is_removed_meanwhile_is_not_fired(fleet: Fleet) -> None:
    now_ms = await cron_of(fleet).now_ms()
    job = await add(fleet, Schedule(every_s=60), next_ms=now_ms)
    before = await cron_of(fleet).job(job.id)
    await store(fleet, before, None)

    assert await scheduler_of(fleet)._handle(job.id, now_ms, job.encode(), now_ms) == "handled"

    assert await entries(fleet) == []
    assert await cron_of(fleet).runs(job.id) == []


async def test_a_change_does_not_undo_a_firing(fleet: Fleet) -> None:
    now_ms = await cron_of(fleet).now_ms()
    job = await add(fleet, Schedule(every_s=60), next_ms=now_ms)
    before = await cron_of(fleet).job(job.id)
    assert before is not None
    await scheduler_of(fleet).tick()

    assert await store(fleet, before, replace(before, name="new")) == "changed"

    assert await scheduler_of(fleet).tick() == 0
    assert len(await entries(fleet)) == 1


async def test_four_schedulers_fire_each_due_time_of_many_jobs_once(any_server: Server) -> None:
    fleets = [
        Fleet.open(
            "unix:///nobody",
            lease_s=30,
            scripts=Scripts(open_redis(any_server.url), edit=shifted),
        )
        for _ in range(4)
    ]
    await fleets[0].scripts.client.flushall()
    start = await cron_of(fleets[0]).now_ms()
    sessions = [replace(SESSION, user=f"user {number}") for number in range(8)]
    for session in sessions:
        await add(fleets[0], Schedule(every_s=60, anchor_ms=start), session=session)

    for minute in range(1, 11):
        await set_clock(fleets[0], start + minute * 60_000)
        looks = await asyncio.gather(*(scheduler_of(fleet).tick() for fleet in fleets))
        assert sum(looks) == len(sessions)
        for session in sessions:
            (entry,) = await entries(fleets[0], session)
            assert entry.message.timestamp == start + minute * 60_000
            await work(fleets[0], session)
    await asyncio.gather(*(scheduler_of(fleet).tick() for fleet in fleets))

    runs = await cron_of(fleets[0]).runs()
    assert statuses(runs) == ["done"] * 80
    assert sorted(fired(runs)) == [
        start + minute * 60_000 for minute in range(1, 11) for _ in sessions
    ]
    for fleet in fleets:
        await fleet.aclose()


# -- schedulers that end --------------------------------------------------------------------------


@pytest.fixture
async def pair(any_server: Server, directory: Path) -> AsyncIterator[tuple[Fleet, Fleet, Proxy]]:
    """Two fleets on one server, the first one behind a proxy; their clock can be set."""
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
    [(step, side) for step in ("due", "fire") for side in ("before", "after")]
    + [("hint", "before")],
)
async def test_a_scheduler_at(
    pair: tuple[Fleet, Fleet, Proxy], step: str, side: Side, what_happens: str
) -> None:
    """Each is stopped at a step while another one looks; then it dies, goes on, or is cut off."""
    first, second, proxy = pair
    now_ms = await cron_of(second).now_ms()
    job = await add(second, Schedule(every_s=3600), next_ms=now_ms)
    failpoint = proxy.arm(step, side)
    looking = asyncio.create_task(scheduler_of(first).tick())
    await failpoint.wait()

    if what_happens == "killed":
        looking.cancel()
        failpoint.cut()
        await asyncio.wait((looking,))
        await scheduler_of(second).tick()
    else:
        await scheduler_of(second).tick()
        failpoint.release() if what_happens == "late" else failpoint.cut()
        await looking

    assert [entry.message.timestamp for entry in await entries(second)] == [now_ms]
    assert fired(await cron_of(second).runs(job.id)) == [now_ms]
    kept = await cron_of(second).job(job.id)
    assert kept is not None
    assert kept.next_ms is not None
    assert kept.next_ms > now_ms
    # A hint that was lost with its scheduler is the sweeper's to repair.
    await second.scripts.client.zadd(keys.ACTIVE, {SESSION.sid: now_ms - GRACE_MS})
    await second.sweeper.sweep()
    assert await second.scripts.client.llen("rq:queue:background") >= 1


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_process_that_is_killed_at_its_firing(stack: Stack, side: Side) -> None:
    proxy = await stack.proxied()
    stack.configure(redis_url=proxy.url)
    job = await add(stack.fleet, Schedule(every_s=3600))
    failpoint = proxy.arm("fire", side)
    with _sweeping(stack) as one, _sweeping(stack) as other:
        await eventually(cron_of(stack.fleet).has_scheduler)
        now_ms = await cron_of(stack.fleet).now_ms()
        before = await cron_of(stack.fleet).job(job.id)
        assert before is not None
        await store(stack.fleet, before, replace(before, next_ms=now_ms))

        pid = await failpoint.wait()
        os.kill(pid, signal.SIGKILL)
        failpoint.cut()
        await eventually(lambda: one.poll() is not None or other.poll() is not None)
        await eventually(lambda: entries(stack.fleet))

        # The other one looks on, and again.
        await stack.fleet.scripts.client.delete(keys.CRON_SCHEDULER)
        await eventually(cron_of(stack.fleet).has_scheduler)
        assert [entry.message.timestamp for entry in await entries(stack.fleet)] == [now_ms]
        assert fired(await cron_of(stack.fleet).runs(job.id)) == [now_ms]


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_process_that_is_killed_at_its_settling(stack: Stack, side: Side) -> None:
    proxy = await stack.proxied()
    stack.configure(redis_url=proxy.url)
    now_ms = await cron_of(stack.fleet).now_ms()
    loud = Policy(alert_after=1)
    job = await add(stack.fleet, Schedule(every_s=3600), next_ms=now_ms, policy=loud)
    await scheduler_of(stack.fleet).tick()
    await work(stack.fleet, status="failed", category="auth")
    failpoint = proxy.arm("settle", side)
    with _sweeping(stack) as one, _sweeping(stack) as other:
        pid = await failpoint.wait()
        os.kill(pid, signal.SIGKILL)
        failpoint.cut()
        await eventually(lambda: one.poll() is not None or other.poll() is not None)

        async def is_settled() -> bool:
            return not await stack.fleet.scripts.client.exists(keys.CRON_OPEN, keys.CRON_LOOKS)

        # The other one looks on, and again.
        await eventually(is_settled)
        await stack.fleet.scripts.client.delete(keys.CRON_SCHEDULER)
        await eventually(cron_of(stack.fleet).has_scheduler)
        assert statuses(await cron_of(stack.fleet).runs(job.id)) == ["failed"]
        kept = await cron_of(stack.fleet).job(job.id)
        assert kept is not None
        assert kept.state.failures == 1
        assert await stack.fleet.scripts.client.xlen(REPLIES) == 1


@contextlib.contextmanager
def _sweeping(stack: Stack) -> Any:
    """Have a `remoteclaw sweep` running."""
    log = stack.home.logs / "sweep.log"
    process = start_program([REMOTECLAW, "sweep"], env=stack.env(), log=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


# -- what can't be fired --------------------------------------------------------------------------


async def test_a_job_that_makes_no_sense_any_more_stops_no_other(fleet: Fleet) -> None:
    now_ms = await cron_of(fleet).now_ms()
    lost = await add(fleet, Schedule(cron="0 9 * * *", tz="Mars/Base"), next_ms=now_ms)
    client = fleet.scripts.client
    await client.hset(keys.CRON_JOBS, "damaged", b"{")
    await client.zadd(keys.CRON_DUE, {"damaged": now_ms, "gone": now_ms})
    await add(fleet, Schedule(every_s=60), next_ms=now_ms)

    assert await scheduler_of(fleet).tick() == 1
    assert await scheduler_of(fleet).tick() == 0

    (run,) = await cron_of(fleet).runs(lost.id)
    assert run.status == "failed"
    assert str(run.detail).startswith("There is no time zone 'Mars/Base'; ")
    kept = await cron_of(fleet).job(lost.id)
    assert kept is not None
    assert (kept.enabled, kept.next_ms) == (True, None)
    assert await client.zcard(keys.CRON_DUE) == 1


async def test_a_job_of_a_newer_version_waits_for_its_scheduler(fleet: Fleet) -> None:
    now_ms = await cron_of(fleet).now_ms()
    client = fleet.scripts.client
    await client.hset(keys.CRON_JOBS, "newer", b'{"v":99,"what":"ever"}')
    await client.zadd(keys.CRON_DUE, {"newer": now_ms})

    assert await scheduler_of(fleet).tick() == 0

    assert await client.zscore(keys.CRON_DUE, "newer") == now_ms
    assert await cron_of(fleet).jobs() == []


async def test_a_full_server_fires_nothing_until_there_is_room(directory: Path) -> None:
    with running_server(installed_servers()[0], directory, "--maxmemory", "20mb") as server:
        fleet = Fleet.open(server.url, lease_s=30)
        client = fleet.scripts.client
        now_ms = await cron_of(fleet).now_ms()
        await add(fleet, Schedule(every_s=3600), next_ms=now_ms)
        for number in itertools.count():
            info = await client.info("memory")
            if info["used_memory"] / info["maxmemory"] > 0.85:
                break
            await client.set(f"ballast-{number}", b"x" * 200_000)

        assert await scheduler_of(fleet).tick() == 0
        assert await client.zcard(keys.CRON_DUE) == 1
        await client.delete(*(f"ballast-{number}" for number in range(200)))
        assert await scheduler_of(fleet).tick() == 1

        assert len(await entries(fleet)) == 1
        await fleet.aclose()


# -- the whole way --------------------------------------------------------------------------------


async def test_the_answer_goes_to_the_chat(stack: Stack) -> None:
    await stack.start_worker()
    job = await add(
        stack.fleet, Schedule(every_s=3600), next_ms=await cron_of(stack.fleet).now_ms()
    )

    await scheduler_of(stack.fleet).tick()

    (run,) = await cron_of(stack.fleet).runs(job.id)
    sid, _, entry_id = str(run.run_id).partition("-")
    outcome = await stack.fleet.outcomes.wait(sid, entry_id, timeout_s=HANG_S)
    assert outcome is not None
    assert outcome.status == "done"
    await scheduler_of(stack.fleet).tick()
    (settled,) = await cron_of(stack.fleet).runs(job.id)
    assert (settled.status, settled.run_id, settled.detail) == ("done", run.run_id, None)
    assert settled.duration_ms is not None
    assert await stack.fleet.scripts.client.xlen(REPLIES) == 1


async def test_an_agent_that_fails_is_left_alone_and_the_chat_is_told(stack: Stack) -> None:
    await stack.start_worker()
    now_ms = await cron_of(stack.fleet).now_ms()
    job = await add(
        stack.fleet,
        Schedule(every_s=60, anchor_ms=now_ms),
        next_ms=now_ms,
        message="fail",
        state=State(failures=2),
        policy=Policy(alert_after=3),
    )

    await scheduler_of(stack.fleet).tick()
    (run,) = await cron_of(stack.fleet).runs(job.id)
    sid, _, entry_id = str(run.run_id).partition("-")
    await stack.fleet.outcomes.wait(sid, entry_id, timeout_s=HANG_S)
    await scheduler_of(stack.fleet).tick()

    skipped, failed = await cron_of(stack.fleet).runs(job.id)
    assert (failed.status, failed.run_id) == ("failed", run.run_id)
    assert skipped.detail == "It had failed 3 times in a row, so it pauses for 120 s."
    kept = await cron_of(stack.fleet).job(job.id)
    assert kept is not None
    assert kept.next_ms == now_ms + 3 * 60_000
    found: Any = await stack.fleet.scripts.client.xrange(REPLIES)
    told = [orjson.loads(fields[b"reply"])["text"] for _, fields in found]
    assert told[-1].startswith('The cron job "standup" has failed 3 times in a row, next try ')


def test_up_fires_what_the_command_line_adds(home: Home) -> None:
    with running(home):
        for seconds in (3, 30):  # a busy machine may not have added it within three
            soon = datetime.now(UTC) + timedelta(seconds=seconds)
            added = remoteclaw(
                home,
                *("cron", "add", "--name", "soon", "--message", "hello", "--at", soon.isoformat()),
                *("--session", str(SESSION)),
            )
            if job_id := added.stdout.strip():
                break

        eventually_sync(lambda: " done " in remoteclaw(home, "cron", "runs", job_id).stdout)

        listed = remoteclaw(home, "cron", "list")
        assert job_id not in listed.stdout
        assert listed.stderr == ""
