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


async def answered(account: Account, second: Second, room: str, texts: dict[int, str]) -> int:
    """Say texts with their numbers; return the calls of the account until Ann reads all of them."""
    before = len(account.faults.calls)
    for number, text in texts.items():
        about: Any = {"index": number, "chat": room}
        await account.stack.put_reply("matrix", "default", text, **about)

    async def are_said() -> bool:
        read = [text for _, text in await second.texts(account.ann.id, room)]
        return read[-len(texts) :] == [*texts.values()]

    await eventually(are_said)
    return len(account.faults.calls) - before


@pytest.mark.thorough
async def test_a_large_room_is_answered_with_few_calls(account: Account, second: Second) -> None:
    """Each device gets the key once the room is encrypted, and nobody is asked for alone."""
    ann, server = account.ann, account.server
    await second.open(server.url, ann.login, signed_only=True)
    room = await ann.create(account.login.user, is_direct=False, preset="public_chat")
    at_once = asyncio.Semaphore(8)
    adding = [with_device(server, room, at_once) for _ in range(PEOPLE)]
    others = await asyncio.gather(*adding)
    account.configure(groups={room: {"require_mention": False, "threads": "off"}})
    await account.start()

    async def joined() -> bool:
        members = await ann.call("GET", "rooms", room, "joined_members")
        return account.login.user in members["joined"]

    await eventually(joined)
    assert await answered(account, second, room, {1: "one", 2: "two"}) < 10

    async def are_accepted(*texts: str) -> bool:
        return [each.text for each in await messages(account, room)] == [*texts]

    await ann.set_state(room, "m.room.encryption", {"algorithm": MEGOLM})
    await ann.say(room, "behind the change")
    await eventually(lambda: are_accepted("behind the change"))
    assert await answered(account, second, room, {3: "three", 4: "four"}) < 40
    for login in others[::50]:
        assert await has_key(server, login)

    await second.say(ann.id, room, "hello")
    await eventually(lambda: are_accepted("behind the change", "hello"))
