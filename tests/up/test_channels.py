"""`up` and the accounts on chat platforms."""

import os
import signal
from pathlib import Path

from remoteclaw.config.home import Home
from tests.support.telegram import TelegramBot
from tests.support.up import parts_of, remoteclaw, running
from tests.support.waiting import eventually_sync


def test_an_added_account_starts_at_once_and_is_restarted_after_a_kill(
    home: Home, bot: TelegramBot, directory: Path
) -> None:
    token = directory / "token"
    token.write_text(bot.token)
    home.config_file.write_text('[agents.main]\nruntime = "demo"\n')
    with running(home) as up:
        assert not parts_of(up.pid, "channel")  # without an account, no adapter runs

        where = ("--api-url", bot.api_url, "--token-file", str(token), "--owner", "7")
        printed = remoteclaw(home, "channel", "add", "telegram", "--no-input", *where).stdout
        assert "`remoteclaw up` starts it now" in printed
        bot.say("hello", chat=7)
        eventually_sync(lambda: any("demo agent" in text for text in bot.texts(7)))
        name = f"@{bot.username}"
        assert f"channel   telegram/default runs as {name}\n" in remoteclaw(home, "status").stdout
        assert f"channel telegram/default runs as {name}\n" in remoteclaw(home, "doctor").stdout

        (killed,) = parts_of(up.pid, "channel")
        os.kill(killed, signal.SIGKILL)
        bot.say("memory", chat=7)
        eventually_sync(lambda: any("• hello" in text for text in bot.texts(7)))

        assert parts_of(up.pid, "channel") not in ([], [killed])
    assert bot.token not in "".join(file.read_text() for file in home.logs.glob("*.log"))
    eventually_sync(lambda: not bot.is_polled())
