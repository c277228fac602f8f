"""Encrypted rooms, with a real homeserver and the client of Element."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.fleet import keys
from remoteclaw.messages import Attachment, SessionKey
from tests.channels.matrix.conftest import Account, again
from tests.support.matrix import Person, Second
from tests.support.matrix.secure import SecurePerson
from tests.support.stack import SID
from tests.support.waiting import eventually


async def until_accepted(account: Account, room: str, *texts: str) -> None:
    """Wait until these are Ann's messages in a room."""
    sid = SessionKey("main", "matrix", "default", room, account.ann.id, None).sid

    async def are_accepted() -> bool:
        entries = await account.stack.fleet.inbound.unanswered(sid)
        return [entry.message.text for entry in entries] == [*texts]

    await eventually(are_accepted)


async def said(second: Second, account: Account, room: str) -> list[str]:
    """Return what Ann reads of the account in a room, without edits."""
    texts = await second.texts(account.ann.id, room)
    return [text for sender, text in texts if sender == account.login.user]


async def test_an_owner_invites_the_account_and_is_answered_in_an_encrypted_room(
    account: Account, second: Second
) -> None:
    """Her client gives its keys to signed devices only, and she writes before it has joined."""
    ann = account.ann
    await account.start()
    await account.stack.start_worker()
    await second.open(account.faults.url, ann.login, signed_only=True)
    room = await second.create(ann.id, account.login.user)
    await second.say(ann.id, room, "hello")

    async def is_answered() -> bool:
        return any("demo agent" in text for text in await said(second, account, room))

    await eventually(is_answered)
    await account.stop()
    events = await ann.timeline(room)
    ours = [each for each in events if each["sender"] == account.login.user]
    assert {each["type"] for each in ours} <= {"m.room.member", "m.room.encrypted", "m.reaction"}

    before = len(await said(second, account, room))
    await second.say(ann.id, room, "are you back?")
    await account.start()

    async def is_answered_again() -> bool:
        return len(await said(second, account, room)) > before

    await eventually(is_answered_again)
    assert "UNDECRYPTABLE" not in await said(second, account, room)
    assert await second.do(
        "isSigned", user=ann.id, of=account.login.user, device=account.login.device
    )


async def test_the_account_moves_to_another_host(
    account: Account, second: Second, tmp_path: Path
) -> None:
    """It needs the configuration and the key of its state, and says so without the key."""
    ann, stack = account.ann, account.stack
    await account.start()
    await second.open(account.server.url, ann.login, signed_only=True)
    room = await second.create(ann.id, account.login.user)
    await second.say(ann.id, room, "one")
    await until_accepted(account, room, "one")
    await account.stop()
    await second.say(ann.id, room, "two")

    account.home = Home(tmp_path / "another").create()
    shutil.copy(stack.home.config_file, account.home.config_file)
    running = asyncio.create_task(account.run())

    async def says_what_is_missing() -> bool:
        view = await stack.fleet.accounts.view("matrix", "default")
        return "copy adapter-state-key from the state directory" in view.problem

    await eventually(says_what_is_missing)
    running.cancel()
    await asyncio.wait((running,))
    shutil.copy(stack.home.adapter_state_key, account.home.adapter_state_key)
    await account.start()
    await until_accepted(account, room, "one", "two")
    await second.say(ann.id, room, "three")
    await until_accepted(account, room, "one", "two", "three")


@pytest.mark.thorough
async def test_an_account_whose_key_was_lost_goes_on_with_a_new_device(
    account: Account, second: Second, tmp_path: Path
) -> None:
    """As after `docker compose down`: Redis still has what the lost key has encrypted."""
    ann = account.ann
    await account.start()
    await second.open(account.server.url, ann.login, signed_only=False)
    room = await second.create(ann.id, account.login.user)
    await second.say(ann.id, room, "one")
    await until_accepted(account, room, "one")
    await account.stop()

    account.login = await again(account.server, account.login)
    account.configure()
    account.home = Home(tmp_path / "another").create()
    shutil.copy(account.stack.home.config_file, account.home.config_file)
    # `channel add` makes the keys of a new device; here, the account makes them as it starts.
    state = keys.adapter_state("matrix", "default")
    await account.stack.fleet.scripts.client.hdel(state, "device")
    await account.start()
    await second.say(ann.id, room, "two")
    await until_accepted(account, room, "one", "two")


async def test_files_and_voice_are_encrypted_both_ways(account: Account, second: Second) -> None:
    """The homeserver has only their ciphertext."""
    async with SecurePerson.opened(second, account.server, "carol") as ann:
        account.configure(owners=[ann.id])
        await account.start()
        room = await second.create(ann.id, account.login.user)
        await ann.send_file(room, "plan.txt", b"the plan")
        session = SessionKey("main", "matrix", "default", room, ann.id, None)

        async def attachment() -> Attachment | None:
            entries = await account.stack.fleet.inbound.unanswered(session.sid)
            return entries[0].message.attachments[0] if entries else None

        file = await eventually(attachment)
        assert await account.stack.fleet.blobs.get(session.sid, file) == b"the plan"

        there = await account.stack.fleet.blobs.put(SID, "answer.txt", b"42")
        about: Any = {"chat": room, "attachments": (there,)}
        await account.stack.put_reply("matrix", "default", "Here.", **about)

        async def received() -> bytes | None:
            for message in await ann.messages(room, of=account.login.user):
                if "file" in message.content:
                    return await ann.file(message)
            return None

        assert await eventually(received) == b"42"


@pytest.mark.thorough("False")
@pytest.mark.parametrize("in_room", [False, True])
async def test_a_verification_is_declined(account: Account, second: Second, in_room: bool) -> None:
    """A client would otherwise wait for it for ten minutes; in a room, a line says why."""
    async with SecurePerson.opened(second, account.server, "carol") as ann:
        account.configure(owners=[ann.id])
        await account.start()
        room = await second.create(ann.id, account.login.user)
        await second.say(ann.id, room, "hello")
        session = SessionKey("main", "matrix", "default", room, ann.id, None)
        await eventually(lambda: account.stack.fleet.inbound.unanswered(session.sid))
        number = await ann.verify(account.login, room=room if in_room else None)

        async def is_declined() -> bool:
            found = await ann.verification(number)
            return (found["isCancelled"], found["by"]) == (True, account.login.user)

        await eventually(is_declined)

        async def is_told() -> bool:
            texts = await second.texts(ann.id, room)
            return any("can't compare emoji" in text for _, text in texts)

        if in_room:
            await eventually(is_told)


async def test_an_account_can_refuse_what_is_not_encrypted(
    account: Account, second: Second
) -> None:
    """Also in an encrypted room, and from another client of the same person."""
    ann = account.ann
    account.configure(require_encryption=True)
    await account.start()
    await second.open(account.server.url, ann.login, signed_only=False)
    room = await second.create(ann.id, account.login.user)
    await second.say(ann.id, room, "one")
    await until_accepted(account, room, "one")
    await ann.say(room, "in the open")

    async def is_told() -> bool:
        return any("is not encrypted" in text for text in await said(second, account, room))

    await eventually(is_told)
    await second.say(ann.id, room, "two")
    await until_accepted(account, room, "one", "two")


async def test_what_is_refused_is_not_quoted_either(account: Account, second: Second) -> None:
    async with (
        SecurePerson.opened(second, account.server, "carol") as ann,
        Person.at(account.server.url, ann.login) as in_the_open,
    ):
        account.configure(owners=[ann.id], require_encryption=True)
        await account.start()
        room = await second.create(ann.id, account.login.user)
        first = await ann.say(room, "one")
        await ann.say(room, "two", reply_to=first)
        refused = await in_the_open.say(room, "in the open")
        await ann.say(room, "three", reply_to=refused)
        sid = SessionKey("main", "matrix", "default", room, ann.id, None).sid

        async def are_accepted() -> bool:
            return len(await account.stack.fleet.inbound.unanswered(sid)) == 3

        await eventually(are_accepted)
        entries = await account.stack.fleet.inbound.unanswered(sid)
        assert [entry.message.quoted for entry in entries[:2]] == [None, "one"]
        assert "in the open" not in str(entries)
