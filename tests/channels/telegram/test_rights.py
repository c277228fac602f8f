"""Rights in Telegram: they depend on ids, and a group's turn has those of its weakest sender."""

from collections.abc import Iterator
from typing import Any

import pytest

from remoteclaw.config.model import QueueConfig
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.gateway.auth.principals import Agent
from remoteclaw.gateway.methods import HANDLERS
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
    stack.agent = {"runtime": "claude"}  # a CLI with commands of its own; it is never started
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


async def senders_of(stack: Stack, turn: Turn) -> list[tuple[str, bool | None]]:
    """Return the sender of each of a turn's messages, and whether it is a command."""
    caller = await stack.fleet.calls.caller(turn.lease.sid)
    assert caller is not None
    assert caller.turn is not None
    return [(entry.message.from_, entry.is_command) for entry in caller.turn.entries]


async def may(turn: Turn, tool: str, **params: Any) -> bool:
    """Whether the policy allows a tool, even if the call then fails."""
    try:
        await turn.call(tool, **params)
    except CallRefused as refusal:
        return refusal.code != "FORBIDDEN"
    return True


async def wait_until_accepted(stack: Stack, count: int) -> None:
    async def has_all() -> bool:
        return (await stack.fleet.accounts.view("telegram", "default")).accepted == count

    await eventually(has_all)


@pytest.mark.parametrize(
    ("people", "allowed"), [([ANN], True), ([ANN, BO], False), ([BO, ANN], False), ([BO], False)]
)
async def test_a_group_turn_has_the_rights_of_its_least_privileged_sender(
    stack: Stack, bot: TelegramBot, channel: Channel, people: list[int], allowed: bool
) -> None:
    for person in people:
        bot.say(f"@{bot.username} hello", chat=GROUP, by=person, name="Ann")
    await wait_until_accepted(stack, len(people))
    turn = await begun(stack)

    assert await senders_of(stack, turn) == [(str(person), False) for person in people]
    pin = {"channelId": str(GROUP), "messageId": "1"}
    assert [
        await may(turn, FOR_OWNERS),
        await may(turn, MODERATES, **pin),
        await may(turn, DENIED),
    ] == [allowed] * 3


async def test_a_command_has_the_rights_of_its_sender(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    bot.say("/model@" + bot.username + " opus", chat=GROUP, by=BO)
    # A guest's command of a CLI counts as text.
    bot.say("/context@" + bot.username, chat=GROUP, by=BO)
    bot.say("/context@" + bot.username, chat=GROUP, by=ANN)
    bot.say(f"@{bot.username} hello", chat=GROUP, by=BO)
    await eventually(lambda: "owner" in "".join(bot.texts(GROUP)))
    await wait_until_accepted(stack, 4)

    turn = await begun(stack)  # the owner's command isn't batched with a guest's message
    assert await senders_of(stack, turn) == [(str(BO), False)]
    await turn.finish()
    command, after = [decode_entry(*entry) for entry in await turn.lease.entries()]
    assert (command.message.from_, command.is_command) == (str(ANN), True)
    assert next_batch([command, after], COLLECT, busy_since_ms=None).batch == (command.id,)


async def test_access_depends_on_ids_and_not_on_names(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    # The sender's name is the owner's id, and the group's title is the id of a group with access.
    other = -100_900
    bot.chat(other, title=str(GROUP), username="the_group")
    bot.say(f"@{bot.username} hello", chat=other, by=9, name=str(ANN))
    bot.say("/pair", chat=GROUP, by=9, name=str(ANN))
    bot.say("hello", chat=9, name=str(ANN))
    await eventually(lambda: "Your code is" in "".join(bot.texts(9)))
    await wait_until_accepted(stack, 3)

    await eventually(lambda: bot.texts(GROUP))
    assert bot.texts(other) == []
    (refusal,) = bot.texts(GROUP)
    assert "owner" in refusal
    (request,) = await stack.fleet.pairings.requests()
    assert (request.id, request.name) == ("9", str(ANN))

    # Access belongs to the id: another person with the same name has none.
    await stack.fleet.pairings.approve(request.code, by="a test")
    bot.say("/whoami", chat=9, name="Bo")
    bot.say("/whoami", chat=10, name=str(ANN))
    await eventually(lambda: "no owner" in "".join(bot.texts(9)))
    await eventually(lambda: "Your code is" in "".join(bot.texts(10)))
