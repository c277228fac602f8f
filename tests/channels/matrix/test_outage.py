"""What people write while the account is away: read with few calls, in order, once."""

import asyncio
import contextlib
from typing import Any

import pytest

from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import EVERYONE, SessionKey
from tests.channels.matrix.conftest import Account
from tests.support.matrix import Person
from tests.support.waiting import eventually

#: The homeserver returns the last 100 events of a room at once.
MOST = pytest.mark.parametrize("most", [110, pytest.param(500, marks=pytest.mark.thorough)])
AT_ONCE = 20


@MOST
async def test_an_outage_is_read_with_few_calls(account: Account, most: int) -> None:
    """Only what was written after the first start, and in a new room after the invitation."""
    ann, me = account.ann, account.login.user
    async with contextlib.AsyncExitStack() as exits:
        others = [
            await exits.enter_async_context(Person.registered(account.server, "bob"))
            for _ in range(4)
        ]
        group = await ann.create(me, *(each.id for each in others), is_direct=False)
        for each in others:
            await each.join(group)
        all_messages = {"require_mention": False, "threads": "off"}
        account.configure(groups={group: all_messages})
        rooms = [group, *[await ann.create(me) for _ in range(3)]]
        await account.start()

        async def has_joined() -> bool:
            members = [await ann.call("GET", "rooms", room, "joined_members") for room in rooms]
            return all(me in each["joined"] for each in members)

        await eventually(has_joined)
        new = await ann.create()
        for number in range(5):
            await ann.say(new, f"before {number}")
        await account.stop()
        sending = asyncio.Semaphore(AT_ONCE)

        async def say(number: int) -> None:
            async with sending:
                await [ann, *others][number % 5].say(group, f"number {number}")

        await asyncio.gather(*map(say, range(most)))
    for room in rooms[1:]:
        await ann.say(room, "and here?")
    await ann.call("POST", "rooms", new, "invite", body={"user_id": me})
    await ann.say(new, "come in")
    account.faults.calls.clear()
    await account.start()
    client: Any = account.stack.fleet.scripts.client

    async def texts(room: str) -> list[str]:
        who = EVERYONE if room == group else ann.id
        session = SessionKey("main", "matrix", "default", room, who, None)
        entries = await client.xrange(keys.inbound(session.sid))
        return [decode_entry(*entry).message.text for entry in entries]

    async def are_read() -> bool:
        is_complete = len(await texts(group)) == most
        return is_complete and all([await texts(room) for room in (*rooms[1:], new)])

    await eventually(are_read)
    calls = len(account.faults.calls)
    page = await ann.call("GET", "rooms", group, "messages", dir="b", limit=most)
    said = [each["content"]["body"] for each in page["chunk"][::-1]]
    assert await texts(group) == said
    assert [await texts(room) for room in rooms[1:]] == [["and here?"]] * 3
    assert await texts(new) == ["come in"]
    assert calls <= 30, account.faults.calls
