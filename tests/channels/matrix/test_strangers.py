"""What anybody can send to the account's device, without a room that they share."""

import base64
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from vodozemac import Account as Keys

from remoteclaw.channels.matrix import room_keys
from remoteclaw.channels.matrix.api import Homeserver as Api
from remoteclaw.channels.matrix.device import (
    MEGOLM,
    OLM,
    ONE_TIME,
    ONE_TIME_KEYS,
    Device,
    canonical,
)
from remoteclaw.channels.matrix.device_lists import DeviceLists
from remoteclaw.channels.matrix.encryption import MAX_KEPT, Encryption
from remoteclaw.channels.matrix.room_keys import Outbound
from remoteclaw.fleet import adapter_state
from tests.channels.matrix.conftest import Account, State, met, until_read
from tests.support.matrix import Login, Person, Second, SecurePerson
from tests.support.waiting import eventually

DEEP = b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}"


def encrypted(outbound: Outbound, text: str) -> dict[str, Any]:
    """Return the content of an encrypted event."""
    return {
        "algorithm": MEGOLM,
        "session_id": outbound.session.session_id,
        "ciphertext": outbound.session.encrypt(text.encode()).to_base64(),
    }


def message(room: str, text: str) -> str:
    """Return what an encrypted message has inside."""
    content = {"msgtype": "m.text", "body": text}
    return json.dumps({"room_id": room, "type": "m.room.message", "content": content})


class Stranger:
    """Somebody whose client sends what it likes."""

    def __init__(self, login: Login, api: Api) -> None:
        self.login, self.api = login, api
        self.device = Device(api, State(), login.user, login.device)

    @classmethod
    @contextlib.asynccontextmanager
    async def met(cls, account: Account) -> AsyncIterator["Stranger"]:
        """Make an account with a device, until exit."""
        login = await account.server.register("eve")
        api = Api(account.server.url, login.token)
        eve = cls(login, api)
        await eve.device.open()
        yield eve
        await api.aclose()

    async def send(self, account: Account, kind: str, content: dict[str, Any]) -> None:
        """Send a message to the account's device."""
        sent = {account.login.user: {account.login.device: content}}
        await self.api.put("sendToDevice", kind, uuid.uuid4().hex, body={"messages": sent})

    async def send_secretly(self, account: Account, *plaintexts: bytes) -> None:
        """Send encrypted messages to the account's device."""
        devices = await DeviceLists(self.api).of([account.login.user])
        (to,) = (each for each in devices if each.id == account.login.device)
        await self.device.begin([to])
        for each in plaintexts:
            session = self.device._usable[to.curve25519]
            number, body = session.encrypt(each).to_parts()
            message = {"type": number, "body": base64.b64encode(body).decode().rstrip("=")}
            content = {
                "algorithm": OLM,
                "sender_key": self.device.curve25519,
                "ciphertext": {to.curve25519: message},
            }
            await self.send(account, "m.room.encrypted", content)

    async def send_keys(self, account: Account, *named: tuple[str, dict[str, Any]]) -> None:
        """Send room keys, each for a room, to the account's device."""
        devices = await DeviceLists(self.api).of([account.login.user])
        (to,) = (each for each in devices if each.id == account.login.device)
        payloads = [
            {
                "type": "m.room_key",
                "content": {"room_id": room, **key},
                "sender": self.device.user,
                "keys": {"ed25519": self.device.ed25519},
                "recipient": to.user,
                "recipient_keys": {"ed25519": to.ed25519},
            }
            for room, key in named
        ]
        await self.send_secretly(account, *(json.dumps(each).encode() for each in payloads))


async def test_a_message_to_the_device_stops_no_account(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody can send one, and what it hides is checked by no homeserver."""
    room = await met(account)
    async with Stranger.met(account) as eve:
        await eve.send_secretly(account, DEEP, b"[]", b"\xff", b'{"type": 1e999}')
        await account.ann.say(room, "hello")
        await until_read(account, room, "hello", who=account.ann.id)
    assert "can't be polled" not in caplog.text


async def test_an_encrypted_event_stops_no_account(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    """The homeserver sees nothing of its form."""
    async with Stranger.met(account) as eve, Person.at(account.server.url, eve.login) as person:
        room = await met(account, person)
        deep = '{"a":' + "[" * 900 + "]" * 900 + "}"
        file = '{"url":"mxc://a/b","v":' + deep + "}"
        contents = [
            DEEP.decode(),
            "[[1, 2]]",
            '{"body": "\\ud800", "msgtype": "m.text"}',
            f'{{"msgtype": "m.text", "body": "x", "m.relates_to": {deep}}}',
            f'{{"msgtype": "m.file", "body": "x", "file": {file}}}',
            '{"msgtype": "m.file", "body": "x", "url": "mxc://a/b", "info": {"size": 1e999}}',
            '{"msgtype": "m.file", "body": "x", "url": "mxc://a/b", "info": {"size": 1%s}}'
            % ("0" * 400),
            '{"msgtype": "m.file", "body": "x", "url": "mxc://a/b", "info": {"size": -5}}',
            '{"msgtype": "m.text", "body": "x", "m.mentions": {"user_ids": {"a": 1}}}',
            '{"msgtype": "m.text", "body": "x", "m.mentions": {"user_ids": 7}}',
            '{"msgtype": ["m.text"], "body": "x"}',
        ]
        outbound = Outbound()
        await eve.send_keys(account, (room, outbound.key))
        for content in contents:
            text = f'{{"room_id": "{room}", "type": "m.room.message", "content": {content}}}'
            await person.send(room, "m.room.encrypted", encrypted(outbound, text))
        await account.ann.say(room, "hello")
        await until_read(account, room, "hello")
    assert "can't be polled" not in caplog.text


@pytest.mark.thorough("False")
@pytest.mark.parametrize("is_first", [False, True])
async def test_a_key_of_somebody_else_hides_no_message(account: Account, is_first: bool) -> None:
    """Everybody in a room has the keys of the others, also from an earlier message on."""
    async with (
        Stranger.met(account) as eve,
        Stranger.met(account) as bob,
        Person.at(account.server.url, bob.login) as person,
    ):
        room = await met(account, person)
        outbound = Outbound()
        earlier = outbound.key
        outbound.session.encrypt(b"before the account came")
        if is_first:
            await eve.send_keys(account, (room, earlier))
        await bob.send_keys(account, (room, outbound.key))
        if not is_first:
            await eve.send_keys(account, (room, earlier))
        await person.send(room, "m.room.encrypted", encrypted(outbound, message(room, "hello")))
        await until_read(account, room, "hello")


async def test_many_keys_displace_no_other_persons(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_keys, "MAX_BYTES", 3000)
    async with (
        Stranger.met(account) as eve,
        Stranger.met(account) as bob,
        Person.at(account.server.url, bob.login) as person,
    ):
        room = await met(account, person)
        outbound = Outbound()
        await bob.send_keys(account, (room, outbound.key))
        await eve.send_keys(account, *((room, Outbound().key) for _ in range(30)))
        await person.send(room, "m.room.encrypted", encrypted(outbound, message(room, "hello")))
        await until_read(account, room, "hello")


async def test_a_verification_that_is_not_declined_stops_no_account(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    room = await met(account)
    account.faults.refuse("PUT .*/sendToDevice/", 500, times=99)
    async with Stranger.met(account) as eve:
        request = {"from_device": eve.login.device, "transaction_id": "one", "methods": []}
        await eve.send(account, "m.key.verification.request", request)
        await account.ann.say(room, "hello")
        await until_read(account, room, "hello", who=account.ann.id)
    assert account.faults.is_reached.is_set()
    assert "can't be polled" not in caplog.text


async def test_what_anybody_sends_fills_no_memory(account: Account) -> None:
    """And a device that nobody has costs no call for each message."""
    login = account.login
    api = Api(account.faults.url, login.token)
    encryption = Encryption(api, State(), login.user, login.device)
    await encryption.open()
    before = account.faults.count("/keys/query")
    mine = {encryption.device.curve25519: {"type": 1, "body": "A" * 100}}
    events = [
        {
            "type": kind,
            "sender": f"@eve{number % 9}:localhost",
            "content": {
                "algorithm": OLM,
                "ciphertext": mine,
                "sender_key": f"{number:043}",
                "session_id": f"{number}",
                "code": "m.unverified",
            },
        }
        for number in range(2000)
        for kind in ("m.room_key.withheld", "m.room.encrypted")
    ]
    await encryption.take({"to_device": {"events": events}})
    assert account.faults.count("/keys/query") <= before + 1
    assert len(encryption._keys.withheld) <= MAX_KEPT
    assert not encryption.device._sessions
    await api.aclose()


@pytest.mark.thorough
async def test_an_account_with_too_many_keys_drops_the_oldest(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has them of many rooms, or of one; new ones are taken, also after a start."""
    monkeypatch.setattr(adapter_state, "MAX_BYTES", 60_000)
    async with (
        Stranger.met(account) as bob,
        Person.at(account.server.url, bob.login) as person,
    ):
        room = await met(account, person)
        full = await account.ann.create(account.login.user, is_direct=False, is_encrypted=True)
        await bob.send_keys(account, *((full, Outbound().key) for _ in range(150)))
        outbound = Outbound()
        await bob.send_keys(account, (room, outbound.key))
        await person.send(room, "m.room.encrypted", encrypted(outbound, message(room, "hello")))
        await until_read(account, room, "hello")
        await account.stop()
        await account.start()
        await person.send(room, "m.room.encrypted", encrypted(outbound, message(room, "again")))
        await until_read(account, room, "again")


async def test_nobody_can_take_all_keys_with_which_others_write(account: Account) -> None:
    async with (
        Stranger.met(account) as eve,
        Stranger.met(account) as bob,
        Person.at(account.server.url, bob.login) as person,
    ):
        room = await met(account, person)
        account.faults.hold("GET .*/sync")
        await account.ann.say(room, "one")
        await account.faults.is_reached.wait()
        wanted = {account.login.user: {account.login.device: ONE_TIME}}
        for _ in range(ONE_TIME_KEYS + 1):
            await eve.api.post("keys", "claim", body={"one_time_keys": wanted})
        outbound = Outbound()
        await bob.send_keys(account, (room, outbound.key))
        await person.send(room, "m.room.encrypted", encrypted(outbound, message(room, "hello")))
        account.faults.end()
        await until_read(account, room, "hello")


@pytest.mark.thorough("None-?")
@pytest.mark.parametrize(("identity", "one_time"), [("?", None), (None, "?")])
async def test_a_member_with_malformed_keys_stops_no_answer(
    account: Account, second: Second, identity: str | None, one_time: str | None
) -> None:
    """Another homeserver passes on what its people publish."""
    login = await account.server.register("eve")
    keys = Keys()
    keys.generate_one_time_keys(1)

    def signed(content: dict[str, Any]) -> dict[str, Any]:
        signature = keys.sign(canonical(content)).to_base64()
        return {**content, "signatures": {login.user: {f"ed25519:{login.device}": signature}}}

    ((name, key),) = keys.one_time_keys.items()
    device = {
        "user_id": login.user,
        "device_id": login.device,
        "algorithms": [OLM, MEGOLM],
        "keys": {
            f"curve25519:{login.device}": identity or keys.curve25519_key.to_base64(),
            f"ed25519:{login.device}": keys.ed25519_key.to_base64(),
        },
    }
    async with (
        SecurePerson.opened(second, account.server, "carol") as ann,
        Person.at(account.server.url, login) as eve,
    ):
        given = {"key": one_time or key.to_base64(), "fallback": True}  # it is given each time
        published = {
            "device_keys": signed(device),
            "fallback_keys": {f"{ONE_TIME}:{name}": signed(given)},
        }
        await eve.call("POST", "keys", "upload", body=published)
        room = await ann.create(account.login.user, eve.id, is_direct=False, is_encrypted=True)
        await eve.join(room)
        groups = {room: {"require_mention": False, "threads": "off"}}
        account.configure(owners=[ann.id], groups=groups)
        await account.start()
        await account.stack.start_worker()
        await eventually(lambda: ann.trusts(account.login))  # it gets the message's key
        await ann.say(room, "hello")

        async def is_answered() -> bool:
            return bool(await ann.messages(room, of=account.login.user))

        await eventually(is_answered)
