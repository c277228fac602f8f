"""The worst failures at every step of a channel's process.

Each case stops `remoteclaw channel run` at one step: at a command to Redis, by a proxy in front of
it, or at a call of its platform, before or after the call's effect. Then the process or Redis is
killed. In the end all messages and replies have arrived, in order and once. Only a call whose
outcome is unknown is repeated, with the note "(perhaps a second time)".
"""

import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.failpoints import Side
from tests.support.lab import Lab, answer, check, write
from tests.support.platform import AGAIN
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

STOP_NOTICE = " stops "
#: The duration of a claim that a process is to lose, in milliseconds.
CLAIM_MS = 1000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    """One Redis, one platform and one account; the cases start the process."""
    async with Lab.opened("test") as opened:
        yield opened


#: The steps of each scenario: calls of the platform, and commands to Redis.
CALLS = {
    **dict.fromkeys(("connect", "menu", "poll", "fetch"), write),
    **dict.fromkeys(("send", "preview", "edit", "typing", "replace", "file"), answer),
    **dict.fromkeys(("remove", "react"), answer),
}
COMMANDS = {
    **dict.fromkeys(("read", "pairing", "call_send", "append", "inbox_store", "inbox_done"), write),
    **dict.fromkeys(("mark_sent", "receipt", "preview"), answer),
}
#: The copies of the first message in the chat if its outcome is unknown.
PERHAPS = {
    "send before": (f"{AGAIN}one",),
    "send after": ("one", f"{AGAIN}one"),
    "mark_sent after": (f"{AGAIN}one",),
    "receipt before": ("one", f"{AGAIN}one"),
}
#: Whether each copy of the file is marked as a repetition, in order.
FILES = {"file before": [True], "file after": [False, True]}


# A kill before a call equals a kill after the previous call.
@pytest.mark.thorough("connect", "menu", "poll-before", "fetch-before", "edit-after", "typing")
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("call", CALLS)
async def test_a_process_killed_during_a_platform_call_loses_nothing(
    lab: Lab, call: str, side: Side
) -> None:
    await lab.begin()
    where, scenario, platform = f"{call} {side}", CALLS[call], lab.channel.platform
    held = len(platform.did("held"))
    platform.tell(stops=where)
    if call in ("connect", "menu"):
        lab.kill()
        lab.start()
    playing = lab.play(scenario)
    await eventually(lambda: len(platform.did("held")) > held)
    lab.kill()
    platform.tell()
    lab.start()
    await playing

    # A preview whose id was lost can't be removed.
    left = "Let" if where == "preview after" else ""
    await check(lab, scenario, again=PERHAPS.get(where, ("one",)), left=left)
    files = [event["is_again"] for event in platform.did("file") if event["chat"] == lab.word]
    assert files == (FILES.get(where, [False]) if scenario is answer else [])


@pytest.mark.thorough(  # a command that Redis didn't get is repeated; the next step covers the rest
    *("before-end_redis", "read-after"),
    *(f"{command}-after-kill" for command in ("pairing", "call_send", "append")),
)
@pytest.mark.parametrize("what_happens", ["kill", "end_redis"])
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("command", COMMANDS)
async def test_a_process_or_redis_killed_at_any_command_loses_nothing(
    lab: Lab, command: str, side: Side, what_happens: str
) -> None:
    await lab.begin()
    where, scenario = f"{command} {side}", COMMANDS[command]
    failpoint = lab.proxy.arm(command, side)
    playing = lab.play(scenario)
    await failpoint.wait()
    is_killed = what_happens == "kill"
    if is_killed:
        if scenario is write:  # a process that is killed during a send may send twice
            await eventually(lab.is_settled)
        lab.kill()
        failpoint.cut()
        lab.start()
    else:
        await lab.end_redis()
        failpoint.cut()
    await playing

    left = "Let" if is_killed and where == "preview before" else ""
    await check(
        lab, scenario, again=PERHAPS.get(where, ("one",)) if is_killed else ("one",), left=left
    )


@pytest.mark.thorough("append-after", "inbox_store-after", "receipt-after")
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("command", ["append", "inbox_store", "inbox_done", "mark_sent", "receipt"])
async def test_a_process_frozen_past_its_claim_does_nothing_more(
    lab: Lab, command: str, side: Side
) -> None:
    """Another process takes over. When the frozen one wakes, it does nothing more."""
    await lab.begin(claim_ms=CLAIM_MS)
    where, scenario = f"{command} {side}", COMMANDS[command]
    failpoint = lab.proxy.arm(command, side)
    playing = lab.play(scenario)
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

    await check(lab, scenario, again=PERHAPS.get(where, ("one",)))
