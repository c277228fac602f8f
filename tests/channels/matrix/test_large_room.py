"""A room of a thousand people, each with a device that encrypts."""

import asyncio
from typing import Any

import pytest
from vodozemac import Account as Keys

from remoteclaw.channels.matrix.device import MEGOLM, OLM, canonical
from tests.channels.matrix.conftest import Account, messages
from tests.support.matrix import Homeserver, Login, Person, Second
from tests.support.waiting import eventually

#: The people in the room, besides Ann and the account.
PEOPLE = 1000


async def with_device(server: Homeserver, room: str, at_once: asyncio.Semaphore) -> Login:
    """Add a person to a room whose device has published keys."""
    async with at_once:
        login = await server.register("member")
        async with Person.at(server.url, login) as person:
            await person.call("POST", "keys", "upload", body=published(login))
            await person.join(room)
    return login


def published(login: Login) -> dict[str, Any]:
    """Return the keys that a new device publishes."""
    keys = Keys()
    keys.generate_one_time_keys(1)

    def signed(content: dict[str, Any]) -> dict[str, Any]:
        signature = keys.sign(canonical(content)).to_base64()
        return {**content, "signatures": {login.user: {f"ed25519:{login.device}": signature}}}

    device = {
        "user_id": login.user,
        "device_id": login.device,
        "algorithms": [OLM, MEGOLM],
        "keys": {
            f"curve25519:{login.device}": keys.curve25519_key.to_base64(),
            f"ed25519:{login.device}": keys.ed25519_key.to_base64(),
        },
    }
    ((name, key),) = keys.one_time_keys.items()
    return {
        "device_keys": signed(device),
        "one_time_keys": {f"signed_curve25519:{name}": signed({"key": key.to_base64()})},
    }


async def has_key(server: Homeserver, login: Login) -> bool:
    """Whether somebody has sent a message to a device."""
    async with Person.at(server.url, login) as person:
        answer = await person.call("GET", "sync")
    return len(answer.get("to_device", {}).get("events", ())) == 1


@pytest.mark.thorough
async def test_a_large_room_is_answered_with_few_calls(account: Account, second: Second) -> None:
    """Each device gets the key, and nobody is asked for alone."""
    ann, server = account.ann, account.server
    await second.open(server.url, ann.login, signed_only=True)
    room = await second.create(ann.id, account.login.user)
    await ann.set_state(room, "m.room.join_rules", {"join_rule": "public"})
    at_once = asyncio.Semaphore(8)
    adding = [with_device(server, room, at_once) for _ in range(PEOPLE)]
    others = await asyncio.gather(*adding)
    account.configure(groups={room: {"require_mention": False, "threads": "off"}})
    await account.start()

    async def joined() -> bool:
        members = await ann.call("GET", "rooms", room, "joined_members")
        return account.login.user in members["joined"]

    await eventually(joined)
    before = len(account.faults.calls)
    for number in range(2):
        about: Any = {"index": number, "chat": room}
        await account.stack.put_reply("matrix", "default", f"answer {number}", **about)

    async def are_said() -> bool:
        texts = await second.texts(ann.id, room)
        return [text for _, text in texts] == ["answer 0", "answer 1"]

    await eventually(are_said)
    assert len(account.faults.calls) - before < 40
    for login in others[::50]:
        assert await has_key(server, login)

    await second.say(ann.id, room, "hello")

    async def is_accepted() -> bool:
        return [each.text for each in await messages(account, room)] == ["hello"]

    await eventually(is_accepted)
