"""The cron tools: which jobs are stored, and which messages they send."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from remoteclaw.config.load import load_config
from remoteclaw.cron.calls import MAX_JOBS
from remoteclaw.cron.job import Job
from remoteclaw.cron.schedule import Schedule
from remoteclaw.errors import CallError, CallRefused
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import Scripts, open_redis
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.gateway.auth.principals import Agent, Operator
from remoteclaw.gateway.methods.cron import HANDLERS
from remoteclaw.host.tokens import digest
from remoteclaw.messages import SessionKey, has_read_web
from remoteclaw.tools.catalog import TOOLS
from tests.conftest import shifted
from tests.support import jobs
from tests.support.cli import refused as cli_refused
from tests.support.cli import run as cli
from tests.support.cron import calls_of, cron_of, scheduler_of
from tests.support.hostile import HOSTILE
from tests.support.stack import Stack, message
from tests.support.turns import Turn, begin_turn, gateway

ADMIN = Operator("test", "admin", "c")
KEY = "main/test/default/chat-1:bob:_"
#: A valid job; each test changes some of its fields.
JOB: dict[str, Any] = {
    "name": "standup",
    "schedule": {"every": 3600},
    "message": "What is new?",
}


@pytest.fixture(autouse=True)
def owners(stack: Stack) -> None:
    stack.configure(channels={"test": {"owners": ["alice", "bob"]}})


async def call_with_effects(
    stack: Stack, caller: Turn | Operator, tool: str, **params: Any
) -> tuple[Any, list[dict[str, Any]]]:
    """Call a tool; return its answer and its side effects."""
    principal = caller.agent if isinstance(caller, Turn) else caller
    options = {name: params.pop(name) for name in ("call_id", "session_key") if name in params}
    return await gateway(stack.fleet, stack.home, HANDLERS).call(principal, tool, params, **options)


async def call(stack: Stack, caller: Turn | Operator, tool: str, **params: Any) -> Any:
    return (await call_with_effects(stack, caller, tool, **params))[0]


async def add(stack: Stack, caller: Turn | Operator, **job: Any) -> Any:
    if isinstance(caller, Operator):
        job = {"sessionKey": KEY, **job}
    return (await call(stack, caller, "cron_add", job={**JOB, **job})).job


async def refused(stack: Stack, caller: Any, tool: str, **params: Any) -> tuple[CallError, str]:
    with pytest.raises(CallRefused) as refusal:
        await call(stack, caller, tool, **params)
    return refusal.value.code, str(refusal.value)


@contextlib.asynccontextmanager
async def later(stack: Stack, seconds: float) -> AsyncIterator[Fleet]:
    """Open a fleet whose clock is `seconds` ahead."""
    scripts = Scripts(open_redis(stack.redis.url), edit=shifted)
    await scripts.client.set("test:shift", int(seconds * 1000))
    fleet = Fleet.open("unix:///nobody", scripts=scripts)
    try:
        yield fleet
    finally:
        await fleet.aclose()


async def texts(stack: Stack, key: str | SessionKey) -> list[str]:
    """Return the messages of cron jobs in a session."""
    sid = SessionKey.parse(str(key)).sid
    found: Any = await stack.fleet.scripts.client.xrange(keys.inbound(sid))
    entries = [decode_entry(*entry) for entry in found]
    return [entry.message.text for entry in entries if entry.origin == "cron"]


# -- what the tools do ----------------------------------------------------------------------------


async def test_a_job_that_an_agent_adds_fires_in_the_agents_session(stack: Stack) -> None:
    caller = await begin_turn(stack, HANDLERS)
    job = await add(stack, caller, message="Look at the build.")
    session = caller.lease.session
    stored = await cron_of(stack.fleet).job(job.id)

    async with later(stack, 3599) as fleet:
        assert await scheduler_of(fleet).tick() == 0
    async with later(stack, 3601) as fleet:
        assert await scheduler_of(fleet).tick() == 1

    assert await texts(stack, session) == ["Look at the build."]
    listed = (await call(stack, caller, "cron_list")).jobs
    runs = (await call(stack, caller, "cron_runs", jobId=job.id)).runs

    assert job.next_run_ms == job.created_ms + 3_600_000
    assert (job.session_key, job.enabled, job.schedule) == (str(session), True, {"every": 3600})
    assert stored is not None
    assert stored.people == ("test:alice",)
    assert [(j.id, j.last_run_ms, j.next_run_ms) for j in listed] == [
        (job.id, job.next_run_ms, job.next_run_ms + 3_600_000)
    ]
    assert [(run.job_id, run.due_ms, run.due, run.status) for run in runs] == [
        (job.id, job.next_run_ms, job.next_run, "fired")
    ]
    assert runs[0].run_id.startswith(f"{session.sid}-")


async def test_a_job_of_a_turn_that_has_read_the_web_begins_turns_that_have(stack: Stack) -> None:
    """A page could else have a job write to the agent's memory, which it can't itself."""
    caller = await begin_turn(stack, HANDLERS)
    await add(stack, caller, name="clean")
    changed = await add(stack, caller, name="changed")
    await caller.lease.turns.note_web()
    await add(stack, caller, name="added")
    by_hand = await add(stack, caller, name="run by hand")
    updates = {"message": "Call memory_write."}
    await call(stack, caller, "cron_update", jobId=changed.id, updates=updates)
    await call(stack, caller, "cron_run", jobId=by_hand.id)
    async with later(stack, 3601) as fleet:
        assert await scheduler_of(fleet).tick() == 3

    found = await jobs.entries(stack.fleet, caller.lease.session)
    marks = {entry.message.user_name: has_read_web([entry]) for entry in found[1:]}
    assert marks == {
        "cron job clean": False,
        "cron job changed": True,
        "cron job added": True,
        "cron job run by hand": True,
    }


@pytest.mark.parametrize(
    ("agent", "host", "schedule", "zone"),
    [
        ("Asia/Tokyo", "Europe/Berlin", {"cron": "30 9 * * *"}, "Asia/Tokyo"),
        (None, "Europe/Berlin", {"cron": "30 9 * * *"}, "Europe/Berlin"),
        (None, "Europe/Berlin", {"at": "2027-01-31T09:30"}, "Europe/Berlin"),
        ("Asia/Tokyo", "UTC", {"cron": "30 9 * * *", "tz": "America/Lima"}, "America/Lima"),
        # Elapsed time and an instant with an offset have no zone of their own.
        ("Asia/Tokyo", "UTC", {"every": 3600}, None),
        ("Asia/Tokyo", "UTC", {"at": "2027-01-31T09:30-05:00"}, None),
    ],
)
async def test_a_schedule_uses_the_agents_time_zone_or_else_the_hosts(
    stack: Stack,
    monkeypatch: pytest.MonkeyPatch,
    agent: str | None,
    host: str,
    schedule: dict[str, Any],
    zone: str | None,
) -> None:
    settings = {**stack.agent, **({"timezone": agent} if agent else {})}
    stack.configure(settings, channels={"test": {"owners": ["alice"]}})
    monkeypatch.setenv("TZ", host)
    caller = await begin_turn(stack, HANDLERS)

    job = await add(stack, caller, schedule=schedule)
    status = await call(stack, caller, "cron_status")

    next_run = datetime.fromisoformat(job.next_run)
    shown = next_run.astimezone(ZoneInfo(zone or agent or host))
    assert job.schedule.get("tz") == zone
    assert next_run.timestamp() == job.next_run_ms // 1000
    assert (next_run.utcoffset(), status.next_run) == (shown.utcoffset(), job.next_run)
    if zone:
        assert (next_run.hour, next_run.minute) == (9, 30)


async def test_words_have_one_zone_that_the_job_keeps_and_shows(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zone is that of the words, of the call, of the agent, of the fleet, or of the host."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    sent: list[dict[str, Any]] = [
        {"words": "every weekday at 9 in Asia/Tokyo", "tz": "UTC"},
        {"words": "every weekday at 9", "tz": "America/Lima"},
        {"words": "every weekday at 9"},
    ]
    settings: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "agent": ({"timezone": "Asia/Kolkata"}, {"timezone": "UTC"}),
        "fleet": ({}, {"timezone": "UTC"}),
        "host": ({}, {}),
    }
    zones = {}

    for name, (agent, fleet) in settings.items():
        stack.configure({**stack.agent, **agent}, **fleet)
        zones[name] = [await preview(stack, schedule=schedule, sessionKey=KEY) for schedule in sent]
    job = await call(stack, ADMIN, "cron_add", job={**JOB, "schedule": sent[1], "sessionKey": KEY})

    assert {name: [shown.zone for shown in previews] for name, previews in zones.items()} == {
        name: ["Asia/Tokyo", "America/Lima", own]
        for name, own in (("agent", "Asia/Kolkata"), ("fleet", "UTC"), ("host", "Europe/Berlin"))
    }
    lima = zones["host"][1]
    assert lima.schedule == job.job.schedule == {"cron": "0 9 * * MON-FRI", "tz": "America/Lima"}
    assert lima.words == job.job.words == "every weekday at 09:00"
    assert lima.zone == job.job.zone
    assert lima.upcoming == job.upcoming
    assert len({each[:10] for each in job.upcoming}) == 3
    assert {each[10:] for each in job.upcoming} == {"T09:00:00-05:00"}
    assert job.upcoming[0] == job.job.next_run


async def test_a_preview_of_what_is_no_schedule_is_refused(stack: Stack) -> None:
    schedules: list[tuple[dict[str, Any], str]] = [
        ({"words": "sometimes"}, "“sometimes” is no schedule: write for example “every weekday"),
        ({"cron": "0 9 1 13 *"}, "cron '0 9 1 13 *' has no valid month."),
        ({"cron": "² 9 * * *"}, "cron '² 9 * * *' has no valid minute."),
        ({"cron": "0 9 * * 5-3"}, "cron '0 9 * * 5-3' has no valid day of the week."),
        ({"at": "soon"}, "at 'soon' is no time: write ISO 8601"),
        ({"words": "every day at 9", "tz": "Nowhere"}, "There is no time zone 'Nowhere'"),
        ({"words": "every day at 9", "every": 60}, "cron.preview: schedule needs exactly one of"),
    ]

    for schedule, why in schedules:
        with pytest.raises(CallRefused, match=re.escape(why)) as refusal:
            await preview(stack, schedule=schedule)
        assert refusal.value.code == "INVALID_REQUEST"


async def preview(stack: Stack, **params: Any) -> Any:
    result, _ = await gateway(stack.fleet, stack.home, HANDLERS).call(ADMIN, "cron.preview", params)
    return result


async def test_a_changed_schedule_without_a_zone_keeps_the_jobs_zone(stack: Stack) -> None:
    caller = await begin_turn(stack, HANDLERS)
    job = await add(stack, caller, schedule={"cron": "30 9 * * *", "tz": "America/Lima"})

    updates = {"schedule": {"cron": "45 10 * * *"}}
    changed = (await call(stack, caller, "cron_update", jobId=job.id, updates=updates)).job

    assert changed.schedule == {"cron": "45 10 * * *", "tz": "America/Lima"}
    assert changed.next_run.endswith("T10:45:00-05:00")


async def test_a_repeated_cron_add_call_adds_nothing(stack: Stack) -> None:
    caller = await begin_turn(stack, HANDLERS)
    first, _ = await call_with_effects(stack, caller, "cron_add", job=JOB, call_id="c1")
    again, effects = await call_with_effects(stack, caller, "cron_add", job=JOB, call_id="c1")
    other, _ = await call_with_effects(stack, caller, "cron_add", job=JOB, call_id="c2")
    noted = await caller.lease.turns.side_effects()

    assert first == again
    assert effects[0]["jobId"] == first.job.id
    assert other.job.id != first.job.id
    assert len(await cron_of(stack.fleet).jobs()) == len(noted) == 2


async def test_an_operators_job_may_write_to_any_session(stack: Stack) -> None:
    bob = await stack.append("hello", from_="bob")
    new = "main/test/default/chat-9:carol:_"

    by_id = await add(stack, ADMIN, sessionKey=bob.session.sid[:10])
    by_key = await add(stack, ADMIN, sessionKey=new, message="Good morning.")
    by_session_key = (
        await call(stack, ADMIN, "cron_add", job=JOB, session_key=str(bob.session))
    ).job
    async with later(stack, 3601) as fleet:
        assert await scheduler_of(fleet).tick() == 3

    assert by_id.session_key == by_session_key.session_key == str(bob.session)
    assert by_key.session_key == new
    assert await texts(stack, new) == ["Good morning."]
    assert await texts(stack, bob.session) == ["What is new?", "What is new?"]
    stored = await jobs.job_of(stack.fleet, by_id.id)
    assert stored.people == ("test:bob",)


async def test_a_changed_job_fires_with_its_new_settings(stack: Stack) -> None:
    job = await add(stack, ADMIN, misfire="run_once", alertAfter=3)

    updates = {"message": "Something else.", "schedule": {"every": 60}, "alertAfter": 0}
    changed = (await call(stack, ADMIN, "cron_update", jobId=job.id, updates=updates)).job
    async with later(stack, 61) as fleet:
        assert await scheduler_of(fleet).tick() == 1

    assert await texts(stack, KEY) == ["Something else."]
    assert changed == job.model_copy(
        update={
            "message": "Something else.",
            "schedule": {"every": 60},
            "words": "every minute",
            "alert_after": 0,
            "next_run_ms": changed.next_run_ms,
            "next_run": changed.next_run,
        }
    )
    assert changed.next_run_ms < job.next_run_ms


async def test_concurrent_changes_of_a_job_that_are_not_made_are_refused(
    stack: Stack,
) -> None:
    job = await add(stack, ADMIN)
    changes: list[dict[str, Any]] = [{"name": "new"}, {"message": "New."}]

    answers = await asyncio.gather(
        *(call(stack, ADMIN, "cron_update", jobId=job.id, updates=updates) for updates in changes),
        return_exceptions=True,
    )

    stored = await jobs.job_of(stack.fleet, job.id)
    made = [stored.name == "new", stored.message == "New."]
    for answer, is_made in zip(answers, made, strict=True):
        assert is_made or "has changed at the same moment. Try again." in str(answer)
    assert any(made)


async def test_a_disabled_job_does_not_fire_and_is_due_again_when_enabled(stack: Stack) -> None:
    job = await add(stack, ADMIN)

    off = await call(stack, ADMIN, "cron_update", jobId=job.id, updates={"enabled": False})
    async with later(stack, 3601) as fleet:
        assert await scheduler_of(fleet).tick() == 0
    status = await call(stack, ADMIN, "cron_status")
    on = await call(stack, ADMIN, "cron_update", jobId=job.id, updates={"enabled": True})

    assert off.job.next_run_ms is None
    assert (status.jobs, status.enabled, status.next_run_ms) == (1, 0, None)
    assert on.job.next_run_ms == job.next_run_ms
    async with later(stack, 3601) as fleet:
        assert await scheduler_of(fleet).tick() == 1


async def test_a_job_that_is_added_disabled_is_never_due(stack: Stack) -> None:
    job = await add(stack, ADMIN, enabled=False, schedule={"at": "2020-01-01T00:00"})
    code, why = await refused(stack, ADMIN, "cron_update", jobId=job.id, updates={"enabled": True})

    assert (job.next_run_ms, code) == (None, "INVALID_REQUEST")
    assert "is past" in why


async def test_a_removed_job_does_not_fire(stack: Stack) -> None:
    job = await add(stack, ADMIN)

    gone = await call(stack, ADMIN, "cron_remove", jobId=job.id, call_id="c1")
    again = await call(stack, ADMIN, "cron_remove", jobId=job.id, call_id="c1")
    another_call = await call(stack, ADMIN, "cron_remove", jobId=job.id)
    async with later(stack, 3601) as fleet:
        assert await scheduler_of(fleet).tick() == 0

    assert (gone.removed, again.removed, another_call.removed) == (True, True, False)
    assert await stack.fleet.scripts.client.exists(keys.CRON_JOBS, keys.CRON_DUE) == 0


async def test_cron_status_reports_whether_a_scheduler_runs(stack: Stack) -> None:
    job = await add(stack, ADMIN)
    await add(stack, ADMIN, schedule={"cron": "0 0 1 1 *"})
    before = await call(stack, ADMIN, "cron_status")
    await scheduler_of(stack.fleet).tick()
    after = await call(stack, ADMIN, "cron_status")

    assert (before.jobs, before.enabled, before.next_run_ms) == (2, 2, job.next_run_ms)
    assert (before.scheduler, after.scheduler) == ("absent", "running")


async def test_runs_are_listed_for_one_job_or_for_all(stack: Stack) -> None:
    one, two = await add(stack, ADMIN), await add(stack, ADMIN, schedule={"every": 1800})
    async with later(stack, 3601) as fleet:
        await scheduler_of(fleet).tick()

    of_all = (await call(stack, ADMIN, "cron_runs")).runs
    of_two = (await call(stack, ADMIN, "cron_runs", jobId=two.id)).runs
    newest = (await call(stack, ADMIN, "cron_runs", limit=1)).runs
    quiet = await add(stack, ADMIN)

    assert {run.job_id for run in of_all} == {one.id, two.id}
    assert [(run.job_id, run.status) for run in of_two] == [
        (two.id, "fired"),
        (two.id, "skipped"),
    ]
    assert newest == of_all[:1]
    assert (await call(stack, ADMIN, "cron_runs", jobId=quiet.id)).runs == ()
    assert await refused(stack, ADMIN, "cron_runs", jobId="0" * 16) == (
        "NOT_FOUND",
        f"There is no cron job {'0' * 16}.",
    )


async def test_the_number_of_cron_jobs_is_limited(stack: Stack) -> None:
    job = await add(stack, ADMIN)
    client = stack.fleet.scripts.client
    await client.hset(keys.CRON_JOBS, mapping={str(n): b"{}" for n in range(MAX_JOBS - 1)})

    code, why = await refused(stack, ADMIN, "cron_add", job={**JOB, "sessionKey": KEY})

    assert (code, why) == ("UNAVAILABLE", "There are 1000 cron jobs: remove some first.")
    await call(stack, ADMIN, "cron_update", jobId=job.id, updates={"name": "new"})


async def test_a_change_of_a_failing_job_resets_its_failure_count(stack: Stack) -> None:
    job = await add(stack, ADMIN)
    for updates, failures in (
        ({"name": "new"}, 4),
        ({"message": "New."}, 0),
        ({"schedule": {"every": 60}}, 0),
        ({"enabled": False}, 4),
        ({"enabled": True}, 0),
    ):
        stored = await jobs.job_of(stack.fleet, job.id)
        await jobs.store(stack.fleet, stored, replace(stored, failures=4))

        changed = await call(stack, ADMIN, "cron_update", jobId=job.id, updates=updates)

        assert changed.job.failures == failures, updates


# -- runs by hand ---------------------------------------------------------------------------------


async def work(stack: Stack, key: str = KEY) -> None:
    await jobs.work(stack.fleet, SessionKey.parse(key))


async def test_a_run_by_hand_does_not_change_when_a_job_is_due(stack: Stack) -> None:
    job = await add(stack, ADMIN)

    begun = await call(stack, ADMIN, "cron_run", jobId=job.id)
    open_runs = (await call(stack, ADMIN, "cron_runs", jobId=job.id)).runs
    during = (await call(stack, ADMIN, "cron_list")).jobs[0]
    sent = await texts(stack, KEY)
    await work(stack)
    await scheduler_of(stack.fleet).tick()
    runs = (await call(stack, ADMIN, "cron_runs", jobId=job.id)).runs
    after = (await call(stack, ADMIN, "cron_list")).jobs[0]

    assert sent == ["What is new?"]
    assert begun.run_id.startswith(SessionKey.parse(KEY).sid)
    assert [(run.run_id, run.status, run.is_manual) for run in open_runs] == [
        (begun.run_id, "fired", True)
    ]
    assert [(run.run_id, run.status, run.is_manual) for run in runs] == [
        (begun.run_id, "done", True)
    ]
    assert (during.is_running, after.is_running, after.last_status) == (True, False, "done")
    assert after.next_run_ms == job.next_run_ms


async def test_a_job_with_an_unfinished_run_runs_again_only_if_forced(stack: Stack) -> None:
    job = await add(stack, ADMIN)
    await call(stack, ADMIN, "cron_run", jobId=job.id)

    assert await refused(stack, ADMIN, "cron_run", jobId=job.id) == (
        "UNAVAILABLE",
        f"A run of the cron job {job.id} has not finished: wait for it, or stop its session.",
    )
    assert len(await texts(stack, KEY)) == 1
    await call(stack, ADMIN, "cron_run", jobId=job.id, force=True)
    assert len(await texts(stack, KEY)) == 2
    await work(stack)
    # The run has ended, but the scheduler has not recorded it yet.
    await call(stack, ADMIN, "cron_run", jobId=job.id)
    await work(stack)
    await scheduler_of(stack.fleet).tick()
    assert [run.status for run in (await call(stack, ADMIN, "cron_runs")).runs] == ["done"] * 3


async def test_a_repeated_cron_run_call_runs_the_job_once(stack: Stack) -> None:
    caller = await begin_turn(stack, HANDLERS, from_="bob")
    job = await add(stack, caller, sessionKey=str(caller.lease.session))
    again = [
        (await call(stack, caller, "cron_run", jobId=job.id, call_id="c1")).run_id for _ in range(2)
    ]
    at_once = await asyncio.gather(
        *(call(stack, ADMIN, "cron_run", jobId=job.id, force=True, call_id="c2") for _ in range(4))
    )
    late = (await call(stack, caller, "cron_run", jobId=job.id, call_id="c1")).run_id

    assert {*again, late} == {again[0]}
    assert len({one.run_id for one in at_once}) == 1
    assert len(await texts(stack, caller.lease.session)) == 2
    noted = await caller.lease.turns.side_effects()
    assert [note["type"] for note in noted] == ["cron_added", "job_changed"]
    assert noted[1]["tool"] == "cron_run"


async def test_concurrent_cron_run_calls_start_one_run(stack: Stack) -> None:
    job = await add(stack, ADMIN)

    answers = await asyncio.gather(
        *(call(stack, ADMIN, "cron_run", jobId=job.id) for _ in range(4)), return_exceptions=True
    )

    assert len([one for one in answers if not isinstance(one, CallRefused)]) == 1
    assert len(await texts(stack, KEY)) == 1


async def test_a_job_that_changes_during_a_call_runs_as_changed(stack: Stack) -> None:
    job = await add(stack, ADMIN)
    before = await jobs.job_of(stack.fleet, job.id)
    await call(stack, ADMIN, "cron_update", jobId=job.id, updates={"message": "New."})

    with pytest.raises(CallRefused, match="has changed at the same moment"):
        await calls_of(stack.fleet).run(None, "c1", before, "r", now_ms=0, effect=None)
    await call(stack, ADMIN, "cron_run", jobId=job.id)

    assert await texts(stack, KEY) == ["New."]


async def test_a_paused_job_can_be_run_and_stays_paused(stack: Stack) -> None:
    job = await add(stack, ADMIN, enabled=False, schedule={"at": "2020-01-01T00:00"})

    await call(stack, ADMIN, "cron_run", jobId=job.id)
    await work(stack)
    await scheduler_of(stack.fleet).tick()

    (after,) = (await call(stack, ADMIN, "cron_list")).jobs
    assert (after.enabled, after.next_run_ms, after.last_status) == (False, None, "done")


async def test_a_run_whose_answer_from_redis_is_lost_starts_once(stack: Stack) -> None:
    job = await add(stack, ADMIN)
    proxy = await stack.proxied()
    fleet = stack.open_at(proxy.url)
    failpoint = proxy.arm("call_run", "after")
    failpoint.cut()

    await gateway(fleet, stack.home, HANDLERS).call(ADMIN, "cron_run", {"jobId": job.id})

    assert failpoint.reached.is_set()
    assert len(await texts(stack, KEY)) == 1


# -- rights ---------------------------------------------------------------------------------------


async def test_an_agents_job_writes_only_to_its_own_session(stack: Stack) -> None:
    bob = await stack.append("hello", from_="bob")
    caller = await begin_turn(stack, HANDLERS)
    own = caller.lease.session
    for named in (str(own), own.conversation, own.sid):
        assert (await add(stack, caller, sessionKey=named)).session_key == str(own)
    for other in (str(bob.session), bob.session.sid, "main/x/y/a:b:_", "nonsense"):
        assert await refused(stack, caller, "cron_add", job={**JOB, "sessionKey": other}) == (
            "FORBIDDEN",
            "An agent's cron job writes to the session that adds it: leave job.sessionKey out.",
        )

    assert len(await cron_of(stack.fleet).jobs()) == 3


async def test_an_agent_sees_only_the_jobs_of_its_own_agent(stack: Stack) -> None:
    mine = await add(stack, ADMIN, name="mine")
    now_ms = await stack.fleet.scripts.now_ms()
    theirs = Job(
        id="f" * 16,
        name="theirs",
        schedule=Schedule(every_s=60, anchor_ms=now_ms),
        message="a secret",
        session=SessionKey.parse(KEY.replace("main", "other")),
        enabled=True,
        created_ms=now_ms,
        people=("test:olga",),
        next_ms=now_ms,
    )
    await jobs.store(stack.fleet, None, theirs)
    await scheduler_of(stack.fleet).tick()
    caller = await begin_turn(stack, HANDLERS)
    listed = (await call(stack, caller, "cron_list")).jobs
    status = await call(stack, caller, "cron_status")
    runs = (await call(stack, caller, "cron_runs")).runs
    removed = await call(stack, caller, "cron_remove", jobId=theirs.id)
    for tool, params in (
        ("cron_update", {"jobId": theirs.id, "updates": {"message": "mine now"}}),
        ("cron_run", {"jobId": theirs.id, "force": True}),
        ("cron_runs", {"jobId": theirs.id}),
    ):
        assert await refused(stack, caller, tool, **params) == (
            "NOT_FOUND",
            f"There is no cron job {theirs.id}.",
        )

    assert [job.id for job in listed] == [mine.id]
    assert (await call(stack, caller, "cron_list", filter="IN")).jobs == listed
    assert (await call(stack, caller, "cron_list", filter="no")).jobs == ()
    assert (status.jobs, status.next_run_ms) == (1, mine.next_run_ms)
    assert runs == ()
    assert not removed.removed
    stored = await jobs.job_of(stack.fleet, theirs.id)
    assert stored.message == "a secret"
    assert len((await call(stack, ADMIN, "cron_runs")).runs) == 1


async def test_a_finished_turn_adds_no_job(stack: Stack) -> None:
    caller = await begin_turn(stack, HANDLERS)
    await caller.finish()

    code, _ = await refused(stack, caller, "cron_add", job=JOB)

    assert code == "NO_TURN"
    assert await cron_of(stack.fleet).jobs() == []


async def test_a_turn_that_another_worker_took_over_adds_no_job(stack: Stack) -> None:
    """Another worker begins the same turn again while a call of the first worker is on its way.

    The id and the state of the turn are unchanged, so only the epoch shows the difference.
    """
    caller = await begin_turn(stack, HANDLERS)
    stale = await stack.fleet.calls.caller(caller.lease.sid)
    await caller.lease.release()
    lease = await stack.fleet.leases.acquire(caller.lease.sid, worker="other", host="here")
    assert lease is not None
    await lease.turns.begin([caller.id])
    current = await stack.fleet.calls.caller(caller.lease.sid)
    job = Job(
        id="0" * 16,
        name="late",
        schedule=Schedule(every_s=60),
        message="Late.",
        session=caller.lease.session,
        enabled=True,
        created_ms=0,
        people=("test:alice",),
        next_ms=60_000,
    )

    async def write(caller: Any) -> bool:
        return await calls_of(stack.fleet).job(
            caller, "c", job.id, before=None, after=job, effect=None
        )

    assert stale is not None
    assert current is not None
    assert stale.turn is not None
    assert current.turn is not None
    assert current.turn.id == stale.turn.id
    with pytest.raises(CallRefused) as refusal:
        await write(stale)
    assert refusal.value.code == "TURN_OVER"
    assert await cron_of(stack.fleet).jobs() == []
    assert await write(current)


async def test_changing_a_job_adds_the_changing_person_to_its_people(stack: Stack) -> None:
    """If the policy lets a non-owner change a job, its runs lose the rights of an owner."""
    job = await add(stack, ADMIN)
    stored = await jobs.job_of(stack.fleet, job.id)
    await jobs.store(stack.fleet, stored, replace(stored, people=("test:mallory",)))

    await call(stack, ADMIN, "cron_update", jobId=job.id, updates={"message": "New."})

    stored = await jobs.job_of(stack.fleet, job.id)
    assert stored.people == ("test:mallory", "test:bob")


# -- invalid jobs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"schedule": {"at": "2020-01-01T09:00"}}, "at '2020-01-01T09:00' is past: it is "),
        ({"schedule": {"cron": "* * *"}}, "cron '* * *' has 3 fields and needs five: "),
        ({"schedule": {"every": 60, "tz": "UTC"}}, "cron_add: job.schedule has every, so tz "),
        ({"schedule": {"at": "2999-01-01", "every": 60}}, "cron_add: job.schedule needs exactly "),
        ({"schedule": {}}, "cron_add: job.schedule needs exactly one of words"),
        ({"schedule": {"every": 59}}, "cron_add: job.schedule.every "),
        ({"misfire": "never"}, "cron_add: job.misfire "),
        ({"alertAfter": -1}, "cron_add: job.alertAfter "),
        ({"message": " \n"}, "The message was refused: text is empty."),
        ({"sessionKey": "0123abcd"}, "'0123abcd' is no session: "),
        ({"sessionKey": "nobody/test/default/a:b:_"}, "There is no agent 'nobody'."),
        ({"sessionKey": "main/test/default/a%0Ab:b:_"}, "The message was refused: "),
    ],
)
async def test_an_invalid_job_is_refused_in_one_sentence(
    stack: Stack, fields: dict[str, Any], why: str
) -> None:
    job = {**JOB, "sessionKey": KEY, **fields}
    code, message_text = await refused(stack, ADMIN, "cron_add", job=job)

    assert code == ("NOT_FOUND" if "is no session" in why else "INVALID_REQUEST")
    assert message_text.startswith(why)
    assert message_text.endswith((".", "?"))
    assert await cron_of(stack.fleet).jobs() == []


async def test_hostile_texts_of_jobs_are_refused_or_sent_unchanged(stack: Stack) -> None:
    count, codes = 0, set()
    for text in HOSTILE:
        for job in (
            {"name": text[:100]},
            {"message": text},
            {"sessionKey": text},
            {"schedule": {"at": text}},
            {"schedule": {"cron": text}},
            {"schedule": {"cron": "0 * * * *", "tz": text}},
        ):
            try:
                await call(stack, ADMIN, "cron_add", job={**JOB, "sessionKey": KEY, **job})
                count += 1
            except CallRefused as refusal:
                codes.add(refusal.code)
    async with later(stack, 3601) as fleet:
        assert await scheduler_of(fleet).tick() == count

    assert codes == {"INVALID_REQUEST", "NOT_FOUND"}
    assert count > len(HOSTILE) / 2
    assert len(await texts(stack, KEY)) == count


async def test_an_agent_that_is_no_longer_configured_may_call_no_tool(stack: Stack) -> None:
    await stack.fleet.inbound.append(message("hello", from_="alice"), agent="gone")
    config = load_config(stack.home.config_file, {})
    assert "gone" not in config.agents
    session = SessionKey("gone", "test", "default", "chat-1", "alice")
    lease = await stack.fleet.leases.acquire(session.sid, worker="test", host="here")
    assert lease is not None
    await lease.turns.begin([(await lease.entries())[0][0].decode()])
    await lease.grant(digest("t"), frozenset(TOOLS))

    with pytest.raises(CallRefused, match="The policy doesn't allow"):
        await gateway(stack.fleet, stack.home, HANDLERS).call(
            Agent(session.sid, digest("t")), "cron_add", {"job": JOB}
        )


# -- the command line -----------------------------------------------------------------------------


async def test_a_job_is_added_listed_and_removed_on_the_command_line(stack: Stack) -> None:
    made = cli(
        stack,
        *("cron", "add", "every monday at 9", "What is new?"),
        *("--name", "standup", "--tz", "Europe/Berlin", "--session", KEY),
    )
    job_id = made.stdout.strip()
    once = cli(
        stack,
        *("cron", "add", "every hour", "Now.", "--session", KEY),
    ).stdout.strip()
    async with later(stack, 3601) as fleet:
        await scheduler_of(fleet).tick()
    await stack.fleet.scripts.client.delete(keys.CRON_SCHEDULER)
    listed = cli(stack, "cron", "list")
    runs = cli(stack, "cron", "runs", once)
    gone = cli(stack, "cron", "remove", job_id)
    again = cli(stack, "cron", "remove", job_id)

    assert re.fullmatch("[0-9a-f]{16}", job_id)
    words = (
        r"every Monday at 09:00 \(Europe/Berlin\): next Mon (\S+) 09:00(, Mon (?!\1)\S+ 09:00){2}"
    )
    assert re.fullmatch(words, made.stderr.strip())
    head, first, second = listed.stdout.splitlines()
    assert head.split() == ["JOB", "NEXT", "LAST", "SCHEDULE", "SESSION", "NAME"]
    assert first.startswith(job_id)
    assert "every Monday at 09:00 (Europe/Berlin)" in first
    assert "every hour (" in second
    assert second.endswith("Now.")
    assert listed.stderr == (
        "remoteclaw: No scheduler runs: start `remoteclaw up`, or `remoteclaw sweep`.\n"
    )
    sid = SessionKey.parse(KEY).sid
    assert re.search(rf"^{once}  .{{19}}  fired +{sid}-\d+-\d+$", runs.stdout, re.MULTILINE)
    assert (gone.stdout, again.stdout) == ("It is gone.\n", "There was no such job.\n")
    assert [job.id for job in await cron_of(stack.fleet).jobs()] == [once]


async def test_a_job_is_shown_changed_paused_and_run_on_the_command_line(stack: Stack) -> None:
    def stdout_of(*arguments: str) -> str:
        done = cli(stack, "cron", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    job_id = stdout_of(
        *("add", "0 9 * * MON", "What is", "new?", "--name", "standup", "--session", KEY),
        *("--alert-after", "2", "--paused"),
    ).strip()
    paused = stdout_of("list")
    changed = cli(
        stack,
        *("cron", "edit", job_id, "--name", "new", "--when", "every hour"),
        *("--misfire", "run_once"),
    )
    assert (changed.returncode, changed.stdout) == (0, "")
    resumed = cli(stack, "cron", "resume", job_id)
    run_id = stdout_of("run", job_id).strip()
    cli_refused(cli(stack, "cron", "run", job_id), "has not finished: wait for it, or ")
    assert stdout_of("run", job_id, "--force").strip() != run_id
    shown = stdout_of("show", job_id)
    stdout_of("pause", "new")
    as_json = json.loads(stdout_of("show", job_id[:15], "--json"))

    assert f"{job_id}  off " in paused
    assert re.fullmatch(r"every hour \(.+\): next \w+ .+, \w+ .+, \w+ .+\n", resumed.stderr)
    assert re.search(r"^schedule +every hour \(.+\)$", shown, re.MULTILINE)
    assert re.search("^misfire +run_once$", shown, re.MULTILINE)
    assert re.search("^alert +after 2 failures$", shown, re.MULTILINE)
    assert re.search("^last +running$", shown, re.MULTILINE)
    assert f"{run_id} (run by hand)" in shown
    assert (as_json["job"]["name"], as_json["job"]["enabled"]) == ("new", False)
    assert len(as_json["runs"]) == 2
    assert [one["id"] for one in json.loads(stdout_of("list", "--json"))["jobs"]] == [job_id]
    assert {one["runId"] for one in json.loads(stdout_of("runs", "--json"))["runs"]} > {run_id}


async def test_errors_of_cron_commands_are_one_line(stack: Stack) -> None:
    named = ("--name", "n", "--session", KEY)

    cli_refused(
        cli(stack, "cron", "add", "0 9 31 2 *", "m", *named), "has no valid day of the month."
    )
    cli_refused(
        cli(stack, "cron", "add", "jeden Tag um 9", "m", *named),
        "“jeden Tag um 9” is no schedule: write for example “every weekday at 9”, ",
    )
    cli_refused(cli(stack, "cron", "runs", "0" * 16), f"There is no cron job {'0' * 16}.")
    for command in ("show", "run", "pause", "resume", "remove", "runs"):
        cli_refused(
            cli(stack, "cron", command, "x"),
            "There is no cron job 'x': `remoteclaw cron list` lists them.",
        )
    for _ in range(2):
        assert cli(stack, "cron", "add", "every hour", "m", *named).returncode == 0
    cli_refused(
        cli(stack, "cron", "pause", "n"), "'n' fits 2 cron jobs: write the whole id, one of `"
    )
    for options, why in (((), "Say what is to change"), (("--tz", "UTC"), "give both")):
        wrong = cli(stack, "cron", "edit", "0" * 16, *options)
        assert (wrong.returncode, why in wrong.stderr) == (2, True)
