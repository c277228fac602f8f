"""Turns that stream at the same time, within the calls that Slack allows."""

import asyncio
import time
from typing import Any

import pytest

from remoteclaw.fleet import keys
from remoteclaw.messages import EVERYONE, SessionKey
from tests.channels.slack.conftest import Account
from tests.support.manual_turn import ManualTurn, wait_for_live_text_listener
from tests.support.virtual_time import hurried
from tests.support.waiting import eventually

TURNS, SECONDS = 10, 60
#: Time goes so many times as fast, also for Slack.
SPEED = 10
#: An answer of two messages.
WORDS = [f"word{number:04}" for number in range(600)]


async def begun(account: Account, thread: str) -> ManualTurn:
    """Begin the turn of the message that has opened a thread."""
    fleet, room = account.stack.fleet, account.room
    sid = SessionKey("main", "slack", "default", room, EVERYONE, thread).sid
    client: Any = fleet.scripts.client
    ((entry, _),) = await eventually(lambda: client.xrange(keys.inbound(sid)))
    lease = await fleet.leases.acquire(sid, worker="test", host="here")
    assert lease
    assert await lease.turns.begin([entry.decode()])
    return ManualTurn(lease, entry.decode(), room)


async def stream(turn: ManualTurn, thread: str) -> None:
    """Show a growing text for a minute, then end the turn with an answer."""
    until = time.monotonic() + SECONDS / SPEED
    for number in range(1, len(WORDS)):
        if time.monotonic() > until:
            break
        await turn.show(" ".join(WORDS[:number]), thread_id=thread)
        await asyncio.sleep(3)
    await turn.end(" ".join(WORDS))


@pytest.mark.thorough
async def test_ten_threads_that_stream_for_a_minute_are_never_refused(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And their answers are complete. They share the rates of the account and of the channel."""
    team, room = account.team, account.room
    team.set(limit_scale=1)
    with hurried(SPEED, monkeypatch):
        team.hurry(SPEED)
        await account.start()
        await wait_for_live_text_listener(account.stack.fleet, "slack")
        threads = [team.say(room, account.ann, f"<@{team.bot}> {n}") for n in range(TURNS)]
        turns = [await begun(account, thread) for thread in threads]
        await asyncio.gather(*map(stream, turns, threads))

        def are_answered() -> bool:
            shown = [" ".join(team.texts(room, thread)) for thread in threads]
            return [each.split() for each in shown] == [WORDS] * TURNS

        await eventually(are_answered)
        await account.stop()

    assert len(team.calls("chat.update")) >= 2 * TURNS
    assert {each["error"] for each in team.calls()} == {""}
