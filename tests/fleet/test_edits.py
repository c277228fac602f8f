"""Edits of messages: only another content counts, and only for a message that waits."""

from collections.abc import Sequence
from typing import Any

import pytest

from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.turns.asides import AsideEnd, Asides
from remoteclaw.fleet.turns.edits import EditVerdict, content_digest
from remoteclaw.fleet.turns.inbound import Accepted, Known, decode_entry
from tests.support.leases import acquire
from tests.support.stack import message


async def say(fleet: Fleet, text: str, *, id_: str = "m1") -> Accepted:
    """Accept a message as a channel does."""
    once = (Known(id_, content_digest(text, ())),)
    return await fleet.inbound.append(message(text, id=id_), agent="main", once=once)


async def edit(fleet: Fleet, text: str, *, name: str = "m1.1", **more: Any) -> EditVerdict:
    """Edit the message m1; `name` is the name of the edit."""
    original = Known("m1", content_digest(text, ()))
    about = {"agent": "main", "is_shared": False, "is_command": False, **more}
    return await fleet.edits.edit(message(text, id="m1"), original, name=name, **about)


def texts(entries: Sequence[Any]) -> list[str]:
    """Return the texts of entries as they were read from Redis."""
    return [decode_entry(*each).message.text for each in entries]


async def test_a_report_with_the_same_content_is_no_edit(fleet: Fleet) -> None:
    await say(fleet, "blue")

    assert await edit(fleet, "blue") == "same"
    assert await edit(fleet, "red", name="m1.2") == "replaced"
    assert await edit(fleet, "red", name="m1.3") == "same"


async def test_an_edit_of_an_unknown_message_has_no_effect(fleet: Fleet) -> None:
    assert await edit(fleet, "blue") == "unknown"
    assert await fleet.sessions.list(limit=9) == []


async def test_every_reader_gets_the_newest_version(fleet: Fleet) -> None:
    first, _ = await say(fleet, "blue"), await say(fleet, "and", id_="m2")
    assert await edit(fleet, "red") == "replaced"
    lease = await acquire(fleet, first)
    assert texts(await lease.entries()) == ["red", "and"]
    assert texts(await lease.entries()) == ["red", "and"]  # not the entries that came with it

    batch = await lease.turns.begin([first.entry_id])
    assert batch is not None
    assert [entry.message.text for entry in batch.entries] == ["red"]
    assert await edit(fleet, "green", name="m1.2") == "late"
    await lease.turns.finish("dead", reply=[], error={"category": "test", "detail": ""})
    (letter,) = await fleet.dead_letters.list()
    assert "red" in str(letter)
    assert not await fleet.scripts.client.exists(keys.edits(lease.sid))


async def test_a_message_that_joins_a_turn_does_so_in_its_newest_version(fleet: Fleet) -> None:
    first = await say(fleet, "work", id_="m0")
    second = await say(fleet, "blue")
    lease = await acquire(fleet, first)
    await lease.turns.begin([first.entry_id])
    assert await edit(fleet, "red") == "replaced"

    assert texts(await lease.turns.join([second.entry_id])) == ["red"]
    assert await edit(fleet, "green", name="m1.2") == "late"


@pytest.mark.parametrize("verdict", ["answered", "work", "stop"])
async def test_a_message_that_is_edited_during_its_aside_waits(fleet: Fleet, verdict: Any) -> None:
    first = await say(fleet, "work", id_="m0")
    second = await say(fleet, "blue")
    lease = await acquire(fleet, first)
    await lease.turns.begin([first.entry_id])
    asides = Asides(lease)
    assert await asides.ask(first.entry_id, second.entry_id)
    assert await edit(fleet, "red") == "replaced"

    end = AsideEnd(place=lease.session.place, payloads=[{"text": "It is blue."}])
    assert await asides.end(first.entry_id, second.entry_id, verdict, end) == "later"
    assert texts(await lease.entries_after(first.entry_id)) == ["red"]


async def test_an_edit_brings_no_command(fleet: Fleet) -> None:
    first = await say(fleet, "blue")

    assert await edit(fleet, "/new", is_command=True) == "command"
    lease = await acquire(fleet, first)
    assert texts(await lease.entries()) == ["blue"]


async def test_a_repeated_edit_has_the_same_result(fleet: Fleet) -> None:
    first = await say(fleet, "blue")
    lease = await acquire(fleet, first)
    await lease.turns.begin([first.entry_id])

    assert [await edit(fleet, "red") for _ in range(2)] == ["late", "late"]
    assert len(await Asides(lease).notes()) == 1


@pytest.mark.parametrize("step", ["begin", "join"])
async def test_a_message_withdrawn_just_before_its_turn_stays_dropped(
    fleet: Fleet, step: str
) -> None:
    first, second = await say(fleet, "work", id_="m0"), await say(fleet, "blue")
    lease = await acquire(fleet, first)
    ids = [first.entry_id, second.entry_id]
    if step == "join":
        await lease.turns.begin(ids[:1])
    assert await fleet.edits.withdraw(lease.session, "m1") == "withdrawn"
    if step == "join":
        assert await lease.turns.join(ids[1:]) == []
    else:
        batch = await lease.turns.begin(ids)
        assert batch is not None
    await lease.turns.finish("done", reply=[])

    outcome = await fleet.outcomes.read(lease.sid, second.entry_id)
    assert outcome is not None
    assert (outcome.status, outcome.turn, (outcome.error or {})["category"]) == (
        "dropped",
        None,
        "withdrawn",
    )


async def test_an_edit_of_an_edit_has_no_effect(fleet: Fleet) -> None:
    """Each edit names the original, never the edit before."""
    await say(fleet, "blue")
    assert await edit(fleet, "red") == "replaced"

    original = Known("m1.1", content_digest("green", ()))
    about: Any = {"agent": "main", "is_shared": False, "is_command": False}
    chained = message("green", id="m1.1")
    assert await fleet.edits.edit(chained, original, name="m1.2", **about) == "unknown"
