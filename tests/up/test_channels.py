"""`up` and the accounts on chat platforms."""

import os
import signal
from pathlib import Path

from remoteclaw.config.home import Home
from tests.support.processes import children
from tests.support.telegram import TelegramBot
from tests.support.up import command_line, remoteclaw, running
from tests.support.waiting import eventually_sync


def channels_of(up_pid: int) -> int | None:
    """Return the process id of what runs an `up`'s accounts."""
    found = (pid for pid in children(up_pid) if "\0channel\0run" in command_line(pid))
    return next(found, None)


def test_an_account_that_is_added_runs_at_once_and_again_when_it_is_killed(
    home: Home, bot: TelegramBot, directory: Path
) -> None:
    token = directory / "token"
    token.write_text(bot.token)
    home.config_file.write_text('[agents.main]\nruntime = "demo"\n')
    with running(home) as up:
        assert channels_of(up.pid) is None  # nothing is paid for what isn't there

        where = ("--api-url", bot.api_url, "--token-file", str(token), "--owner", "7")
        said = remoteclaw(home, "channel", "add", "telegram", "--no-input", *where).stdout
        assert "`remoteclaw up` runs it at once" in said
        bot.say("hello", chat=7)
        eventually_sync(lambda: any("demo agent" in text for text in bot.texts(7)))
        name = f"@{bot.username}"
        assert f"channel   telegram/default runs as {name}\n" in remoteclaw(home, "status").stdout
        assert "channel telegram/default" in remoteclaw(home, "doctor").stdout

        killed = channels_of(up.pid)
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        bot.say("memory", chat=7)
        eventually_sync(lambda: any("• hello" in text for text in bot.texts(7)))

        assert channels_of(up.pid) not in (None, killed)
    assert bot.token not in "".join(file.read_text() for file in home.logs.glob("*.log"))
    eventually_sync(lambda: not bot.is_polled())
