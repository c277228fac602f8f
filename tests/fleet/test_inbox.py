"""The inbox of an account: its reports, its cursors, and which reader may write them."""

from dataclasses import replace
from typing import Any, cast

import pytest

from remoteclaw.errors import LeaseLost, RedisRefused
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.inbox import LateMessages, StoredReport, readable
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.protocols import Incoming, Place
from tests.support.stack import Stack

REPORT = Incoming(id="2", chat="alice", sender="alice", at_ms=1, text="hello")


async def claimed(fleet: Fleet) -> ReplyReader:
    """Return a reader that has the claim; an earlier claim has expired."""
    await fleet.scripts.client.delete(keys.reader("test", "default"))
    reader = fleet.replies.reader("test", "default")
    await reader.wait_for_claim()
    return reader


def texts(reports: list[StoredReport]) -> list[str]:
    return [stored.incoming.text for stored in reports]


async def test_reports_and_cursors_are_stored_by_the_reader_alone(fleet: Fleet) -> None:
    first = await claimed(fleet)
    (stored,) = await fleet.inbox.store(first, [REPORT], {"one": "7", "two": "1"})
    second = await claimed(fleet)
    with pytest.raises(LeaseLost):
        await fleet.inbox.store(first, [REPORT], {"one": "8"})
    with pytest.raises(LeaseLost):
        await fleet.inbox.done(first, accepted=[stored.id])

    assert await fleet.inbox.cursors(second) == {"one": "7", "two": "1"}
    (taken,) = await fleet.inbox.take(second)
    assert taken == stored
    assert await fleet.inbox.store(second, [], {"one": None}) == []
    assert await fleet.inbox.cursors(second) == {"two": "1"}


async def test_reports_are_taken_in_their_order_until_they_are_done(fleet: Fleet) -> None:
    reader = await claimed(fleet)
    reports = [Incoming(id=f"{n}", chat="a", sender="a", at_ms=1, text=f"{n}") for n in range(12)]
    stored = await fleet.inbox.store(reader, reports[:5], {})
    stored += await fleet.inbox.store(reader, reports[5:], {})
    await fleet.inbox.done(reader, accepted=[stored[1].id], skipped=[stored[2].id])
    await fleet.inbox.done(reader, accepted=[stored[1].id])  # again: it counts once

    left = [f"{number}" for number in range(12) if number not in (1, 2)]
    assert texts(await fleet.inbox.take(reader)) == left
    view = await fleet.accounts.view("test", "default")
    assert (view.accepted, view.skipped) == (1, 1)


async def test_a_full_redis_stores_no_report_and_leaves_the_cursors(stack: Stack) -> None:
    fleet = stack.fleet
    reader, client = await claimed(fleet), fleet.scripts.client
    used = (await client.info("memory"))["used_memory"]
    await client.config_set("maxmemory", int(used / 0.9))
    try:
        with pytest.raises(RedisRefused):
            await fleet.inbox.store(reader, [REPORT], {"one": "7"})
    finally:
        await client.config_set("maxmemory", 0)
    assert await fleet.inbox.cursors(reader) == {}
    assert await fleet.inbox.take(reader) == []


async def test_nothing_is_stored_after_what_redis_may_have_lost(stack: Stack) -> None:
    reader = await claimed(stack.fleet)
    run_id = await stack.fleet.scripts.run_id()
    await stack.fleet.inbox.store(reader, [REPORT], {"one": "7"}, run_id=run_id)
    stack.redis.kill()
    stack.redis.start()
    with pytest.raises(LeaseLost, match="restarted"):
        await stack.fleet.inbox.store(reader, [REPORT], {"one": "8"}, run_id=run_id)

    assert await stack.fleet.inbox.cursors(reader) == {"one": "7"}


async def test_a_stored_report_that_can_not_be_read_holds_up_no_other(fleet: Fleet) -> None:
    """Another version of RemoteClaw has stored it."""
    client: Any = fleet.scripts.client
    await client.hset(keys.inbox("test", "default"), "0", b'0 {"id":"1","from":"alice"}')
    reader = await claimed(fleet)

    assert await fleet.inbox.take(reader) == []
    await fleet.inbox.store(reader, [REPORT], {})
    assert texts(await fleet.inbox.take(reader)) == ["hello"]
    assert (await fleet.accounts.view("test", "default")).skipped == 1


async def test_late_messages_are_counted_until_their_chat_is_told(fleet: Fleet) -> None:
    reader, here = await claimed(fleet), Place("team", "t")
    one, two, three = await fleet.inbox.store(reader, [REPORT] * 3, {})
    for _ in range(2):  # the second call is a repetition
        await fleet.inbox.done(reader, late=[(one.id, 5, here), (two.id, 3, here)])

    (late,) = await fleet.inbox.late_messages(reader)
    assert late == LateMessages(here, "2 3 5")
    await fleet.inbox.done(reader, late=[(three.id, 9, here)])
    await fleet.inbox.late_told(reader, late)  # one more has come: it is told of again
    (later,) = await fleet.inbox.late_messages(reader)
    assert (later.count, later.first_ms, later.last_ms) == (3, 3, 9)
    await fleet.inbox.late_told(reader, later)
    assert await fleet.inbox.late_messages(reader) == []


def test_a_report_is_readable_unless_a_field_has_a_wrong_type() -> None:
    odd = cast(Any, {"a", "set"})
    assert readable(replace(REPORT, parts=cast(Any, []))) == REPORT
    assert readable(replace(REPORT, text="half \ud83d")).text == "half ?"
    for wrong in ({"quoted": odd}, {"text": None}, {"sender": 7}, {"files": None}):
        with pytest.raises(ValueError, match=r"set|loc"):
            readable(replace(REPORT, **cast(Any, wrong)))
