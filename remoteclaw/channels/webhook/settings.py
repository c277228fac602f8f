"""The configuration section `[channels.webhook]`."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from remoteclaw.config.model import ChannelConfig, TokenConfig
from remoteclaw.config.rights import BY_PEOPLE


class WebhookAccount(TokenConfig):
    """A program that forwards messages. Both sides sign their requests with the token."""

    url: Annotated[str, BY_PEOPLE] = ""
    """The URL that answers are posted to. Without it, they wait."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            is_address = False
        if value and (not is_address or parts.username is not None or not value.isascii()):
            raise ValueError("is no address: write it as https://example.org/remoteclaw")
        return value


class WebhookConfig(WebhookAccount, ChannelConfig):
    """Webhooks: one program, configured in this table, and more in `accounts`."""

    accounts: Annotated[dict[str, WebhookAccount], BY_PEOPLE] = Field(default_factory=dict)
    """More programs, by names that you choose."""
