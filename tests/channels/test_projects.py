"""A group for each project: one bot, whose groups have agents of their own."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.commands.answers import NOT_YOURS
from remoteclaw.errors import CallRefused
from remoteclaw.messages import SessionKey
from tests.support.bridges import claude_script, script
from tests.support.channel import TestChannel
from tests.support.cli import run
from tests.support.stack import Stack, message
from tests.support.tasks import entries, take_up
from tests.support.telegram import TelegramBot
from tests.support.telegram.channel import ANN, Channel
from tests.support.waiting import eventually

#: Two groups: the first is in the configuration, and nobody has let the second in.
SITE, BOOKS = -100_600, -100_700
#: Says where the agent works, and with which words it begins there.
AGENT = """
while True:
    said = turn()['prompt'].splitlines()[-1]
    say(type='text', text=f'{os.path.basename(os.getcwd())} heard {said}')
    say(type='done')
"""

#: Asks for a permission.
ASKS = """
echo(heard())
asks('1', 'Bash', dict(command='git push'))
heard('control_response')
"""


@pytest.fixture
def channel(stack: Stack, bot: TelegramBot, directory: Path) -> Iterator[Channel]:
    agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    channel = Channel(stack, bot, settings={"groups": {str(SITE): {"agent": "web"}}})
    channel.configure(agent=agent, agents={"web": agent, "ledger": agent})
    yield channel
    channel.end()


async def test_two_groups_of_one_bot_belong_to_two_agents_in_two_workspaces(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    channel.start()

    async def told(chat: int, words: str) -> str:
        await eventually(lambda: words in "\n".join(bot.texts(chat)))
        return next(text for text in bot.texts(chat) if words in text)

    bot.say("hello", chat=ANN)
    bot.say(f"@{bot.username} hello", chat=SITE, by=8)
    await told(ANN, "main heard hello")
    await told(SITE, "web heard hello")
    bot.say("/pair as wbe", chat=ANN)
    bot.say(f"/pair@{bot.username} here as wbe", chat=BOOKS, by=ANN)
    await told(ANN, "Only a group can be given to an agent")
    await told(BOOKS, "There is no agent 'wbe': the configuration has 'main', 'web', 'ledger'.")
    bot.say(f"/pair@{bot.username} here as Ledger", chat=BOOKS, by=ANN)
    await told(BOOKS, "The agent ledger answers here.")
    bot.say(f"@{bot.username} hello", chat=BOOKS, by=8)
    await told(BOOKS, "ledger heard hello")
    bot.say(f"/status@{bot.username}", chat=BOOKS, by=8)
    bot.say(f"/pair@{bot.username} as main", chat=SITE, by=ANN)
    assert "agent: ledger (demo)" in await told(BOOKS, "Idle.")
    assert 'channels.telegram.groups."-100600".agent' in await told(SITE, "gives this group")
    bot.say(f"/pair@{bot.username}", chat=BOOKS, by=ANN)
    bot.say(f"/agent@{bot.username} web", chat=BOOKS, by=ANN)
    await told(BOOKS, "/pair as web gives it to web.")

    paired = await stack.fleet.pairings.list()
    assert [(one.id, one.agent) for one in paired] == [(str(BOOKS), "ledger")], "it keeps its agent"
    listed = run(stack, "channel", "list").stdout
    assert [line.split() for line in listed.splitlines() if "-100" in line] == [
        ["telegram/default", str(SITE), "web"],
        ["telegram/default", str(BOOKS), "ledger"],
    ]
    sessions = {view.key for view in await stack.fleet.sessions.list(limit=9)}
    assert SessionKey("ledger", "telegram", "default", str(BOOKS), "*") in sessions
    channel.about["groups"] = {}
    channel.configure(agent=stack.agent)
    bot.say(f"@{bot.username} are you there?", chat=BOOKS, by=8)
    await told(BOOKS, "belongs to the agent ledger, which is not configured any more")
    assert "belongs to the agent 'ledger', which is not" in run(stack, "channel", "list").stdout
    bot.say(f"/pair@{bot.username} as main", chat=BOOKS, by=ANN)
    bot.say(f"@{bot.username} hello", chat=BOOKS, by=8)
    await told(BOOKS, "message 1 of our conversation")


async def test_a_message_that_is_repeated_after_its_group_got_another_agent_is_not_answered_again(
    stack: Stack,
) -> None:
    said = message("hello", channel_id="team")
    first = await stack.fleet.inbound.append(said, agent="main", is_shared=True)
    again = await stack.fleet.inbound.append(said, agent="web", is_shared=True)

    assert (again.entry_id, again.is_duplicate) == (first.entry_id, True)
    assert [view.key.agent for view in await stack.fleet.sessions.list(limit=9)] == ["main"]


async def test_the_table_of_a_server_is_for_the_chats_in_it(
    stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Its rights apply also where no report of the platform says what contains the chat."""
    channel = TestChannel.installed(monkeypatch, stack)
    request.addfinalizer(channel.end)
    requests = {"who": ["test:bo"], "chat": "test:desk"}
    server = {"agent": "web", "tools": {"deny": ["sessions_list"]}, "requests": requests}
    groups = {"guild:1": server, "own": {}}
    about: dict[str, Any] = {"directory": str(stack.home.path / "platform"), "groups": groups}
    about |= {"owners": ["alice"], "threads": "platform"}
    asking = {"runtime": "claude", "command": list(claude_script(directory, ASKS))}
    stack.configure(channels={"test": about}, agents={"web": asking})
    room, own = (SessionKey("web", "test", "default", chat, "*") for chat in ("room", "own"))
    channel.start()
    within = ("category:2", "guild:1")
    channel.platform.say("elsewhere", "bo", "hello", within=("guild:3",))
    channel.platform.say("own", "bo", "hello", within=within)
    channel.platform.say("room", "bo", "hello", within=within)
    await eventually(lambda: is_waiting(stack, own))
    await eventually(lambda: is_waiting(stack, room))
    channel.platform.say("room", "bo", "this report does not say where the room is")
    await eventually(lambda: is_waiting(stack, room, count=2))

    keys = {view.key for view in await stack.fleet.sessions.list(limit=9)}
    assert keys == {room, own}, "a table without an agent does not take it away"
    for session, is_allowed in ((own, True), (room, False)):
        turn = await take_up(stack, session)
        listed = {tool.tool for tool in await turn.gateway.tools(turn.agent)}
        assert ("sessions_list" in listed) is is_allowed
        with contextlib.nullcontext() if is_allowed else pytest.raises(CallRefused, match="policy"):
            await turn.call("sessions_list")
        await turn.finish()
        await turn.lease.release()
    explain = ("policy", "explain", "--channel", "test", "--group", "--from", "bo")
    explained = run(stack, *explain, "--chat", "room").stdout
    assert 'channels.test.groups."guild:1".tools.deny has "sessions_list"' in explained
    assert "Requests to people: test:bo may answer" in explained
    await stack.start_worker()
    await eventually(lambda: "git push" in "\n".join(channel.texts("desk")))
    (asked,) = await stack.fleet.requests.waiting()
    channel.platform.say("desk", "cid", f"/allow {asked.id}", within=within)
    await eventually(lambda: NOT_YOURS in channel.texts("desk"))
    channel.platform.say("desk", "bo", f"/allow {asked.id}", within=within)

    async def is_allowed_now() -> bool:
        return not await stack.fleet.requests.waiting()

    await eventually(is_allowed_now)
    channel.platform.say("room", "bo", "the room has left the server", within=())

    async def has_left() -> bool:
        return not (await stack.fleet.chats.facts(room.place, is_group=True)).within

    await eventually(has_left)
    assert run(stack, *explain, "--chat", "room").stdout.count("guild:1") == 0


async def is_waiting(stack: Stack, session: SessionKey, count: int = 1) -> bool:
    """Whether so many messages wait in a session."""
    return len(await entries(stack, session)) == count
