"""Replies that no adapter reads: they take memory, so they expire after some days."""

from pathlib import Path
from typing import Any

import pytest

from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.lua import Script
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.fleet.turns.outcomes import Outcome
from remoteclaw.messages import Attachment
from remoteclaw.up.embedded import ServerProgram
from tests.support.leases import answered, let_pass
from tests.support.servers import installed_servers, running_server
from tests.support.stack import REPLIES, Stack

DAY_MS = 24 * 3600 * 1000
STREAM = REPLIES


async def outcome_of(fleet: Fleet, accepted: Accepted) -> Outcome:
    outcome = await fleet.outcomes.read(accepted.session.sid, accepted.entry_id)
    assert outcome is not None
    return outcome


def steps(outcome: Outcome) -> list[str]:
    return [step.name for step in outcome.steps]


async def make_older(fleet: Fleet, milliseconds: int) -> None:
    """Make the waiting reply older by `milliseconds`; its id is a time of the server's clock."""
    client: Any = fleet.scripts.client
    ((reply_id, fields),) = await client.xrange(STREAM)
    await client.delete(STREAM)
    await client.xadd(STREAM, fields, id=int(reply_id.partition(b"-")[0]) - milliseconds)


async def test_a_reply_that_no_adapter_reads_expires_after_three_days(fleet: Fleet) -> None:
    file = Attachment(name="x", mime_type="text/plain", size=1, blob="f" * 32)
    old = await answered(fleet, "old", file)
    blob = keys.blob(old.session.sid, file.blob)
    client: Any = fleet.scripts.client
    await client.set(blob, "x")
    await make_older(fleet, 3 * DAY_MS + 1000)

    await answered(fleet, "new")

    assert await fleet.scripts.client.xlen(STREAM) == 1
    outcome = await outcome_of(fleet, old)
    assert (outcome.status, steps(outcome)[-1]) == ("done", "undelivered")
    assert not await fleet.scripts.client.exists(blob)


async def test_a_younger_unread_reply_stays(fleet: Fleet) -> None:
    await answered(fleet, "one")
    await let_pass(fleet, 3 * DAY_MS - 60_000)

    await answered(fleet, "two")

    assert await fleet.scripts.client.xlen(STREAM) == 2


async def test_an_old_reply_stays_while_an_adapter_reads_its_stream(fleet: Fleet) -> None:
    await answered(fleet, "one")
    assert await fleet.replies.reader("test", "default").claim()
    await make_older(fleet, 30 * DAY_MS)

    await answered(fleet, "two")

    assert await fleet.scripts.client.xlen(STREAM) == 2


async def test_an_adapter_that_starts_late_delivers_no_expired_reply(fleet: Fleet) -> None:
    old = await answered(fleet, "old")
    await let_pass(fleet, 30 * DAY_MS)
    reader = fleet.replies.reader("test", "default")

    assert await reader.claim()

    assert await fleet.scripts.client.xlen(STREAM) == 0
    assert steps(await outcome_of(fleet, old))[-1] == "undelivered"


def replace_limit(fleet: Fleet, usual: str, other: str) -> None:
    """Replace a limit in the scripts."""
    assert usual in Script.named("publish").source
    edit = fleet.scripts._edit
    fleet.scripts._edit = lambda source: edit(source).replace(usual, other)


async def test_an_unread_stream_is_bounded_in_bytes(stack: Stack) -> None:
    fleet = stack.fleet
    replace_limit(fleet, "32 * 1024 * 1024", "20 * 1024")

    entries = [await answered(fleet, "x" * 8000) for _ in range(5)]

    assert await fleet.scripts.client.xlen(STREAM) == 2
    last_steps = [steps(await outcome_of(fleet, entry))[-1] for entry in entries]
    assert last_steps == ["undelivered", "undelivered", "undelivered", "finished", "finished"]


async def test_a_restarted_adapter_finds_all_undelivered_replies(stack: Stack) -> None:
    fleet = stack.fleet
    replace_limit(fleet, "32 * 1024 * 1024", "20 * 1024")
    client: Any = fleet.scripts.client
    assert await fleet.replies.reader("test", "default").claim()
    await client.delete(keys.reader("test", "default"))  # it has ended

    for _ in range(5):
        await answered(fleet, "x" * 8000)
    assert await client.xlen(STREAM) == 5

    await client.zincrby(keys.READERS, -3600 * 1000 - 60_000, "test\0default")
    await answered(fleet, "late")
    assert await client.xlen(STREAM) < 5


async def test_damaged_replies_expire_too(fleet: Fleet) -> None:
    await fleet.scripts.client.xadd(STREAM, {"reply": "{"}, id="1-1")
    await fleet.scripts.client.xadd(STREAM, {"reply": "[]"}, id="1-2")
    await fleet.scripts.client.xadd(STREAM, {"reply": "7"}, id="1-3")

    await answered(fleet, "new")

    assert await fleet.scripts.client.xlen(STREAM) == 1


async def test_unread_streams_are_listed_with_count_and_age(fleet: Fleet) -> None:
    await answered(fleet, "one")
    await answered(fleet, "two")

    (unread,) = await fleet.replies.unread()
    assert (unread.provider, unread.account, unread.count) == ("test", "default", 2)
    assert 0 <= unread.age_s < 60

    assert await fleet.replies.reader("test", "default").claim()
    assert list(await fleet.replies.unread()) == []


# -- dropped replies ------------------------------------------------------------------------------


async def test_dropping_a_reply_deletes_its_files_and_is_noted_in_its_outcome(
    fleet: Fleet,
) -> None:
    file = Attachment(name="x", mime_type="text/plain", size=1000, blob="f" * 32)
    dropped = await answered(fleet, "one", file)
    kept = await answered(fleet, "two")
    client: Any = fleet.scripts.client
    blob = keys.blob(dropped.session.sid, file.blob)
    await client.set(blob, "x" * 1000)
    found = [reply async for reply in fleet.replies.undelivered()]
    assert [(reply.provider, reply.account, reply.sid) for reply in found] == [
        ("test", "default", dropped.session.sid),
        ("test", "default", kept.session.sid),
    ]
    assert found[0].size > 1000 > found[1].size > 0

    assert await fleet.replies.drop(found[:1]) == 1
    assert await fleet.replies.drop(found[:1]) == 0

    assert await client.xlen(STREAM) == 1
    assert not await client.exists(blob)
    outcome = await outcome_of(fleet, dropped)
    assert (outcome.steps[-1].name, outcome.steps[-1].detail) == (
        "undelivered",
        "an operator has dropped it",
    )
    assert steps(await outcome_of(fleet, kept))[-1] == "finished"


async def test_undelivered_replies_are_listed_even_if_unreadable(fleet: Fleet) -> None:
    client: Any = fleet.scripts.client
    operation = '{"v": 1, "sid": "", "call": "{5a}:77"}'
    for payload in ("{", "[]", '{"attachments": [1]}', operation):
        await client.xadd(STREAM, {"reply": payload})
    await client.xadd(keys.replies("other:a", "b"), {"what": "is this"})

    found = [reply async for reply in fleet.replies.undelivered()]

    assert [reply.sid for reply in found] == ["", "", "", "", "5a"]
    assert (found[0].provider, found[0].account, found[0].size) == ("other", "a:b", 0)
    assert await fleet.replies.drop(found) == 5


@pytest.mark.parametrize("program", installed_servers(), ids=lambda program: program.name)
async def test_replies_can_be_dropped_on_a_full_server(
    program: ServerProgram, directory: Path
) -> None:
    with running_server(program, directory) as server:
        fleet = Fleet.open(server.url)
        entry = await answered(fleet, "one")
        await fleet.scripts.client.config_set("maxmemory", 1)

        found = [reply async for reply in fleet.replies.undelivered()]
        assert await fleet.replies.drop(found) == 1

        assert steps(await outcome_of(fleet, entry))[-1] == "undelivered"
        await fleet.aclose()
