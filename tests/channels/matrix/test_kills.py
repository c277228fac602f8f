"""Kills between two steps of the account: nothing is lost, said twice, or unreadable.

The room is encrypted, and its owner's client gives keys to signed devices only.
"""

from random import Random

import pytest

from tests.channels.matrix.conftest import Account, accepted, met_in_secret
from tests.support.failpoints import Failpoint, Side
from tests.support.matrix import Second
from tests.support.waiting import eventually

#: The steps, those of the homeserver as METHOD PATH. The first value that is stored of a message is
#: the room's key, and the second one the session that brought it.
COMING: list[tuple[str, Side, int]] = [
    ("GET .*/sync", "after", 1),
    ("write_adapter_state", "before", 1),
    ("write_adapter_state", "after", 1),
    ("write_adapter_state", "before", 2),
    ("write_adapter_state", "after", 2),
    ("inbox_store", "before", 1),
    ("inbox_store", "after", 1),
]
GOING: list[tuple[str, Side]] = [
    ("PUT .*/sendToDevice/", "before"),
    ("PUT .*/sendToDevice/", "after"),
    ("PUT .*/send/", "before"),
    ("PUT .*/send/", "after"),
    ("receipt", "before"),
]


class Window:
    """A step at which the account ends."""

    def __init__(self, account: Account, step: str, side: Side) -> None:
        self._account, self._step, self._side = account, step, side
        self._failpoint: Failpoint | None = None

    async def open(self) -> None:
        """Hold the account at the step from now on."""
        if " " in self._step:
            self._account.faults.hold(self._step, is_done=self._side == "after")
        else:
            self._failpoint = self._account.proxy.arm(self._step, self._side)

    async def kill(self, time: int = 1, *, as_process: bool = False) -> None:
        """End the account there, at the given time that it comes by, and start it again."""
        for _ in range(1, time):
            assert self._failpoint is not None, "only steps with Redis are counted"
            await self._failpoint.wait()
            passed = self._failpoint
            await self.open()
            passed.release()
        reached = self._failpoint.reached if self._failpoint else self._account.faults.is_reached
        await reached.wait()
        await self._account.stop()
        if self._failpoint:
            self._failpoint.cut()
        self._account.faults.end()
        await self._account.start(as_process=as_process)


@pytest.mark.thorough("before", "after-2", "GET .*/sync")
@pytest.mark.parametrize(("step", "side", "time"), COMING)
async def test_a_message_survives_a_kill(
    account: Account, second: Second, step: str, side: Side, time: int
) -> None:
    """It is the first message with a new key, which comes only once."""
    room = await met_in_secret(account, second)
    await second.do("rotate", user=account.ann.id, room=room)
    window = Window(account, step, side)
    await window.open()
    await second.say(account.ann.id, room, "one")
    await window.kill(time)
    await second.say(account.ann.id, room, "two")

    async def are_accepted() -> bool:
        return "two" in await accepted(account, room)

    await eventually(are_accepted)
    assert await accepted(account, room) == ["hello", "one", "two"]
    assert not account.faults.count("m.room_key_request"), "no key is lost"


@pytest.mark.thorough("before", "PUT .*/sendToDevice/")
@pytest.mark.parametrize(("step", "side"), GOING)
async def test_an_answer_survives_a_kill(
    account: Account, second: Second, step: str, side: Side
) -> None:
    room = await met_in_secret(account, second)
    window = Window(account, step, side)
    await window.open()
    await account.stack.put_reply("matrix", "default", "an answer", chat=room)
    await window.kill()
    await account.stack.put_reply("matrix", "default", "another", index=1, chat=room)

    async def said() -> list[str]:
        found = await second.texts(account.ann.id, room)
        return [text for sender, text in found if sender == account.login.user]

    async def is_said() -> bool:
        return "another" in await said()

    await eventually(is_said)
    assert await said() == ["an answer", "another"]


@pytest.mark.thorough
async def test_a_hundred_kills_lose_and_repeat_nothing(account: Account, second: Second) -> None:
    """Each ends a process with SIGKILL at one of the steps."""
    room = await met_in_secret(account, second)
    await account.stop()
    await account.start(as_process=True)
    random, asked, answered = Random(44), ["hello"], list[str]()
    for number in range(100):
        step, side, time = random.choice([*COMING, *((*each, 1) for each in GOING)])
        if (step, side, time) in COMING or random.random() < 0.5:
            await second.do("rotate", user=account.ann.id, room=room)
        if step.startswith("PUT .*/sendToDevice"):  # it has given its key already
            await account.stop()
            await account.start(as_process=True)
        window = Window(account, step, side)
        await window.open()
        asked.append(f"question {number}")
        await second.say(account.ann.id, room, asked[-1])
        answered.append(f"answer {number}")
        await account.stack.put_reply("matrix", "default", answered[-1], index=number, chat=room)
        await window.kill(time, as_process=True)

        async def is_over() -> bool:
            texts = await second.texts(account.ann.id, room)
            is_said = any(text == answered[-1] for _, text in texts)
            return is_said and (await accepted(account, room))[-1] == asked[-1]

        await eventually(is_over)
    assert await accepted(account, room) == asked
    texts = await second.texts(account.ann.id, room)
    assert [text for sender, text in texts if sender == account.login.user] == answered
    assert not account.faults.count("m.room_key_request"), "no key is lost"
