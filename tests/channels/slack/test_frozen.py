"""A frozen process whose connection stays open: Slack sends it a part of what people write."""

import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from remoteclaw.fleet import keys
from tests.channels.slack.conftest import Account
from tests.support import channel
from tests.support.command import Process, start_program
from tests.support.waiting import eventually

#: The duration of a claim, in milliseconds: the test waits until one is over.
CLAIM_MS = 1000


@pytest.fixture
async def start(account: Account) -> AsyncIterator[Callable[[], Process]]:
    """What starts a process that runs the account."""
    processes: list[Process] = []

    def start() -> Process:
        argv = (channel.__name__, str(CLAIM_MS), "channel", "run")
        started = start_program(argv, env=account.stack.env(), log=log_of(account))
        processes.append(started)
        return started

    yield start
    for each in processes:
        each.kill()
        each.wait()


def log_of(account: Account) -> Path:
    """Return the log of the processes."""
    return account.stack.home.logs / "channel.log"


def say(account: Account, *texts: str) -> None:
    """Have Ann write to the app."""
    for text in texts:
        account.team.say(account.direct, account.ann, text)


async def test_a_frozen_process_takes_no_message_and_no_answer_with_it(
    account: Account, start: Callable[[], Process]
) -> None:
    """Slack repeats after 3 s what it has sent to it, perhaps to it again, and then a minute later.

    What follows is read from the history first, so that people's order is kept.
    """
    team, ann, direct = account.team, account.ann, account.direct
    frozen = start()
    cursors = keys.cursors("slack", "default")
    await eventually(lambda: account.stack.fleet.scripts.client.exists(cursors))
    say(account, "0")
    await account.until_accepted(direct, ann, "0")
    team.fault("chat.postMessage", "hold", is_done=True)
    await account.stack.put_reply("slack", "default", "an answer", chat=direct)
    await eventually(lambda: team.texts(direct))
    frozen.send_signal(signal.SIGSTOP)
    team.release()
    start()
    await eventually(lambda: len(team.sockets()) == 2)
    say(account, "1")
    team.advance(3)
    await account.until_accepted(direct, ann, *"01")
    await eventually(lambda: len(team.calls("conversations.history")) >= 2)
    say(account, *"234567")
    for pause_s in (3, 60):  # Slack's clock
        team.advance(pause_s)
    await account.until_accepted(direct, ann, *"01234567")
    await account.deliver("another", chat=direct, index=1)

    frozen.send_signal(signal.SIGCONT)
    await eventually(lambda: "stops sending replies" in log_of(account).read_text())
    await eventually(lambda: len(team.sockets()) == 1)
    say(account, *"89")
    await account.until_accepted(direct, ann, *"0123456789")
    team.advance(300)
    await eventually(lambda: not team.pending())
    assert await account.accepted(direct, ann) == [*"0123456789"]
    assert team.texts(direct) == ["an answer", "another"]
