"""Replies that no adapter reads: they take memory, and are worth little after some days."""

import re
from typing import Any

from remoteclaw.fleet import Fleet
from remoteclaw.fleet.connection import PRELUDE
from remoteclaw.fleet.outcomes import Outcome
from remoteclaw.fleet.replies import reply_payload
from remoteclaw.messages import Attachment
from tests.support.stack import message

DAY_MS = 24 * 3600 * 1000
STREAM = "rc:out:test:default"


async def let_pass(fleet: Fleet, milliseconds: int) -> None:
    """Move the clock that the scripts see."""
    await fleet.scripts.client.incrby("test:shift", milliseconds)


async def answered(fleet: Fleet, text: str, file: Attachment | None = None) -> tuple[str, str]:
    """Have a turn answered; return the session and the entry."""
    accepted = await fleet.inbound.append(message(text), agent="main")
    lease = await fleet.leases.acquire(accepted.session.sid, worker="test", host="here")
    assert lease is not None
    assert await lease.begin([accepted.entry_id])
    payload = reply_payload(
        sid=lease.sid,
        turn=accepted.entry_id,
        attempt=1,
        index=0,
        channel_id="chat-1",
        thread_id=None,
        text=text,
        attachments=[file] if file else [],
        entries=[accepted.entry_id],
    )
    await lease.finish("done", reply=[], payloads=[payload])
    await lease.close()
    return lease.sid, accepted.entry_id


async def outcome_of(fleet: Fleet, entry: tuple[str, str]) -> Outcome:
    outcome = await fleet.outcomes.read(*entry)
    assert outcome is not None
    return outcome


def steps(outcome: Outcome) -> list[str]:
    return [step.name for step in outcome.steps]


async def test_what_no_adapter_reads_is_given_up_after_three_days(fleet: Fleet) -> None:
    file = Attachment(name="x", mime_type="text/plain", size=1, blob="f" * 32)
    old = await answered(fleet, "old", file)
    blob = f"rc:blob:{{{old[0]}}}:{file.blob}"
    client: Any = fleet.scripts.client
    await client.set(blob, "x")
    ((reply_id, fields),) = await client.xrange(STREAM)
    await client.delete(STREAM)  # ids are of the server's own clock: it was put there earlier
    await client.xadd(STREAM, fields, id=int(reply_id.partition(b"-")[0]) - 3 * DAY_MS - 1000)

    await answered(fleet, "new")

    assert await fleet.scripts.client.xlen(STREAM) == 1
    outcome = await outcome_of(fleet, old)
    assert (outcome.status, steps(outcome)[-1]) == ("done", "undelivered")
    assert not await fleet.scripts.client.exists(blob)


async def test_what_is_younger_stays(fleet: Fleet) -> None:
    await answered(fleet, "one")
    await let_pass(fleet, 3 * DAY_MS - 60_000)

    await answered(fleet, "two")

    assert await fleet.scripts.client.xlen(STREAM) == 2


async def test_what_a_live_adapter_has_still_to_deliver_stays(fleet: Fleet) -> None:
    await answered(fleet, "one")
    reader = fleet.replies.reader("test", "default")
    assert await reader.claim()
    for _ in range(30 * 24 * 2):  # it renews its claim more often than that
        await let_pass(fleet, DAY_MS // 48)
        assert await reader.claim()

    await answered(fleet, "two")

    assert await fleet.scripts.client.xlen(STREAM) == 2


async def test_an_adapter_that_comes_late_delivers_nothing_old(fleet: Fleet) -> None:
    old = await answered(fleet, "old")
    await let_pass(fleet, 30 * DAY_MS)
    reader = fleet.replies.reader("test", "default")

    assert await reader.claim()

    assert await fleet.scripts.client.xlen(STREAM) == 0
    assert steps(await outcome_of(fleet, old))[-1] == "undelivered"


async def test_streams_have_a_bound(fleet: Fleet) -> None:
    assert "MOST_UNREAD = 3 * 24 * 3600 * 1000, 10000" in PRELUDE
    fleet.scripts._prelude = re.sub(r"1000, 10000\n", "1000, 3\n", fleet.scripts._prelude)

    entries = [await answered(fleet, str(number)) for number in range(5)]

    assert await fleet.scripts.client.xlen(STREAM) == 3
    told = [steps(await outcome_of(fleet, entry))[-1] for entry in entries]
    assert told == ["undelivered", "undelivered", "finished", "finished", "finished"]


async def test_an_adapter_that_is_started_again_has_still_all_to_deliver(fleet: Fleet) -> None:
    fleet.scripts._prelude = re.sub(r"1000, 10000\n", "1000, 3\n", fleet.scripts._prelude)
    client: Any = fleet.scripts.client
    assert await fleet.replies.reader("test", "default").claim()
    await client.delete("rc:reader:test:default")  # it has ended

    for number in range(5):
        await answered(fleet, str(number))
    assert await client.xlen(STREAM) == 5

    await let_pass(fleet, 3600 * 1000 + 60_000)
    await answered(fleet, "late")
    assert await client.xlen(STREAM) == 3


async def test_damaged_replies_are_given_up_as_well(fleet: Fleet) -> None:
    await fleet.scripts.client.xadd(STREAM, {"reply": "{"}, id="1-1")
    await fleet.scripts.client.xadd(STREAM, {"reply": "[]"}, id="1-2")
    await fleet.scripts.client.xadd(STREAM, {"reply": "7"}, id="1-3")

    await answered(fleet, "new")

    assert await fleet.scripts.client.xlen(STREAM) == 1


async def test_who_looks_is_told_of_them(fleet: Fleet) -> None:
    await answered(fleet, "one")
    await answered(fleet, "two")

    (unread,) = await fleet.replies.unread()
    assert (unread.provider, unread.account, unread.count) == ("test", "default", 2)
    assert 0 <= unread.age_s < 60

    assert await fleet.replies.reader("test", "default").claim()
    assert list(await fleet.replies.unread()) == []
