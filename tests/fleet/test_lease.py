"""The scripts, one promise at a time, on every server that is installed."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import fakeredis
import pytest

from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import Scripts, open_redis
from remoteclaw.fleet.inbound import GRACE_MS
from remoteclaw.fleet.sessions import SessionView
from tests.support.leases import accept, acquire, answered, begun, idle, let_pass, postpone
from tests.support.stack import REPLIES, message
from tests.support.waiting import HANG_S, eventually


async def hints(fleet: Fleet) -> int:
    return await fleet.workers.waiting()


# -- accepting ------------------------------------------------------------------------------------


async def test_a_message_is_stored_and_hinted_once(fleet: Fleet) -> None:
    first = await accept(fleet, "one")
    second = await accept(fleet, "two")

    assert first.session.sid == second.session.sid
    assert await hints(fleet) == 1
    view = await fleet.sessions.view(first.session.sid)
    assert view is not None
    assert (view.status, view.waiting) == ("scheduled", 2)


async def test_a_repeated_message_is_the_same_entry(fleet: Fleet) -> None:
    first = await accept(fleet, id="platform-1")
    again = await accept(fleet, id="platform-1")

    assert again.is_duplicate
    assert again.entry_id == first.entry_id
    view = await fleet.sessions.view(first.session.sid)
    assert view is not None
    assert view.waiting == 1


async def test_the_same_id_in_another_chat_is_another_message(fleet: Fleet) -> None:
    await accept(fleet, id="7", channel_id="a")
    other = await accept(fleet, id="7", channel_id="b")

    assert not other.is_duplicate


async def test_a_repetition_hints_a_session_that_still_waits(fleet: Fleet) -> None:
    await accept(fleet, id="1")
    await fleet.scripts.client.delete("rq:queue:agents")  # the first caller died before its hint

    await accept(fleet, id="1")

    assert await hints(fleet) == 1


# -- the lease ------------------------------------------------------------------------------------


async def test_an_idle_session_gives_no_lease(fleet: Fleet) -> None:
    assert await fleet.leases.acquire("0" * 32, worker="test", host="here") is None


async def test_a_held_session_gives_no_second_lease(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    await acquire(fleet, accepted)

    assert await fleet.leases.acquire(accepted.session.sid, worker="other", host="here") is None


async def test_an_expired_lease_is_taken_over_and_the_old_holder_is_fenced(fleet: Fleet) -> None:
    old, accepted = await begun(fleet)
    await let_pass(fleet, 31_000)

    new = await acquire(fleet, accepted)

    assert int(new.epoch) > int(old.epoch)
    for write in (
        old.turns.begin([accepted.entry_id]),
        old.turns.mark("spawned"),
        old.turns.publish(0, {"text": "stale"}),
        old.turns.finish("done", reply=[]),
        old.turns.show({"text": "stale"}),
        old._renew(),
        old.remember("claude", "stale"),
        old.reset(accepted.entry_id, "/new", keep_ms=1000, keep=1),
        old.close(),
        old.release(),
        postpone(fleet, old, 60_000),
    ):
        with pytest.raises(LeaseLost):
            await write
    assert await fleet.scripts.client.exists(REPLIES) == 0


async def test_the_agent_of_a_turn_that_is_postponed_keeps_its_tools(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)
    await lease.grant("digest", ["message_send"])
    await postpone(fleet, lease, 20_000)
    await let_pass(fleet, 30_000)

    lease = await acquire(fleet, accepted)
    batch = await lease.turns.begin([accepted.entry_id])

    assert batch is not None
    assert (batch.attempt, batch.failures, batch.is_resumed) == (2, 0, True)
    state = keys.state(lease.sid)
    assert await fleet.scripts.client.hexists(state, "grant")
    await let_pass(fleet, 31_000)
    lease = await acquire(fleet, accepted)
    batch = await lease.turns.begin([accepted.entry_id])
    assert batch is not None
    assert not batch.is_resumed
    assert not await fleet.scripts.client.hexists(state, "grant"), "its agent was cut off"


async def test_a_renewal_that_comes_late_does_not_wake_what_was_postponed(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)
    until = await postpone(fleet, lease, 3_600_000)

    state = keys.state(lease.sid)
    await lease._renew()

    assert await fleet.scripts.client.zscore(keys.ACTIVE, lease.sid) == until
    assert not await fleet.scripts.client.hexists(state, "lease_until_ms")


async def test_what_runs_by_itself_hints_nobody_while_its_session_is_postponed(
    fleet: Fleet,
) -> None:
    accepted = await fleet.inbound.append(message("job"), agent="main", lane="background")
    lease = await acquire(fleet, accepted)
    await lease.turns.begin([accepted.entry_id])
    await postpone(fleet, lease, 60_000)
    await fleet.scripts.client.delete("rq:queue:background")

    await accept(fleet)

    assert await hints(fleet) == 0
    view = await fleet.sessions.view(accepted.session.sid)
    assert view is not None
    assert view.lane == "agents", "it is served with what people send, when its time comes"


async def test_a_late_holder_without_a_rival_may_finish(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)
    await let_pass(fleet, 60_000)

    await lease.turns.finish("done", reply=[{"text": "late"}])

    outcome = await fleet.outcomes.read(accepted.session.sid, accepted.entry_id)
    assert outcome is not None
    assert outcome.status == "done"


async def test_an_epoch_is_never_below_the_clock(fleet: Fleet) -> None:
    """A replica that lost the last writes must not give out an epoch a second time."""
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)

    assert int(lease.epoch) >= int(accepted.entry_id.partition("-")[0])


async def test_a_lost_lease_is_noticed_and_the_next_attempt_hears_of_it(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    state: Any = await fleet.scripts.client.hgetall(keys.state(accepted.session.sid))
    lost = await acquire(fleet, accepted)
    await lost.turns.begin([accepted.entry_id])
    await fleet.scripts.client.delete(keys.state(lost.sid))  # a restart without the last writes
    await fleet.scripts.client.hset(keys.state(lost.sid), mapping=state)

    with pytest.raises(LeaseLost):
        await lost._renew()

    lease = await acquire(fleet, accepted)
    batch = await lease.turns.begin([accepted.entry_id])
    assert batch is not None
    assert (batch.attempt, batch.furthest_phase_before) == (1, "spawned")


async def test_a_lease_that_nobody_renews_is_given_up(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)
    lease.lease_s = 0.06
    lease.renewed_at -= 1

    with pytest.raises(LeaseLost, match="frozen"):
        await lease._renew()


async def test_an_owner_that_reaches_no_redis_gives_up_in_time(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)
    lease.lease_s = 0.5
    lease.scripts = Scripts(open_redis("unix:///nonexistent/socket"))

    with pytest.raises(LeaseLost, match="could not be renewed"):
        await lease.listen(lambda _stop, _newest: None)


# -- a turn ---------------------------------------------------------------------------------------


async def test_an_unfinished_batch_is_begun_again_exactly(fleet: Fleet) -> None:
    accepted = await accept(fleet, "one")
    other = await accept(fleet, "two")
    lease = await acquire(fleet, accepted)
    await lease.turns.begin([accepted.entry_id])
    await lease.turns.mark("tool", "Bash")
    await let_pass(fleet, 31_000)

    lease = await acquire(fleet, accepted)
    batch = await lease.turns.begin([accepted.entry_id, other.entry_id])

    assert batch is not None
    assert [entry_id.decode() for entry_id, _ in batch.entries] == [accepted.entry_id]
    assert (batch.attempt, batch.furthest_phase_before) == (2, "tool")


async def test_begin_forgets_a_batch_whose_entries_are_gone(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)
    await fleet.scripts.client.delete(keys.inbound(accepted.session.sid))

    assert await lease.turns.begin([accepted.entry_id]) is None
    assert await lease.close()


async def test_a_message_of_a_turn_is_published_once(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)

    await lease.turns.publish(0, {"text": "a"})
    await lease.turns.publish(0, {"text": "a"})
    await lease.turns.publish(1, {"text": "b"})

    assert await fleet.scripts.client.xlen(REPLIES) == 2


async def test_finish_is_one_step_and_counts_once(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)
    batch = await lease.turns.begin([accepted.entry_id])

    await lease.turns.finish("done", reply=[{"text": "hi"}], payloads=[{"text": "hi"}])
    lease.turns._batch = batch  # the reply was lost: the caller says it again
    await lease.turns.finish("failed", reply=[{"text": "no"}], payloads=[{"text": "no"}])

    outcome = await fleet.outcomes.read(accepted.session.sid, accepted.entry_id)
    assert outcome is not None
    assert (outcome.status, outcome.reply) == ("done", ({"text": "hi"},))
    assert await fleet.scripts.client.xlen(REPLIES) == 1
    assert await fleet.scripts.client.xlen(keys.inbound(accepted.session.sid)) == 0


async def test_an_outcome_is_kept_for_seven_days(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    key = keys.outcome_prefix(accepted.session.sid) + accepted.entry_id
    assert await fleet.scripts.client.pttl(key) == -1
    lease = await acquire(fleet, accepted)
    await lease.turns.begin([accepted.entry_id])

    await lease.turns.finish("done", reply=[])

    days = await fleet.scripts.client.pttl(key) / (24 * 3600 * 1000)
    assert 6.99 < days <= 7


async def test_waiting_for_an_outcome_ends_with_it(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(
            fleet.outcomes.wait(accepted.session.sid, accepted.entry_id, timeout_s=HANG_S)
        )
        await lease.turns.finish("done", reply=[{"text": "hi"}])

    outcome = waiting.result()
    assert outcome is not None
    assert outcome.status == "done"


async def test_waiting_for_an_outcome_has_an_end(fleet: Fleet) -> None:
    if isinstance(fleet.scripts.client, fakeredis.FakeAsyncRedis):
        pytest.skip("its subscriptions now and then swallow a cancellation")
    accepted = await accept(fleet)

    assert (
        await fleet.outcomes.wait(accepted.session.sid, accepted.entry_id, timeout_s=0.01) is None
    )


# -- leaving --------------------------------------------------------------------------------------


async def test_a_message_that_arrives_before_close_is_not_stranded(fleet: Fleet) -> None:
    lease, _ = await idle(fleet)
    await accept(fleet, "two")

    assert await lease.close() is False


async def test_closing_makes_the_session_idle_and_counts_once(fleet: Fleet) -> None:
    lease, accepted = await idle(fleet)

    assert await lease.close()
    assert await lease.close()

    view = await fleet.sessions.view(accepted.session.sid)
    assert view is not None
    assert view.status == "idle"
    assert await fleet.scripts.client.zcard(keys.ACTIVE) == 0


async def test_a_message_after_close_schedules_the_session_anew(fleet: Fleet) -> None:
    lease, _ = await idle(fleet)
    await lease.close()
    await fleet.scripts.client.delete("rq:queue:agents")

    await accept(fleet, "two")

    assert await hints(fleet) == 1


async def test_releasing_gives_the_session_back_to_the_queue(fleet: Fleet) -> None:
    accepted = await accept(fleet, "one")
    lease = await acquire(fleet, accepted)
    await fleet.scripts.client.delete("rq:queue:agents")

    await lease.release()

    assert await hints(fleet) == 1
    assert await fleet.leases.acquire(accepted.session.sid, worker="other", host="here")


# -- stopping -------------------------------------------------------------------------------------


async def test_a_stop_covers_what_was_accepted_and_nothing_later(fleet: Fleet) -> None:
    first, second = await accept(fleet, "one"), await accept(fleet, "two")
    assert await fleet.sessions.stop(first.session.sid) == 2
    third = await accept(fleet, "three")
    lease = await acquire(fleet, first)

    stopped = []
    for accepted in (first, second, third):
        batch = await lease.turns.begin([accepted.entry_id])
        assert batch is not None
        stopped.append(batch.is_stopped)
        await lease.turns.finish("done", reply=[])

    assert stopped == [True, True, False]


async def test_stopping_an_idle_session_does_nothing(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)
    await lease.turns.finish("done", reply=[])  # it came first, so it has won

    assert await fleet.sessions.stop(accepted.session.sid) == 0


async def listeners(fleet: Fleet, channel: str) -> int:
    ((_, count),) = await fleet.scripts.client.pubsub_numsub(channel)
    return int(count)


async def test_renewing_tells_of_a_message_and_of_a_stop(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)
    told: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def hears(*news: str) -> None:
        async with asyncio.timeout(HANG_S):
            while await told.get() != news:
                pass

    async with asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(lease.listen(lambda *news: told.put_nowait(news)))
        await eventually(lambda: listeners(fleet, keys.bell(lease.sid)))
        await hears("", accepted.entry_id)
        newer = await accept(fleet)
        await hears("", newer.entry_id)
        await fleet.sessions.stop(accepted.session.sid)
        await hears(newer.entry_id, newer.entry_id)
        watch.cancel()


# -- the sweeper ----------------------------------------------------------------------------------


async def test_the_sweeper_hints_a_session_whose_hint_was_lost(fleet: Fleet) -> None:
    await accept(fleet)
    await fleet.scripts.client.delete("rq:queue:agents")
    assert await fleet.sweeper.sweep() == 0  # it may still be on its way

    await let_pass(fleet, GRACE_MS + 1)

    assert await fleet.sweeper.sweep() == 1
    assert await hints(fleet) == 1


async def test_the_sweeper_does_not_swell_a_queue_that_is_long(fleet: Fleet) -> None:
    await accept(fleet)
    await let_pass(fleet, GRACE_MS + 1)

    assert await fleet.sweeper.sweep() == 0
    assert await hints(fleet) == 1


async def test_the_sweeper_hints_a_session_whose_worker_is_gone(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    await acquire(fleet, accepted)
    await let_pass(fleet, 29_000)
    assert await fleet.sweeper.sweep() == 0

    await let_pass(fleet, 1_000 + GRACE_MS)

    assert await fleet.sweeper.sweep() == 1


async def test_the_sweeper_waits_longer_each_time(fleet: Fleet) -> None:
    await accept(fleet)
    found = []
    for _ in range(4):
        await fleet.scripts.client.delete("rq:queue:agents")
        await let_pass(fleet, GRACE_MS + 1)
        found.append(await fleet.sweeper.sweep())

    assert found == [1, 1, 0, 1]


async def test_a_lost_hint_is_repeated_though_the_queue_is_never_empty(fleet: Fleet) -> None:
    """Not soon, or a long queue would swell; but others must not keep it waiting for good."""
    await accept(fleet, from_="alice")
    await fleet.scripts.client.delete("rq:queue:agents")
    await accept(fleet, from_="bob")

    looks = 0
    while not await fleet.sweeper.sweep():
        await let_pass(fleet, 61_000)
        looks += 1

    assert 3 < looks < 10


# -- lingering ------------------------------------------------------------------------------------


async def test_lingering_ends_with_the_sessions_next_message(fleet: Fleet) -> None:
    lease, _ = await idle(fleet)

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(lease.wait(HANG_S))
        await accept(fleet, "two")

    assert waiting.result() == "entry"


async def test_lingering_ends_when_another_session_waits(fleet: Fleet) -> None:
    lease, _ = await idle(fleet)

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(lease.wait(HANG_S))
        await accept(fleet, "somebody else's", from_="bob")

    assert waiting.result() == "hint"


async def test_lingering_has_an_end(fleet: Fleet) -> None:
    lease, _ = await idle(fleet)

    assert await lease.wait(0.01) == "nothing"


# -- what dead workers leave ----------------------------------------------------------------------


async def test_a_dead_workers_lease_ends_at_once(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    assert await fleet.leases.acquire(accepted.session.sid, worker="here pid 1", host="here")
    asked: list[str] = []

    def lives(name: str) -> bool:
        asked.append(name)
        return True

    assert await fleet.sweeper.release_dead("elsewhere", lambda _: False) == 0
    assert await fleet.sweeper.release_dead("here", lives) == 0
    assert await fleet.leases.acquire(accepted.session.sid, worker="other", host="here") is None
    assert await fleet.sweeper.release_dead("here", lambda _: False) == 1

    assert asked == ["pid 1"]
    assert await fleet.leases.acquire(accepted.session.sid, worker="other", host="here")


async def test_ending_a_lease_does_not_reach_its_successor(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    old = await acquire(fleet, accepted)
    await let_pass(fleet, 31_000)
    await acquire(fleet, accepted)

    ended = await fleet.scripts.run(
        "expire",
        keys={"state": keys.state(old.sid), "active": keys.ACTIVE},
        args={"epoch": old.epoch, "sid": old.sid, "is_deliberate": False},
        deadline=math.inf,
    )

    assert ended == 0
    assert await fleet.leases.acquire(accepted.session.sid, worker="other", host="here") is None


async def test_a_hint_that_is_left_over_takes_no_session_from_its_host(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)  # by the host "here"
    await lease.turns.begin([accepted.entry_id])
    await lease.turns.finish("done", reply=[])
    await lease.close()
    await fleet.scripts.client.set(keys.host("agents@here"), 1)
    await accept(fleet, "again")

    sid = accepted.session.sid
    assert await fleet.leases.acquire(sid, worker="test", host="elsewhere") is None
    assert await fleet.leases.acquire(sid, worker="test", host="here")


async def test_a_session_whose_host_is_busy_for_long_goes_to_another(fleet: Fleet) -> None:
    lease, accepted = await idle(fleet)
    await lease.close()
    await fleet.scripts.client.set(keys.host("agents@here"), 1)
    await accept(fleet, "again")
    sid = accepted.session.sid

    for _ in range(8):
        await let_pass(fleet, 61_000)
        await fleet.sweeper.sweep()

    assert await fleet.leases.acquire(sid, worker="test", host="elsewhere")


async def test_nobody_to_serve_it_does_not_fill_the_queue(fleet: Fleet) -> None:
    await accept(fleet)

    for _ in range(100):
        await let_pass(fleet, 61_000)
        await fleet.sweeper.sweep()

    assert await hints(fleet) < 15


# -- delivering -----------------------------------------------------------------------------------


async def test_a_message_without_a_receipt_is_delivered_again(fleet: Fleet) -> None:
    await answered(fleet, "one")
    await answered(fleet, "two")
    died = fleet.replies.reader("test", "default")
    replies = died.replies()
    assert (await anext(replies)).text == "one"  # delivered, and then it dies
    await replies.aclose()
    await fleet.scripts.client.delete(keys.reader("test", "default"))  # its time has passed

    reader = fleet.replies.reader("test", "default")
    replies = reader.replies()
    for text in ("one", "two"):
        reply = await anext(replies)
        assert reply.text == text
        await reader.receipt(reply)
    await replies.aclose()

    assert await fleet.scripts.client.xlen(REPLIES) == 0


async def test_a_stream_has_one_reader_at_a_time(fleet: Fleet) -> None:
    await answered(fleet, "one")
    first, second = (fleet.replies.reader("test", "default") for _ in range(2))
    replies = first.replies()
    reply = await anext(replies)

    assert not await second.claim()
    with pytest.raises(LeaseLost):
        await second.receipt(reply)

    await first.receipt(reply)
    await replies.aclose()


async def test_a_slow_reader_that_lost_its_stream_delivers_nothing_more(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.fleet.reader.CLAIM_EVERY_S", 0)
    monkeypatch.setattr("remoteclaw.fleet.reader.BLOCK_MS", 20)
    await answered(fleet, "one")
    await answered(fleet, "two")
    slow, quick = (fleet.replies.reader("test", "default") for _ in range(2))
    replies = slow.replies()
    assert (await anext(replies)).text == "one"
    await fleet.scripts.client.delete(keys.reader("test", "default"))  # it took too long

    assert await quick.claim()
    claims: list[bool] = []
    claim = slow.claim

    async def noted() -> bool:
        claims.append(await claim())
        return claims[-1]

    async def upcoming() -> str:
        return (await anext(replies)).text

    monkeypatch.setattr(slow, "claim", noted)
    delivering = asyncio.create_task(upcoming())
    await eventually(lambda: len(claims) > 1)
    assert not any(claims)

    await fleet.scripts.client.delete(keys.reader("test", "default"))  # the quick one has ended
    assert await delivering == "one"  # from the start: who knows what the quick one has delivered
    await replies.aclose()


async def test_a_conversation_that_was_dropped_is_lost_once(fleet: Fleet) -> None:
    """The turn that drops it says so; the next one in the same lease doesn't say it again."""
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)
    await lease.remember("claude|/work", "of-the-cli")
    await lease.release()
    later = await acquire(fleet, accepted)
    assert later.has_lost_conversation({"codex|/work"})

    await later.remember("claude|/work", None)

    assert not later.has_lost_conversation({"claude|/work"})


async def test_a_turn_that_is_begun_again_works_where_it_was(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)
    await fleet.sessions.bind(accepted.session, "web")
    assert await lease.turns.begin([accepted.entry_id])
    assert lease.state.turn_project is None

    await lease.turns.finish("done", reply=[])
    later = await accept(fleet, "and now?")
    assert await lease.turns.begin([later.entry_id])
    assert lease.state.turn_project == "web"


async def test_a_copy_of_a_conversation_is_in_its_project(fleet: Fleet) -> None:
    lease, accepted = await idle(fleet)
    await lease.remember("claude|/web", "of-the-cli")
    await fleet.sessions.bind(accepted.session, "web")
    copy = replace(accepted.session, thread="t")

    await fleet.sessions.fork(await seen(fleet, accepted.session.sid), copy, ["claude|/web"])

    assert (await seen(fleet, copy.sid)).project == "web"


async def seen(fleet: Fleet, sid: str) -> SessionView:
    view = await fleet.sessions.view(sid)
    assert view is not None
    return view


async def test_a_turn_is_in_the_way_of_others_and_not_of_its_own_hint(fleet: Fleet) -> None:
    """One may be left over: the turn came by another way."""
    lease, _ = await begun(fleet)
    assert await hints(fleet) == 1
    needed = asyncio.create_task(lease.needed())
    for _ in range(50):  # it has looked by then
        await fleet.scripts.client.ping()
    assert not needed.done()
    await accept(fleet, from_="bob")

    async with asyncio.timeout(HANG_S):
        await needed
