"""Jobs are fired once for each due time by any number of schedulers, even if one is killed."""

import asyncio
import contextlib
import itertools
import os
import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.cron.schedule import Schedule
from remoteclaw.cron.store import MAX_RUNS_OF_JOB
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.turns.inbound import GRACE_MS
from remoteclaw.messages import SessionKey
from tests.support.command import REMOTECLAW, start_program
from tests.support.cron import cron_of, look_together, scheduler_of
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
from tests.support.servers import installed_servers, running_server
from tests.support.stack import REPLIES, Stack, message
from tests.support.up import remoteclaw, running
from tests.support.waiting import HANG_S, eventually

# -- firing ---------------------------------------------------------------------------------------


async def test_a_due_job_sends_its_session_a_message(fleet: Fleet) -> None:
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
    kept = await job_of(fleet, job.id)
    assert (kept.last_ms, kept.next_ms) == (due, due + 24 * HOUR_MS)


async def test_a_one_time_job_is_removed_after_it_succeeds(fleet: Fleet) -> None:
    await set_clock(fleet, ms("2026-11-21T08:30Z"))
    job = await add(fleet, Schedule(at="2026-11-21T09:00"))
    await set_clock(fleet, ms("2026-11-21T09:00Z"))

    assert await scheduler_of(fleet).tick() == 1
    assert await fleet.scripts.client.exists(keys.CRON_JOBS, keys.CRON_DUE) == 1
    assert await work(fleet) == 1
    assert await scheduler_of(fleet).tick() == 0

    assert await cron_of(fleet).job(job.id) is None
    left = (keys.CRON_JOBS, keys.CRON_DUE, keys.CRON_OPEN)
    assert await fleet.scripts.client.exists(*left) == 0
    (run,) = await cron_of(fleet).runs(job.id)
    assert (run.status, run.due_ms) == ("done", ms("2026-11-21T09:00Z"))


async def test_a_persons_message_moves_a_cron_session_to_the_agents_lane(
    fleet: Fleet,
) -> None:
    await add(fleet, Schedule(every_s=60), next_ms=await fleet.scripts.now_ms())
    await scheduler_of(fleet).tick()

    await fleet.inbound.append(message("hello"), agent="main")

    view = await fleet.sessions.view(SESSION.sid)
    assert view is not None
    assert (view.lane, view.waiting) == ("agents", 2)


async def test_many_jobs_due_in_one_minute_are_all_fired(fleet: Fleet) -> None:
    now_ms = await fleet.scripts.now_ms()
    for number in range(250):
        session = replace(SESSION, user=f"user {number}")
        await add(fleet, Schedule(every_s=3600), session=session, next_ms=now_ms)

    assert await scheduler_of(fleet).tick() == 250


async def test_the_stored_runs_of_a_job_are_bounded(fleet: Fleet) -> None:
    now_ms = await fleet.scripts.now_ms()
    job = await add(fleet, Schedule(every_s=60, anchor_ms=now_ms))
    for minute in range(1, MAX_RUNS_OF_JOB + 6):
        await set_clock(fleet, now_ms + minute * 60_000)
        await scheduler_of(fleet).tick()
        await work(fleet)
    await scheduler_of(fleet).tick()

    runs = await cron_of(fleet).runs(job.id)

    assert len(runs) == MAX_RUNS_OF_JOB
    assert runs[0].due_ms == now_ms + (MAX_RUNS_OF_JOB + 5) * 60_000
    assert await fleet.scripts.client.pttl(keys.cron_job_runs(job.id)) > 0


# -- concurrent schedulers ------------------------------------------------------------------------


async def test_a_due_time_that_two_schedulers_saw_is_fired_once(fleet: Fleet) -> None:
    """This holds even if the second scheduler sees another missed due time as the latest."""
    now_ms = await fleet.scripts.now_ms()
    job = await add(fleet, Schedule(every_s=60, anchor_ms=now_ms), next_ms=now_ms)
    data = job.encode()

    first = await scheduler_of(fleet)._handle(job.id, now_ms, data, now_ms)
    second = await scheduler_of(fleet)._handle(job.id, now_ms, data, now_ms + 60_000)

    assert (first, second) == ("fired", "handled")
    assert len(await entries(fleet)) == 1
    assert [run.status for run in await cron_of(fleet).runs(job.id)] == ["fired"]
    kept = await job_of(fleet, job.id)
    assert kept.next_ms == now_ms + 60_000


async def test_a_job_changed_during_a_check_is_fired_as_changed(fleet: Fleet) -> None:
    now_ms = await fleet.scripts.now_ms()
    job = await add(fleet, Schedule(every_s=60), next_ms=now_ms)
    before = await job_of(fleet, job.id)
    await store(fleet, before, replace(before, message="Something else."))

    assert await scheduler_of(fleet)._handle(job.id, now_ms, before.stored, now_ms) == "handled"
    assert await entries(fleet) == []
    assert await scheduler_of(fleet).tick() == 1

    assert [entry.message.text for entry in await entries(fleet)] == ["Something else."]


async def test_a_change_does_not_undo_a_firing(fleet: Fleet) -> None:
    now_ms = await fleet.scripts.now_ms()
    job = await add(fleet, Schedule(every_s=60), next_ms=now_ms)
    before = await job_of(fleet, job.id)
    await scheduler_of(fleet).tick()

    with pytest.raises(CallRefused, match="has changed at the same moment"):
        await store(fleet, before, replace(before, name="new"))

    assert await scheduler_of(fleet).tick() == 0
    assert len(await entries(fleet)) == 1


async def test_four_schedulers_fire_each_due_time_of_many_jobs_once(four: list[Fleet]) -> None:
    start = await four[0].scripts.now_ms()
    sessions = [replace(SESSION, user=f"user {number}") for number in range(8)]
    for session in sessions:
        await add(four[0], Schedule(every_s=60, anchor_ms=start), session=session)

    for minute in range(1, 11):
        await set_clock(four[0], start + minute * 60_000)
        counts = await asyncio.gather(*(scheduler_of(fleet).tick() for fleet in four))
        assert sum(counts) == len(sessions)
        for session in sessions:
            (entry,) = await entries(four[0], session)
            assert entry.message.timestamp == start + minute * 60_000
            await work(four[0], session)
    await asyncio.gather(*(scheduler_of(fleet).tick() for fleet in four))

    runs = await cron_of(four[0]).runs()
    assert statuses(runs) == ["done"] * 80
    assert sorted(fired(runs)) == [
        start + minute * 60_000 for minute in range(1, 11) for _ in sessions
    ]


# -- stopped schedulers ---------------------------------------------------------------------------


@pytest.mark.parametrize("what_happens", ["killed", "late", "cut"])
@pytest.mark.parametrize(
    ("step", "side"),
    [(step, side) for step in ("due_jobs", "fire") for side in ("before", "after")]
    + [("hint", "before")],
)
async def test_a_scheduler_stopped_at_any_step_fires_the_job_once(
    pair: tuple[Fleet, Fleet, Proxy], step: str, side: Side, what_happens: str
) -> None:
    """It is stopped at a step while another one checks; then it dies, continues or is cut off."""
    first, second, proxy = pair
    now_ms = await second.scripts.now_ms()
    job = await add(second, Schedule(every_s=3600), next_ms=now_ms)
    failpoint = proxy.arm(step, side)

    await look_together(first, second, failpoint, what_happens)

    assert [entry.message.timestamp for entry in await entries(second)] == [now_ms]
    assert fired(await cron_of(second).runs(job.id)) == [now_ms]
    kept = await job_of(second, job.id)
    assert kept.next_ms is not None
    assert kept.next_ms > now_ms
    # The sweeper repairs a hint that was lost with its scheduler.
    await second.scripts.client.zadd(keys.ACTIVE, {SESSION.sid: now_ms - GRACE_MS})
    await second.sweeper.sweep()
    assert await second.scripts.client.llen("rq:queue:background") >= 1


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_due_time_is_fired_once_if_its_process_is_killed(stack: Stack, side: Side) -> None:
    proxy = await stack.proxied()
    stack.configure(redis_url=proxy.url)
    job = await add(stack.fleet, Schedule(every_s=3600))
    failpoint = proxy.arm("fire", side)
    with _sweeping(stack) as one, _sweeping(stack) as other:
        await eventually(cron_of(stack.fleet).has_scheduler)
        now_ms = await stack.fleet.scripts.now_ms()
        before = await job_of(stack.fleet, job.id)
        await store(stack.fleet, before, replace(before, next_ms=now_ms))

        pid = await failpoint.wait()
        os.kill(pid, signal.SIGKILL)
        failpoint.cut()
        await eventually(lambda: one.poll() is not None or other.poll() is not None)
        await eventually(lambda: entries(stack.fleet))

        # The other process checks again, as the scheduler.
        await stack.fleet.scripts.client.delete(keys.CRON_SCHEDULER)
        await eventually(cron_of(stack.fleet).has_scheduler)
        assert [entry.message.timestamp for entry in await entries(stack.fleet)] == [now_ms]
        assert fired(await cron_of(stack.fleet).runs(job.id)) == [now_ms]


@contextlib.contextmanager
def _sweeping(stack: Stack) -> Any:
    """Run `remoteclaw sweep`."""
    log = stack.home.logs / "sweep.log"
    process = start_program([REMOTECLAW, "sweep"], env=stack.env(), log=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


# -- jobs that can't be fired ---------------------------------------------------------------------


async def test_an_invalid_stored_job_is_switched_off_and_blocks_no_other(fleet: Fleet) -> None:
    now_ms = await fleet.scripts.now_ms()
    lost = await add(fleet, Schedule(cron="0 9 * * *", tz="Mars/Base"), next_ms=now_ms)
    client = fleet.scripts.client
    await client.hset(keys.CRON_JOBS, "damaged", b"{")
    await client.zadd(keys.CRON_DUE, {"damaged": now_ms, "gone": now_ms})
    await add(fleet, Schedule(every_s=60), next_ms=now_ms)

    assert await scheduler_of(fleet).tick() == 1
    assert await scheduler_of(fleet).tick() == 0

    (run,) = await cron_of(fleet).runs(lost.id)
    assert run.status == "failed"
    assert str(run.detail).startswith("There is no time zone 'Mars/Base': ")
    kept = await job_of(fleet, lost.id)
    assert (kept.enabled, kept.next_ms) == (False, None)
    assert await client.zscore(keys.CRON_DUE, "damaged") == now_ms
    assert await client.zscore(keys.CRON_DUE, "gone") is None


async def test_a_full_server_fires_no_job_until_it_has_room(directory: Path) -> None:
    with running_server(installed_servers()[0], directory, "--maxmemory", "20mb") as server:
        fleet = Fleet.open(server.url)
        client = fleet.scripts.client
        now_ms = await fleet.scripts.now_ms()
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


# -- end to end -----------------------------------------------------------------------------------


async def test_the_answer_of_a_cron_job_goes_to_its_chat(stack: Stack) -> None:
    await stack.start_worker()
    job = await add(stack.fleet, Schedule(every_s=3600), next_ms=await stack.fleet.scripts.now_ms())

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


async def test_up_fires_a_job_that_the_cli_added(home: Home) -> None:
    with running(home):
        for seconds in (3, 30):  # a busy machine may not have added it within three
            soon = datetime.now(UTC) + timedelta(seconds=seconds)
            added = remoteclaw(
                home,
                *("cron", "add", soon.isoformat(), "hello", "--session", str(SESSION)),
            )
            if job_id := added.stdout.strip():
                break

        async with contextlib.aclosing(Fleet.open(f"unix://{home.redis_socket}")) as fleet:

            async def is_done() -> bool:
                return statuses(await cron_of(fleet).runs(job_id)) == ["done"]

            await eventually(is_done)

        assert " done " in remoteclaw(home, "cron", "runs", job_id).stdout
        listed = remoteclaw(home, "cron", "list")
        assert job_id not in listed.stdout
        assert listed.stderr == ""
