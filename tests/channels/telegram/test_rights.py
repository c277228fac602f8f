"""Who may do what in Telegram: by ids alone, and in a group the least of all who are answered."""

from collections.abc import Iterator
from typing import Any

import pytest

from remoteclaw.config.model import QueueConfig
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.inbound import decode_entry
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.gateway.principals import Agent
from remoteclaw.session.queue import next_batch
from remoteclaw.tools.catalog import TOOLS
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot
from tests.support.telegram.channel import ANN, GROUP, Channel
from tests.support.turns import DIGEST, Turn, gateway
from tests.support.waiting import eventually

BO = 8
#: A tool for owners, one for owners in groups, and one that is denied to a guest.
FOR_OWNERS, MODERATES, DENIED = "cron_list", "message_pin", "sessions_list"
COLLECT = QueueConfig(mode="collect")
SETTINGS = {"senders": {str(BO): {"tools": {"deny": [DENIED]}}}}


@pytest.fixture
def channel(stack: Stack, bot: TelegramBot) -> Iterator[Channel]:
    stack.agent = {"runtime": "claude"}  # which has commands of its own; it is never started
    channel = Channel(stack, bot, settings=SETTINGS)
    channel.start()
    yield channel
    channel.end()


async def begun(stack: Stack) -> Turn:
    """Begin the next turn of the only session, as a worker does."""
    (view,) = await stack.fleet.sessions.list(limit=9)
    sid = view.key.sid
    lease = await stack.fleet.leases.acquire(sid, worker="test", host=stack.home.host_id)
    assert lease is not None
    waiting = [decode_entry(*entry) for entry in await lease.entries()]
    batch = next_batch(waiting, COLLECT, busy_since_ms=None).batch
    assert await lease.turns.begin(list(batch))
    await lease.grant(DIGEST, tuple(TOOLS))
    door = gateway(stack.fleet, stack.home, dict(HANDLERS))
    return Turn(batch[0], lease, Agent(sid, DIGEST), door)


async def answered(stack: Stack, turn: Turn) -> list[tuple[str, bool | None]]:
    """Return of a turn's messages who has written them, and whether they are commands."""
    caller = await stack.fleet.calls.caller(turn.lease.sid)
    assert caller is not None
    assert caller.turn is not None
    return [(entry.message.from_, entry.is_command) for entry in caller.turn.entries]


async def may(turn: Turn, tool: str, **params: Any) -> bool:
    """Whether the policy allows a tool; what becomes of it then is another matter."""
    try:
        await turn.call(tool, **params)
    except CallRefused as refusal:
        return refusal.code != "FORBIDDEN"
    return True


async def accepted(stack: Stack, count: int) -> None:
    async def are_there() -> bool:
        return (await stack.fleet.accounts.view("telegram", "default")).accepted == count

    await eventually(are_there)


@pytest.mark.parametrize(
    ("people", "allowed"), [([ANN], True), ([ANN, BO], False), ([BO, ANN], False), ([BO], False)]
)
async def test_a_turn_for_several_people_of_a_group_has_the_rights_of_the_least(
    stack: Stack, bot: TelegramBot, channel: Channel, people: list[int], allowed: bool
) -> None:
    for person in people:
        bot.say(f"@{bot.username} hello", chat=GROUP, by=person, name="Ann")
    await accepted(stack, len(people))
    turn = await begun(stack)

    assert await answered(stack, turn) == [(str(person), False) for person in people]
    pin = {"channelId": str(GROUP), "messageId": "1"}
    assert [
        await may(turn, FOR_OWNERS),
        await may(turn, MODERATES, **pin),
        await may(turn, DENIED),
    ] == [allowed] * 3


async def test_a_command_has_the_rights_of_who_gives_it(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    bot.say("/model@" + bot.username + " opus", chat=GROUP, by=BO)
    bot.say("/context@" + bot.username, chat=GROUP, by=BO)  # a command of a CLI, as mere words
    bot.say("/context@" + bot.username, chat=GROUP, by=ANN)
    bot.say(f"@{bot.username} hello", chat=GROUP, by=BO)
    await eventually(lambda: "owner" in "".join(bot.texts(GROUP)))
    await accepted(stack, 4)

    turn = await begun(stack)  # the owner's command is in none with what a guest writes
    assert await answered(stack, turn) == [(str(BO), False)]
    await turn.finish()
    command, after = [decode_entry(*entry) for entry in await turn.lease.entries()]
    assert (command.message.from_, command.is_command) == (str(ANN), True)
    assert next_batch([command, after], COLLECT, busy_since_ms=None).batch == (command.id,)


async def test_who_is_let_in_goes_by_ids_and_not_by_names(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    # One whose name is the owner's id, in a group that is called as one that was let in.
    other = -100_900
    bot.chat(other, title=str(GROUP), username="the_group")
    bot.say(f"@{bot.username} hello", chat=other, by=9, name=str(ANN))
    bot.say("/pair", chat=GROUP, by=9, name=str(ANN))
    bot.say("hello", chat=9, name=str(ANN))
    await eventually(lambda: "Your code is" in "".join(bot.texts(9)))
    await accepted(stack, 3)

    await eventually(lambda: bot.texts(GROUP))
    assert bot.texts(other) == []
    (told,) = bot.texts(GROUP)
    assert "owner" in told
    (asks,) = await stack.fleet.pairings.requests()
    assert (asks.id, asks.name) == ("9", str(ANN))

    # Who is let in is the id: another person with the same name is not, nor is it in a group.
    await stack.fleet.pairings.approve(asks.code, by="a test")
    bot.say("/whoami", chat=9, name="Bo")
    bot.say("/whoami", chat=10, name=str(ANN))
    await eventually(lambda: "no owner" in "".join(bot.texts(9)))
    await eventually(lambda: "Your code is" in "".join(bot.texts(10)))
