"""The worst failures of the process, on a platform with histories and on one that pushes.

What differs from a platform that is polled (`test_failpoints.py`): it repeats reports until it is
told that they have arrived, and it knows, or can be asked, whether it has a message. So nothing is
lost, and nothing is there twice.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from remoteclaw.fleet import keys
from remoteclaw.protocols import Card
from tests.support.failpoints import Side
from tests.support.lab import Lab, Scenario, answer, check, write
from tests.support.platform import AGAIN
from tests.support.requests import put_request
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

STOP_NOTICE = " stops "
#: The duration of a claim that a process is to lose, in milliseconds.
CLAIM_MS = 1000


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["history", "plaza"])
async def lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    """One Redis, one platform and one account; the cases start the process."""
    async with Lab.opened(request.param) as opened:
        opened.start()
        # What is written before the first cursors are stored is of before the first start.
        await eventually(lambda: opened.client.exists(keys.cursors(*opened.account)))
        yield opened


async def press(lab: Lab) -> None:
    """Press a button, and again if the platform shows an error."""
    platform, chat = lab.channel.platform, "alice"
    about: Any = {"provider": lab.channel.form, "channel_id": chat}
    accepted = await lab.stack.append("x", **about)
    request = await put_request(lab.stack, accepted, tool="Bash", what="touch x")
    card = Card(request.id, (("once", "Allow once"),))
    await lab.stack.put_reply(*lab.account, "May I?", chat=chat, call=request.id, card=card)

    async def is_answered() -> bool:
        found = await lab.stack.fleet.requests.find(request.id)
        return bool(found and found.answer)

    async def is_over(pressed: str) -> bool:
        is_told = pressed in [each["press"] for each in platform.did("told")]
        return is_told or platform.is_failed(pressed)

    await lab.until(lab.is_settled)
    (shown,) = [each for each in platform.delivered if each.get("card") == request.id]
    for _ in range(3):
        if await is_answered():
            break
        pressed = platform.press(chat, shown["id"], "once", by="alice")
        await lab.until(partial(is_over, pressed))
    assert await is_answered()


#: The calls of the platform, and the commands to Redis, at which a process is killed, by form.
STEPS: dict[str, dict[str, Scenario]] = {
    "history": {
        **dict.fromkeys(("poll", "acknowledge", "inbox_store", "append", "inbox_done"), write),
        **dict.fromkeys(("send", "mark_sent", "receipt", "replace", "file"), answer),
    },
    "plaza": {
        **dict.fromkeys(("poll", "inbox_store", "append", "inbox_done"), write),
        **dict.fromkeys(("write_adapter_state", "connect", "fetch"), write),
        **dict.fromkeys(("send", "mark_sent", "receipt", "replace", "file"), answer),
        "confirm": press,
    },
}
#: The steps that are calls of the platform.
CALLS = {"poll", "acknowledge", "send", "replace", "file", "connect", "fetch", "confirm"}
#: The steps after which a message was begun, and the platform does not have it.
UNSENT = {"send before", "mark_sent after"}
#: The cases that a quick run has.
QUICK = {
    ("history", "acknowledge", "before"),
    ("history", "send", "after"),
    ("plaza", "write_adapter_state", "before"),
    ("plaza", "send", "after"),
    ("plaza", "confirm", "before"),
}


def cases() -> list[pytest.ParameterSet]:
    """Return each form with each of its steps and sides; most are thorough."""
    return [
        pytest.param(
            form,
            step,
            side,
            id=f"{form}-{step}-{side}",
            marks=() if (form, step, side) in QUICK else pytest.mark.thorough,
        )
        for form, steps in STEPS.items()
        for step in steps
        for side in ("before", "after")
    ]


@pytest.mark.parametrize(("lab", "step", "side"), cases(), indirect=["lab"])
async def test_a_process_killed_at_any_step_loses_and_repeats_nothing(
    lab: Lab, step: str, side: Side
) -> None:
    await lab.begin()
    platform, scenario = lab.channel.platform, STEPS[lab.channel.form][step]
    if step in CALLS:
        held = len(platform.did("held"))
        platform.tell(stops=f"{step} {side}")
        if step == "connect":
            lab.kill()
            lab.start()
        playing = lab.play(scenario)
        await eventually(lambda: len(platform.did("held")) > held)
        lab.kill()
        platform.tell()
    else:
        failpoint = lab.proxy.arm(step, side)
        playing = lab.play(scenario)
        await failpoint.wait()
        lab.kill()
        failpoint.cut()
    lab.start()
    await playing

    if scenario is not press:
        # What was begun, and is in no history, is sent with the label.
        is_unsent = lab.channel.form == "history" and f"{step} {side}" in UNSENT
        await check(lab, scenario, again=(f"{AGAIN}one",) if is_unsent else ("one",))


@pytest.mark.thorough("history", "whole")
@pytest.mark.parametrize("claim_ms", [CLAIM_MS, 0], ids=["short", "whole"])
@pytest.mark.parametrize("lab", ["history", "plaza"], indirect=True)
async def test_a_process_frozen_past_its_claim_does_nothing_more(lab: Lab, claim_ms: int) -> None:
    """Another process takes over. When the frozen one wakes, it does nothing more."""
    await lab.begin(claim_ms)
    failpoint = lab.proxy.arm("inbox_store", "before")
    playing = lab.play(write)
    await failpoint.wait()
    frozen = lab.process
    assert frozen
    frozen.send_signal(signal.SIGSTOP)
    await eventually(lab.is_unclaimed)
    lab.start()
    await playing
    count = lab.channel.log_file.read_text().count(STOP_NOTICE)
    failpoint.release()
    frozen.send_signal(signal.SIGCONT)
    await eventually(lambda: lab.channel.log_file.read_text().count(STOP_NOTICE) > count)
    frozen.kill()

    await check(lab, write)


@pytest.mark.thorough("history")
@pytest.mark.parametrize("lab", ["history", "plaza"], indirect=True)
async def test_nothing_is_acknowledged_while_redis_is_away(lab: Lab) -> None:
    """What people write is answered once Redis is back; a press fails where they see it."""
    await lab.begin()
    platform, chat = lab.channel.platform, "alice"
    await lab.stack.put_reply(
        *lab.account, "May I?", chat=chat, card=Card(lab.word[:8]), call=lab.word
    )
    await eventually(lab.is_settled)
    (shown,) = [each for each in platform.delivered if each.get("key") == f"{lab.word}:0"]
    lab.stack.redis.kill()
    count = len(platform.events)
    lab.say("one")
    lab.say("two", files={"plan.txt": "1, 2"})
    if lab.channel.form == "plaza":
        pressed = platform.press(chat, shown["id"], "once", by="alice")
        await eventually(lambda: platform.is_failed(pressed))
    else:
        await eventually(lambda: "pushed" in [each["event"] for each in platform.events[count:]])
    lab.kill()
    told = {each["event"] for each in platform.events[count:]}
    await asyncio.to_thread(lab.stack.redis.start)
    lab.start()
    await eventually(lab.is_read)

    assert not {"acknowledged", "confirmed"} & told
    assert await lab.accepted() == [("one", []), ("two", ["plan.txt"])]


@pytest.mark.parametrize("lab", ["plaza"], indirect=True)
async def test_what_redis_has_lost_is_read_again(lab: Lab) -> None:
    """Redis loses what it had not written to its disk, and the process lives on."""
    await lab.begin()
    size = lab.stack.redis.written()
    lab.say("one")
    await eventually(lab.is_read)
    lab.stack.redis.kill()
    lab.stack.redis.lose(size)
    await asyncio.to_thread(lab.stack.redis.start)
    lab.say("two")
    await eventually(lab.is_read)

    assert await lab.accepted() == [("one", []), ("two", [])]
