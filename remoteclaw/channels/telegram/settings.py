"""The configuration section `[channels.telegram]`."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from remoteclaw.config.model import ChannelConfig, Secret, TokenConfig
from remoteclaw.config.rights import BY_PEOPLE

#: Telegram's own Bot API server.
API_URL = "https://api.telegram.org"


class TelegramAccount(TokenConfig):
    """A bot."""

    secrets: ClassVar[Mapping[str, Secret]] = {
        "token": Secret(
            form=r"\d+:[\w-]{30,}",
            kind="a bot's token: one looks like 123456789:AAHd…, and @BotFather shows it",
        )
    }

    api_url: Annotated[str, BY_PEOPLE] = API_URL
    """The address of the Bot API: Telegram's, or that of your own server."""

    @field_validator("api_url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if not value.startswith(("https://", "http://")) or value.split("//")[1] in ("", "/"):
            raise ValueError("is no address of a server: write it as https://api.telegram.org")
        return value.rstrip("/")


class TelegramConfig(TelegramAccount, ChannelConfig):
    """Telegram: one bot, configured in this table, and more in `accounts`."""

    accounts: Annotated[dict[str, TelegramAccount], BY_PEOPLE] = Field(default_factory=dict)
    """More bots, by names that you choose."""
