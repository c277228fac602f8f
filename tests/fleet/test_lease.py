"""The lease of a session: acquired, held, lost and released."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import Scripts, open_redis
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Conversation
from tests.support.leases import accept, acquire, begun, hints, idle, let_pass, postpone
from tests.support.stack import REPLIES, message
from tests.support.waiting import HANG_S, eventually

# -- the lease -------------------------------------------------------------------------------------


async def test_an_idle_session_gives_no_lease(fleet: Fleet) -> None:
    assert await fleet.leases.acquire("0" * 32, worker="test", host="here") is None


async def test_a_held_session_gives_no_second_lease(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    await acquire(fleet, accepted)

    assert await fleet.leases.acquire(accepted.session.sid, worker="other", host="here") is None


async def test_entries_read_with_the_lease_are_read_again_after_a_write(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)
    await lease.turns.finish("done", reply=[])

    assert await lease.entries() == []


async def test_an_expired_lease_is_taken_over_and_the_old_holder_is_fenced(fleet: Fleet) -> None:
    old, accepted = await begun(fleet)
    await let_pass(fleet, 31_000)

    new = await acquire(fleet, accepted)

    assert int(new.epoch) > int(old.epoch)
    for write in (
        old.turns.begin([accepted.entry_id]),
        old.turns.note_phase("spawned"),
        old.turns.publish(0, {"text": "stale"}),
        old.turns.finish("done", reply=[]),
        old.turns.publish_live_text({"text": "stale"}),
        old._renew(),
        old.remember("claude", Conversation("stale")),
        old.reset(accepted.entry_id, "/new", keep_ms=1000, keep=1),
        old.close(),
        old.release(),
        postpone(fleet, old, 60_000),
    ):
        with pytest.raises(LeaseLost):
            await write
    assert await fleet.scripts.client.exists(REPLIES) == 0


async def test_the_agent_of_a_postponed_turn_keeps_its_tools(fleet: Fleet) -> None:
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


async def test_a_late_renewal_does_not_wake_a_postponed_session(fleet: Fleet) -> None:
    lease, _ = await begun(fleet)
    until = await postpone(fleet, lease, 3_600_000)

    state = keys.state(lease.sid)
    await lease._renew()

    assert await fleet.scripts.client.zscore(keys.ACTIVE, lease.sid) == until
    assert not await fleet.scripts.client.hexists(state, "lease_until_ms")


async def test_a_message_to_a_postponed_background_session_adds_no_hint(
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
    assert view.lane == "agents", "it is served in the lane of people's messages once it is due"


async def test_a_turn_may_finish_under_an_expired_lease_that_no_worker_took_over(
    fleet: Fleet,
) -> None:
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


async def test_a_lost_lease_is_noticed_and_known_to_the_next_attempt(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    state: Any = await fleet.scripts.client.hgetall(keys.state(accepted.session.sid))
    lost = await acquire(fleet, accepted)
    await lost.turns.begin([accepted.entry_id])
    await fleet.scripts.client.delete(keys.state(lost.sid))  # Redis lost its last writes
    await fleet.scripts.client.hset(keys.state(lost.sid), mapping=state)

    with pytest.raises(LeaseLost):
        await lost._renew()

    lease = await acquire(fleet, accepted)
    batch = await lease.turns.begin([accepted.entry_id])
    assert batch is not None
    assert (batch.attempt, batch.furthest_phase_before) == (1, "spawned")


async def test_an_owner_that_was_frozen_too_long_gives_up_its_lease(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)
    lease.lease_s = 0.06
    lease.renewed_at -= 1

    with pytest.raises(LeaseLost, match="frozen"):
        await lease._renew()


async def test_an_owner_that_cannot_reach_redis_gives_up_its_lease_in_time(fleet: Fleet) -> None:
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)
    lease.lease_s = 0.5
    lease.scripts = Scripts(open_redis("unix:///nonexistent/socket"))

    with pytest.raises(LeaseLost, match="could not be renewed"):
        await lease.listen(lambda _stop, _newest: None)


# -- leaving ---------------------------------------------------------------------------------------


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


async def test_a_message_after_close_schedules_the_session_again(fleet: Fleet) -> None:
    lease, _ = await idle(fleet)
    await lease.close()
    await fleet.scripts.client.delete("rq:queue:agents")

    await accept(fleet, "two")

    assert await hints(fleet) == 1


async def test_releasing_a_lease_queues_its_session_again(fleet: Fleet) -> None:
    accepted = await accept(fleet, "one")
    lease = await acquire(fleet, accepted)
    await fleet.scripts.client.delete("rq:queue:agents")

    await lease.release()

    assert await hints(fleet) == 1
    assert await fleet.leases.acquire(accepted.session.sid, worker="other", host="here")


# -- stopping --------------------------------------------------------------------------------------


async def test_a_stop_covers_accepted_messages_and_no_later_ones(fleet: Fleet) -> None:
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


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_repeated_stop_has_no_effect_and_one_with_its_id_in_another_chat_has(
    fleet: Fleet, is_shared: bool
) -> None:
    """A platform numbers the messages of each chat, and several bots get a group's message."""

    async def stop(session: SessionKey) -> int | None:
        if is_shared:
            return await fleet.sessions.stop_own(session, "alice", call="7")
        return await fleet.sessions.stop(session.sid, call="7")

    async def accepted_in(chat: str) -> SessionKey:
        written = message("one", from_="alice", channel_id=chat, chat_kind="group")
        return (await fleet.inbound.append(written, agent="main", is_shared=is_shared)).session

    first, second = await accepted_in("team"), await accepted_in("other")
    assert await stop(first) == 1
    await accepted_in("team")
    assert (await stop(first), await stop(second)) == (1, 1)
    state = await fleet.scripts.client.hget(keys.state(second.sid), "stop_entry")
    assert state is not None


async def test_stopping_an_idle_session_does_nothing(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)
    await lease.turns.finish("done", reply=[])  # the turn has finished before the stop

    assert await fleet.sessions.stop(accepted.session.sid) == 0


async def listeners(fleet: Fleet, channel: str) -> int:
    ((_, count),) = await fleet.scripts.client.pubsub_numsub(channel)
    return int(count)


async def test_the_owner_of_a_lease_is_notified_of_new_messages_and_stops(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)
    notifications: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def wait_for(*notification: str) -> None:
        async with asyncio.timeout(HANG_S):
            while await notifications.get() != notification:
                pass

    async with asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(
            lease.listen(lambda *notification: notifications.put_nowait(notification))
        )
        await eventually(lambda: listeners(fleet, keys.bell(lease.sid)))
        await wait_for("", accepted.entry_id)
        newer = await accept(fleet)
        await wait_for("", newer.entry_id)
        await fleet.sessions.stop(accepted.session.sid)
        await wait_for(newer.entry_id, newer.entry_id)
        listening.cancel()


# -- lingering -------------------------------------------------------------------------------------


async def test_lingering_ends_with_the_sessions_next_message(fleet: Fleet) -> None:
    lease, _ = await idle(fleet)

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(lease.wait(HANG_S))
        accepted = await accept(fleet, "two")

    assert waiting.result() == "entry"
    assert [entry_id.decode() for entry_id, _ in await lease.entries()] == [accepted.entry_id]


async def test_lingering_ends_when_another_session_waits(fleet: Fleet) -> None:
    lease, _ = await idle(fleet)

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(lease.wait(HANG_S))
        await accept(fleet, "somebody else's", from_="bob")

    assert waiting.result() == "hint"


async def test_lingering_times_out(fleet: Fleet) -> None:
    lease, _ = await idle(fleet)

    assert await lease.wait(0.01) == "nothing"


# -- conversations, and other waiting sessions -----------------------------------------------------


async def test_a_dropped_conversation_counts_as_lost_once(fleet: Fleet) -> None:
    """The turn that drops it reports the loss; the next turn under the same lease doesn't."""
    accepted = await accept(fleet)
    lease = await acquire(fleet, accepted)
    await lease.remember("main|claude|/work", Conversation("of-the-cli"))
    await lease.release()
    later = await acquire(fleet, accepted)
    assert later.has_lost_conversation({"main|codex|/work"})

    await later.remember("main|claude|/work", None)

    assert not later.has_lost_conversation({"main|claude|/work"})


async def test_a_repeated_turn_keeps_its_project(fleet: Fleet) -> None:
    lease, accepted = await begun(fleet)
    await fleet.sessions.bind(accepted.session, "web")
    assert await lease.turns.begin([accepted.entry_id])
    assert lease.state.turn_project is None

    await lease.turns.finish("done", reply=[])
    later = await accept(fleet, "and now?")
    assert await lease.turns.begin([later.entry_id])
    assert lease.state.turn_project == "web"


async def test_a_copy_of_a_conversation_keeps_its_project(fleet: Fleet) -> None:
    lease, accepted = await idle(fleet)
    await lease.remember("main|claude|/web", Conversation("of-the-cli"))
    await fleet.sessions.bind(accepted.session, "web")
    copy = replace(accepted.session, thread="t")

    view = await view_of(fleet, accepted.session.sid)
    await fleet.sessions.fork(view, copy, ["main|claude|/web"], view.limits.of_fork)

    assert (await view_of(fleet, copy.sid)).project == "web"


async def view_of(fleet: Fleet, sid: str) -> SessionView:
    view = await fleet.sessions.view(sid)
    assert view is not None
    return view


async def test_a_worker_is_needed_for_other_sessions_but_not_for_its_own_hint(fleet: Fleet) -> None:
    """A hint can be left over, because the turn can begin without it."""
    lease, _ = await begun(fleet)
    assert await hints(fleet) == 1
    needed = asyncio.create_task(lease.wait_until_needed())
    for _ in range(50):  # enough time for one check
        await fleet.scripts.client.ping()
    assert not needed.done()
    await accept(fleet, from_="bob")

    async with asyncio.timeout(HANG_S):
        await needed
