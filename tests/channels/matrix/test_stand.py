"""The people of these tests, whom a homeserver and another client judge."""

import asyncio
from typing import Any

import httpx2
import pytest

from tests.support.matrix import Faults, Homeserver, Person, Second, SecurePerson
from tests.support.waiting import eventually

TEXT = {"msgtype": "m.text", "body": "one of many"}


async def test_people_read_each_other(homeserver: Homeserver) -> None:
    """A reader sees messages with their edits, reactions and files, and not what is deleted."""
    async with (
        Person.registered(homeserver, "ann") as ann,
        Person.registered(homeserver, "bob") as bob,
    ):
        room = await ann.create(bob.id, is_direct=False)
        await bob.join(room)
        first = await ann.say(room, "helo")
        await ann.say(room, "hello", edits=first)
        reaction = await bob.react(room, first, "👍")
        await bob.react(room, first, "🎉")
        await bob.redact(room, reaction)
        await ann.redact(room, await ann.say(room, "a slip"))
        await bob.say(room, "hi", thread=first, msgtype="m.notice")
        await bob.send_voice(room, b"sound")
        await ann.ask_poll(room, "When?", "today", "later")
        await bob.type(room)
        hello, hi, voice, poll = await ann.messages(room)
        assert (hello.body, hello.edits, hello.reactions) == ("hello", 1, {"🎉": [bob.id]})
        assert (hi.kind, hi.thread) == ("m.notice", first)
        assert await ann.file(voice) == b"sound"
        assert poll.kind == "org.matrix.msc3381.poll.start"
        assert await ann.typing(room) == [bob.id]
        await bob.join(await ann.upgrade(room))
        with pytest.raises(AssertionError, match="M_FORBIDDEN"):
            await bob.say(room, "too late")


async def test_a_limited_account_is_refused(homeserver: Homeserver) -> None:
    """The homeserver limits one account, and says through the proxy how long to wait."""
    async with (
        Faults.before(homeserver.url) as faults,
        Person.registered(homeserver, "ann") as ann,
        httpx2.AsyncClient(base_url=faults.url) as http,
    ):
        room = await ann.create()
        await homeserver.limit(ann.login)
        sending = f"/_matrix/client/v3/rooms/{room}/send/m.room.message"
        told: dict[str, Any] = {
            "headers": {"Authorization": f"Bearer {ann.login.token}"},
            "json": TEXT,
        }
        answers = await asyncio.gather(*(http.put(f"{sending}/{n}", **told) for n in range(3)))
        refused = [one for one in answers if one.status_code == 429]
        assert refused
        assert all("retry-after" in one.headers for one in refused)


async def test_a_proxy_holds_what_is_done(homeserver: Homeserver) -> None:
    """The homeserver has a message whose sender does not know it."""
    async with (
        Faults.before(homeserver.url) as faults,
        Person.registered(homeserver, "ann") as near,
        Person.at(faults.url, near.login) as ann,
    ):
        room = await ann.create()
        faults.hold("PUT .*/send/", is_done=True)
        saying = asyncio.create_task(ann.say(room, "held"))
        await faults.is_reached.wait()
        assert [one.body for one in await near.messages(room)] == ["held"]
        assert not saying.done()
        faults.end()
        await saying


async def test_secure_people_read_each_other(homeserver: Homeserver, second: Second) -> None:
    """Clients that encrypt exchange messages, edits and files; one that does not reads nothing."""
    async with (
        SecurePerson.opened(second, homeserver, "ann", signed_only=True) as ann,
        SecurePerson.opened(second, homeserver, "bob") as bob,
        Person.registered(homeserver, "eve") as eve,
    ):
        room = await ann.create(bob.id, eve.id, is_encrypted=True)
        await bob.join(room)
        await eve.join(room)
        first = await ann.say(room, "helo")
        await ann.say(room, "hello", edits=first)
        await ann.send_file(room, "plan.txt", b"plan", thread=first)
        await bob.react(room, first, "👍")

        async def reads_all() -> bool:
            return not await bob.failures(room)

        await eventually(reads_all)
        hello, plan = await bob.messages(room)
        assert (hello.body, hello.edits, hello.reactions) == ("hello", 1, {"👍": [bob.id]})
        assert (plan.body, plan.thread) == ("plan.txt", first)
        assert await bob.file(plan) == b"plan"
        assert await ann.trusts(bob.login)
        assert not await ann.trusts(eve.login)
        assert {one.kind for one in await eve.messages(room)} == {"m.room.encrypted"}
        number = await ann.verify(bob.login, room=room)
        assert not (await ann.verification(number))["isCancelled"]
