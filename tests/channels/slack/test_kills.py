"""Kills between two steps of the account, and of Redis: nothing is lost, and nothing said twice."""

import asyncio

import pytest

from remoteclaw.channels.slack.adapter import AGAIN
from tests.channels.slack.conftest import Account
from tests.support.failpoints import Side
from tests.support.waiting import eventually

COMING: list[tuple[str, Side]] = [
    ("inbox_store", "before"),
    ("inbox_store", "after"),
    ("append", "before"),
    ("append", "after"),
]
GOING: list[tuple[str, Side]] = [
    ("mark_sent", "before"),
    ("mark_sent", "after"),
    ("receipt", "before"),
]


@pytest.mark.thorough("before")
@pytest.mark.parametrize(("step", "side"), COMING)
async def test_a_message_on_slack_survives_a_kill(account: Account, step: str, side: Side) -> None:
    """Slack repeats what was not acknowledged only after a minute: it is read before."""
    team, ann, direct = account.team, account.ann, account.direct
    await account.start()
    team.say(direct, ann, "hello")
    await account.until_accepted(direct, ann, "hello")
    failpoint = account.proxy.arm(step, side)
    team.say(direct, ann, "one")
    await failpoint.wait()
    await account.stop()
    failpoint.cut()
    await account.start()
    team.say(direct, ann, "two")
    await account.until_accepted(direct, ann, "hello", "one", "two")
    team.advance(60)
    await eventually(lambda: not team.pending())
    assert await account.accepted(direct, ann) == ["hello", "one", "two"]


@pytest.mark.thorough("before")
@pytest.mark.parametrize(("step", "side"), GOING)
async def test_an_answer_on_slack_survives_a_kill(account: Account, step: str, side: Side) -> None:
    team, direct = account.team, account.direct
    await account.start()
    failpoint = account.proxy.arm(step, side)
    await account.stack.put_reply("slack", "default", "an answer", chat=direct)
    await failpoint.wait()
    await account.stop()
    failpoint.cut()
    await account.start()
    await account.deliver("another", chat=direct, index=1)
    # It was begun, and Slack does not have it: it could still arrive.
    again = f"{AGAIN}\n\n" if (step, side) == ("mark_sent", "after") else ""
    assert team.texts(direct) == [f"{again}an answer", "another"]


@pytest.mark.parametrize("is_ended", [False, True])
async def test_an_answer_whose_response_is_lost_is_found(account: Account, is_ended: bool) -> None:
    """The process lives on, or ends before the response."""
    team, direct = account.team, account.direct
    await account.start()
    team.fault("chat.postMessage", "hold" if is_ended else "drop", is_done=True)
    await account.stack.put_reply("slack", "default", "an answer", chat=direct)
    await eventually(lambda: team.texts(direct))
    if is_ended:
        await account.stop()
        team.release()
        await account.start()
    await account.deliver("another", chat=direct, index=1)
    assert team.texts(direct) == ["an answer", "another"]


async def test_what_redis_has_lost_is_read_from_slack_again(account: Account) -> None:
    team, ann, direct = account.team, account.ann, account.direct
    await account.start()
    team.say(direct, ann, "one")
    await account.until_accepted(direct, ann, "one")
    await eventually(lambda: not team.pending())
    size = account.stack.redis.written()
    team.say(direct, ann, "two")
    await account.until_accepted(direct, ann, "one", "two")
    account.stack.redis.kill()
    account.stack.redis.lose(size)
    await asyncio.to_thread(account.stack.redis.start)
    team.say(direct, ann, "three")
    await account.until_accepted(direct, ann, "one", "two", "three")
