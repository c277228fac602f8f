"""Redis loses what was not on its disk yet: no message is lost, and all of them stay readable.

It loses as much as it may: everything since the account last waited for its disk.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.channels.matrix.conftest import Account, accepted, met_in_secret
from tests.support.matrix import Second
from tests.support.waiting import eventually


class Disk:
    """The part of what Redis has that survives its crash."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.size = account.stack.redis.written()

    async def watch(self) -> None:
        """Note how much the account has waited for."""
        while True:
            waited = self._account.proxy.arm("settle", "after")
            await waited.wait()
            self.size = self._account.stack.redis.written()
            waited.release()

    async def crash(self) -> None:
        """Kill Redis, which loses the rest, and start it again."""
        redis = self._account.stack.redis
        redis.kill()
        redis.lose(self.size)
        await asyncio.to_thread(redis.start)


@pytest.fixture
async def disk(account: Account) -> AsyncIterator[Disk]:
    """The disk of Redis, watched."""
    disk = Disk(account)
    watching = asyncio.create_task(disk.watch())
    yield disk
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


@pytest.mark.thorough("append", "write_adapter_state-True", "inbox_store-True", "inbox_store-False")
@pytest.mark.parametrize("with_account", [False, True])
@pytest.mark.parametrize("step", ["write_adapter_state", "inbox_store", "append"])
async def test_a_message_with_a_new_key_survives(
    account: Account, second: Second, disk: Disk, step: str, with_account: bool
) -> None:
    """Redis crashes behind a step of its way, alone or with the account's host."""
    room = await met_in_secret(account, second)
    await second.do("rotate", user=account.ann.id, room=room)
    if step == "write_adapter_state":  # only the room's key is lost, and no cursor
        disk.size = account.stack.redis.written()
    stored = account.proxy.arm(step, "after")
    await second.say(account.ann.id, room, "one")
    await stored.wait()
    if step == "write_adapter_state":
        passed, stored = stored, account.proxy.arm(step, "before")
        passed.release()
        await stored.wait()
    if with_account:
        await account.stop()
    await disk.crash()
    stored.cut()
    if with_account:
        await account.start()
    await second.say(account.ann.id, room, "two")

    async def are_accepted() -> bool:
        return "two" in await accepted(account, room)

    await eventually(are_accepted)
    assert await accepted(account, room) == ["hello", "one", "two"]
    await account.stop()
    await account.start()
    await second.say(account.ann.id, room, "three")

    async def is_accepted() -> bool:
        return "three" in await accepted(account, room)

    await eventually(is_accepted)
    assert not account.faults.count("m.room_key_request"), "no key is lost"
