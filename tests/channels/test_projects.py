"""A group for each project: one bot, whose groups have agents of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from remoteclaw.messages import SessionKey
from tests.support.bridges import script
from tests.support.cli import run
from tests.support.stack import Stack
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
