"""What reaches a room of the account from people who mean no good, and what a failed poll keeps."""

from typing import Any

import pytest

from remoteclaw.fleet import keys
from tests.channels.matrix.conftest import Account, messages, met, until_read
from tests.support.matrix import Person, Second
from tests.support.matrix.secure import SecurePerson
from tests.support.waiting import eventually


def without_key(session: str, size: int = 100) -> dict[str, Any]:
    """Return an event that nobody can decrypt."""
    megolm = "m.megolm.v1.aes-sha2"
    return {"algorithm": megolm, "ciphertext": "A" * size, "session_id": session}


async def waiting(account: Account) -> str:
    """Return the stored events whose keys have not come."""
    client = account.stack.fleet.scripts.client
    return str(await client.hget(keys.adapter_state("matrix", "default"), "undecrypted"))


async def test_events_without_keys_stay_stored_when_the_poll_fails(account: Account) -> None:
    ann = account.ann
    room = await met(account)
    account.faults.hold("GET .*/sync")
    await ann.send(room, "m.room.encrypted", without_key("session-1"))
    await account.faults.is_reached.wait()
    await ann.send(room, "m.room.encrypted", without_key("session-2"))
    await ann.say(room, "hello")
    account.faults.end()
    account.faults.refuse("GET .*/joined_members", 503)
    await until_read(account, room, "hello", who=ann.id)
    assert account.faults.is_reached.is_set()
    stored = await waiting(account)
    assert "session-1" in stored
    assert "session-2" in stored


async def test_the_newest_of_too_many_events_without_keys_stay(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    ann = account.ann
    room = await met(account)
    for number in range(6):
        await ann.send(room, "m.room.encrypted", without_key(f"session-{number}", 60_000))
    await ann.say(room, "hello")
    await until_read(account, room, "hello", who=ann.id)
    assert "can't be polled" not in caplog.text
    stored = await waiting(account)
    assert "session-5" in stored
    assert "session-0" not in stored


async def test_an_encrypted_event_changes_no_room(account: Account, second: Second) -> None:
    """The homeserver checks who may replace a room, but doesn't see what is encrypted."""
    ann = account.ann
    async with SecurePerson.opened(second, account.server, "bob") as bob:
        room = await ann.create(bob.id, account.login.user, is_direct=False, is_encrypted=True)
        await bob.join(room)
        account.configure(groups={room: {"require_mention": False, "threads": "off"}})
        await account.start()
        other = await bob.create(is_direct=False, preset="public_chat")
        await bob.send(room, "m.room.tombstone", {"replacement_room": other, "body": "moved"})
        assert (await ann.timeline(room))[-1]["type"] == "m.room.encrypted"
        await ann.say(room, "hello")
        await until_read(account, room, "hello")
        joined = (await bob.call("GET", "rooms", other, "joined_members"))["joined"]
        assert set(joined) == {bob.id}


async def test_a_successor_on_a_dead_server_stops_no_account(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    ann = account.ann
    async with Person.registered(account.server, "bob") as bob:
        room = await met(account, bob)
        for successor in ("!room:gone.invalid", "#name:gone.invalid", "..", "!" + "z" * 60_000, 7):
            content = {"replacement_room": successor, "body": "moved"}
            await ann.set_state(room, "m.room.tombstone", content)
        await ann.say(room, "hello")
        await until_read(account, room, "hello")
    assert "can't be polled" not in caplog.text


@pytest.mark.thorough("503", "504")
@pytest.mark.parametrize("status", [429, 503, 504])
async def test_a_successor_that_cannot_be_joined_now_stops_no_account(
    account: Account, status: int
) -> None:
    """Its server may be slow for ever, and joins are limited: the account awaits an invitation."""
    ann = account.ann
    room = await met(account)
    account.faults.refuse("POST .*/join/", status, times=9, after_s=3600)
    successors = [await ann.create(is_direct=False) for _ in range(2)]
    for each in successors:
        await ann.set_state(room, "m.room.tombstone", {"replacement_room": each, "body": "moved"})
    await ann.say(room, "hello")
    await until_read(account, room, "hello", who=ann.id)
    await ann.invite(successors[1], account.login.user)
    await ann.say(room, "and now?")
    await until_read(account, room, "and now?", who=ann.id)
    account.faults.end()
    await ann.kick(successors[1], account.login.user)
    await ann.invite(successors[1], account.login.user)

    async def has_joined() -> bool:
        members = await ann.call("GET", "rooms", successors[1], "joined_members")
        return account.login.user in members["joined"]

    await eventually(has_joined)
    awaited = await account.stack.fleet.scripts.client.hget(
        keys.adapter_state("matrix", "default"), "awaited"
    )
    assert successors[0] not in str(awaited)


async def test_malformed_events_stop_no_account(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that a homeserver takes from its own people; other servers send more."""
    ann = account.ann
    room = await met(account)
    first = await ann.say(room, "one")
    about = "m.relates_to"
    relations: list[Any] = [
        "x",
        [],
        {"m.in_reply_to": "x"},
        {"m.in_reply_to": {"event_id": 5}},
        {"m.in_reply_to": {"event_id": ".."}},
        {"m.in_reply_to": {"event_id": "$" + "x" * 30_000}},
        {"rel_type": "m.thread"},
        {"rel_type": "m.thread", "event_id": {"a": 1}},
        {"rel_type": "m.replace", "event_id": first},
    ]
    contents: list[dict[str, Any]] = [
        *({"body": "bad", about: relation} for relation in relations),
        {"body": "bad", about: relations[-1], "m.new_content": "x"},
        {"body": "bad", about: relations[-1], "m.new_content": {"body": 7}},
        {"body": "x", "msgtype": "m.image", "url": 5},
        {"body": "x", "msgtype": "m.image", "file": "y"},
        {"body": "x", "msgtype": "m.image", "file": {"url": "mxc://a/b", "key": None}},
        {"body": "x", "msgtype": "m.file", "url": "mxc://gone.invalid/x", "info": "z"},
        {"body": "x", "msgtype": "m.location", "geo_uri": 7},
        {"body": "<mx-reply>" * 5000, "formatted_body": "<mx-reply>" * 1000},
    ]
    for content in contents:
        await ann.send(room, "m.room.message", {"msgtype": "m.text", **content})
    others: list[tuple[str, dict[str, Any]]] = [
        ("m.reaction", {}),
        ("m.room.encrypted", {}),
        ("m.room.encrypted", {"algorithm": 5, "ciphertext": 5, "session_id": {}, about: "x"}),
        ("m.room.encrypted", {**without_key("x"), about: {"rel_type": "m.thread"}}),
        ("m.sticker", {}),
        ("m.poll.start", {"m.poll": {"question": {"m.text": [5]}, "answers": [5]}}),
    ]
    for kind, content in others:
        await ann.send(room, kind, content)
    await ann.say(room, "hello")
    await until_read(account, room, "hello", who=ann.id)
    assert "can't be polled" not in caplog.text
    texts = [each.text for each in await messages(account, room, who=ann.id)]
    assert "one" in texts
    assert not [text for text in texts if text.startswith("{")]
