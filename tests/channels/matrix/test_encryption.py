"""Encrypted rooms, with a real homeserver and the client of Element."""

from tests.channels.matrix.conftest import Account
from tests.support.matrix import Second
from tests.support.waiting import eventually


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
