"""The states that messages show, as Redis knows them."""

import math
from typing import Any

import pytest

from remoteclaw.errors import LeaseLost
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.replies.reader import ReplyReader
from remoteclaw.fleet.replies.signs import MAX_SIGNS, Sign
from remoteclaw.fleet.turns.inbound import Accepted
from tests.support.leases import accept, acquire, begun


async def reader_of(fleet: Fleet) -> ReplyReader:
    reader = fleet.replies.reader("test", "default")
    assert await reader.claim()
    return reader


async def add(fleet: Fleet, accepted: Accepted, id_: str = "m1") -> Sign:
    sign = Sign("chat-1", None, id_, accepted.session.sid, accepted.entry_id)
    await fleet.signs.add("test", "default", sign, deadline=math.inf)
    return sign


async def state(fleet: Fleet, reader: ReplyReader) -> str:
    """Return the state of the only message that shows one."""
    ((_, state),) = await fleet.signs.read(reader)
    return state


@pytest.mark.parametrize(
    ("status", "reply", "shown"),
    [
        ("done", ["Yes."], "done"),
        ("done", [], "ended"),  # the agent has nothing to say
        ("failed", ["It failed."], "failed"),
        ("dead", [], "failed"),
        ("stopped", [], "ended"),
        ("interrupted", [], "ended"),
        ("dropped", [], "failed"),
    ],
)
async def test_a_message_shows_the_class_of_its_outcome(
    fleet: Fleet, status: str, reply: list[str], shown: str
) -> None:
    reader, accepted = await reader_of(fleet), await accept(fleet)
    await add(fleet, accepted)
    assert await state(fleet, reader) == "received"
    lease = await acquire(fleet, accepted)
    assert await lease.turns.begin([accepted.entry_id])
    assert await state(fleet, reader) == "works"

    texts: list[dict[str, Any]] = [{"type": "text", "text": text} for text in reply]
    await lease.turns.finish(status, reply=texts)

    assert await state(fleet, reader) == shown


async def test_an_answer_that_the_chat_has_refused_shows_as_failed(fleet: Fleet) -> None:
    reader, (lease, accepted) = await reader_of(fleet), await begun(fleet)
    await add(fleet, accepted)
    await lease.turns.finish("done", reply=[{"type": "text", "text": "Yes."}])
    outcome = keys.outcome(accepted.session.sid, accepted.entry_id)
    await fleet.scripts.client.hset(outcome, "undelivered", "1 It is too long.")

    assert await state(fleet, reader) == "failed"


async def test_a_message_waits_again_once_the_lease_of_its_worker_is_over(fleet: Fleet) -> None:
    reader, (lease, accepted) = await reader_of(fleet), await begun(fleet)
    await add(fleet, accepted)
    assert await state(fleet, reader) == "works"

    await fleet.scripts.run("expire", epoch=lease.epoch, sid=lease.sid, is_deliberate=False)

    assert await state(fleet, reader) == "received"


async def test_a_withdrawn_message_and_one_of_an_unknown_entry_show_nothing(fleet: Fleet) -> None:
    reader, accepted = await reader_of(fleet), await accept(fleet, id="m1")
    await add(fleet, accepted)
    assert await fleet.edits.withdraw(accepted.session, "m1") == "withdrawn"
    assert await state(fleet, reader) == "gone"

    await fleet.scripts.client.delete(keys.outcome(accepted.session.sid, accepted.entry_id))
    assert await state(fleet, reader) == "ended"


async def test_only_the_reader_removes_signs_and_an_account_has_a_limited_number(
    fleet: Fleet,
) -> None:
    reader, accepted = await reader_of(fleet), await accept(fleet)
    first = await add(fleet, accepted, "m0")
    for number in range(1, MAX_SIGNS + 5):
        await add(fleet, accepted, f"m{number}")
    other = fleet.replies.reader("test", "default")

    for call in (fleet.signs.remove(other, first.name), fleet.signs.read(other)):
        with pytest.raises(LeaseLost):
            await call

    assert len(await fleet.signs.read(reader)) == MAX_SIGNS
    await fleet.signs.remove(reader, first.name)
    assert first not in [sign for sign, _ in await fleet.signs.read(reader)]
