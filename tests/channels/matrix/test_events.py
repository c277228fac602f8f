"""What people do in rooms, on a real homeserver."""

from typing import Any

from remoteclaw.channels.matrix.events import Where, own_membership, related_id, report_of
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.messages import EVERYONE, ChannelMessage, SessionKey
from tests.channels.matrix.conftest import Account, messages, met
from tests.support.matrix import Person
from tests.support.waiting import eventually

WHERE = Where("!room", True, "@bot:localhost", {})


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
        assert report.problem or report.left_out


def event(kind: str, content: dict[str, Any], *, of: str = "@ann:x", id_: str = "$1") -> Any:
    return {"event_id": id_, "sender": of, "type": kind, "content": content}


def replied(body: str, **more: Any) -> Any:
    relation = {"m.in_reply_to": {"event_id": "$0"}}
    return event("m.room.message", {"body": body, "m.relates_to": relation, **more})


def test_a_removal_that_only_a_sender_can_know_is_compared_with_the_message() -> None:
    """An encrypted redaction, which no homeserver has checked, or one by a moderator."""
    removal = event("m.room.redaction", {"redacts": "$0"}, of="@eve:x")
    for kind, content in (
        ("m.room.message", {"body": "one"}),
        ("m.reaction", {"m.relates_to": {"event_id": "$2", "key": "✅"}}),
    ):
        report = report_of(removal, WHERE, event(kind, content, id_="$0"))
        assert report is not None
        assert report.left_out
        own = report_of({**removal, "sender": "@ann:x"}, WHERE, event(kind, content, id_="$0"))
        assert own is not None
        assert own.deletes == "$0" or own.is_removed


def test_a_reply_keeps_the_quotes_of_its_writer_only() -> None:
    body = "I mean:\n> this line\nand that"
    for before in ("", "> <@bob:x> @bot do it\n> now\n\n", "> * <@bob:x> waves\n\n"):
        html = '<mx-reply><a href="https://matrix.to/#/@bot:localhost">bot</a></mx-reply>I mean'
        report = report_of(replied(before + body, formatted_body=html), WHERE, None)
        assert report is not None
        assert report.text == body
        assert not report.is_for_us


def test_a_reply_to_what_cant_be_read_quotes_nothing() -> None:
    for content in ({}, {"ciphertext": "x"}, {"body": 5}):
        related = event("m.room.encrypted", content, id_="$0")
        report = report_of(replied("why?"), WHERE, related)
        assert report is not None
        assert (report.text, report.quoted, report.reply_to) == ("why?", "", "$0")


def test_a_poll_is_read_in_both_forms() -> None:
    text, name = "org.matrix.msc1767.text", "org.matrix.msc3381.poll.start"
    forms = {
        name: {"question": {text: "When?"}, "answers": [{text: "now"}]},
        "m.poll": {
            "question": {"m.text": [{"body": "When?"}]},
            "answers": [{"m.text": [{"body": "now"}]}],
        },
    }
    for field, poll in forms.items():
        report = report_of(event(name, {field: poll}), WHERE, None)
        assert report is not None
        assert report.text == "Poll: When?\n- now"


def test_the_server_that_invites_names_nobody_else_as_the_sender() -> None:
    """It writes all events of an invitation but the last one, which the homeserver adds."""
    mine = {"type": "m.room.member", "state_key": WHERE.me, "content": {"membership": "invite"}}
    forged, real = {**mine, "sender": "@owner:localhost"}, {**mine, "sender": "@eve:evil"}
    create = {"type": "m.room.create", "state_key": "", "sender": "@eve:evil", "content": {}}
    malformed: list[Any] = ["x", 5, None, [forged]]
    assert own_membership([forged, *malformed, create, real], WHERE.me) == real
    assert own_membership([create], WHERE.me) is None


def test_an_id_that_a_homeserver_chokes_on_is_asked_for_nowhere() -> None:
    """A database may refuse a control character, which would look like an outage, for ever."""

    def event(id_: str) -> dict[str, Any]:
        answered = {"m.relates_to": {"m.in_reply_to": {"event_id": id_}}}
        return {"type": "m.room.message", "content": answered}

    assert related_id(event("$good:localhost")) == "$good:localhost"
    assert [related_id(event(f"$bad{each}x")) for each in "\x00\x1b\x7f\n "] == [None] * 5
