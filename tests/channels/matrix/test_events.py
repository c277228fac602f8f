"""What people do in rooms, on a real homeserver."""

from typing import Any

from remoteclaw.channels.matrix.events import Where, report_of
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import EVERYONE, ChannelMessage, SessionKey
from tests.channels.matrix.conftest import Account
from tests.support.matrix import Person
from tests.support.waiting import eventually

WHERE = Where("!room", True, "@bot:localhost", {})


async def messages(account: Account, room: str, *, who: str = "") -> list[ChannelMessage]:
    """Return the waiting messages of a person, or of a group."""
    session = SessionKey("main", "matrix", "default", room, who or EVERYONE, None)
    entries = await account.stack.fleet.inbound.unanswered(session.sid)
    return [entry.message for entry in entries]


async def met(account: Account, *others: Person, **settings: Any) -> str:
    """Return a room with the account, whose messages are all read."""
    room = await account.ann.create(
        account.login.user, *(each.id for each in others), is_direct=not others
    )
    for each in others:
        await each.join(room)
    account.configure(groups={room: {"require_mention": False, "threads": "off"}}, **settings)
    await account.start()

    async def has_joined() -> bool:
        members = await account.ann.call("GET", "rooms", room, "joined_members")
        return account.login.user in members["joined"]

    await eventually(has_joined)
    return room


async def test_nobody_edits_or_deletes_the_message_of_another_person(account: Account) -> None:
    """A client can send an edit of anybody's message, and the homeserver passes it on."""
    ann = account.ann
    async with Person.registered(account.server, "bob") as bob:
        room = await met(account, bob)
        first = await ann.say(room, "one")
        second = await ann.say(room, "two")
        await bob.say(room, "all that I want", edits=first)
        await ann.say(room, "uno", edits=first)
        await ann.redact(room, second)
        await ann.say(room, "three")

        async def is_there() -> bool:
            return "three" in [each.text for each in await messages(account, room)]

        await eventually(is_there)
        sid = SessionKey("main", "matrix", "default", room, EVERYONE, None).sid
        lease = await account.stack.fleet.leases.acquire(sid, worker="here", host="here")
        assert lease is not None
        texts = [decode_entry(*entry).message.text for entry in await lease.entries()]
        assert texts == ["uno", "three"]


async def test_a_room_that_is_upgraded_keeps_its_conversation(account: Account) -> None:
    ann = account.ann
    async with Person.registered(account.server, "bob") as bob:
        room = await met(account, bob)
        await ann.say(room, "one")
        successor = await ann.upgrade(room)
        await ann.say(successor, "two")

        async def texts() -> bool:
            return [each.text for each in await messages(account, room)] == ["one", "two"]

        await eventually(texts)
        await account.stack.put_reply("matrix", "default", "an answer", chat=room)

        async def is_said() -> bool:
            said = await ann.timeline(successor)
            return "an answer" in [each["content"].get("body") for each in said]

        await eventually(is_said)


async def test_all_kinds_of_messages_arrive(account: Account) -> None:
    ann = account.ann
    room = await met(account)
    first = await ann.say(room, "hello")
    await ann.say(room, "again", reply_to=first)
    await ann.send_voice(room, b"sound")
    await ann.ask_poll(room, "When?", "today", "later")
    await ann.say(room, "!stop")
    await ann.say(room, "geo", msgtype="m.location", geo_uri="geo:1,2")

    async def all_there() -> list[ChannelMessage]:
        found = await messages(account, room, who=ann.id)
        return found if found and "geo" in found[-1].text else []

    *_, location = await eventually(all_there)
    assert location.text == "geo\ngeo:1,2"


def test_malformed_events_of_other_servers_are_no_messages() -> None:
    about = {"event_id": "$1", "sender": "@eve:x", "type": "m.room.message"}
    contents: list[Any] = [
        {"msgtype": "m.file", "body": "x"},
        {"msgtype": "m.image", "file": {"key": 1}},
        {"body": {"a": 1}, "msgtype": ["m.text"]},
        {"m.relates_to": {"rel_type": "m.replace", "event_id": "$0"}, "body": "x"},
        {"m.relates_to": {"rel_type": "m.thread"}, "body": "x"},
        {"m.relates_to": {"m.in_reply_to": "$0"}, "body": "x"},
        {"m.poll.start": {"question": None, "answers": 7}},
        {"msgtype": "m.location", "body": "x"},
    ]
    related = {**about, "event_id": "$0", "content": {}}
    for content in contents:
        report = report_of({**about, "content": content, "origin_server_ts": "x"}, WHERE, related)
        assert report is not None
        assert report.at_ms == 0
        assert report.problem or report.left_out or not report.files
