"""`remoteclaw channel run` for a bot on the tests' Telegram."""

from typing import Any

from tests.support.command import REMOTECLAW, Process, start_program
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot

#: The bot's owner, and a group that was let in.
ANN, GROUP = 7, -100_500


class Channel:
    """The processes that run a bot."""

    def __init__(
        self,
        stack: Stack,
        bot: TelegramBot,
        *,
        settings: dict[str, Any] | None = None,
        **configuration: Any,
    ) -> None:
        self.log = stack.home.logs / "channel.log"
        self._stack = stack
        self._processes: list[Process] = []
        token_file = stack.home.path / "telegram-token"
        token_file.write_text(f"{bot.token}\n")
        token_file.chmod(0o600)
        self.about = {
            "token_file": str(token_file),
            "api_url": bot.api_url,
            "owners": [str(ANN)],
            "groups": {str(GROUP): {}},
            **(settings or {}),
        }
        self.configure(**configuration)

    def configure(self, **configuration: Any) -> None:
        """Write the configuration, with the bot in it."""
        self._stack.configure(**configuration, channels={"telegram": self.about})

    def start(self, *, url: str = "") -> Process:
        """Start a process, perhaps with a Redis at another address."""
        argv = [REMOTECLAW, "channel", "run"]
        env = {"REMOTECLAW__REDIS__URL": url} if url else {}
        process = start_program(argv, env=self._stack.env(**env), log=self.log)
        self._processes.append(process)
        return process

    def end(self) -> None:
        """End all that were started."""
        for process in self._processes:
            process.kill()
            process.wait()
