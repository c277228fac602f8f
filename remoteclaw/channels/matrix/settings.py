"""The configuration section `[channels.matrix]`."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from remoteclaw.config.model import ChannelConfig, Secret, TokenConfig
from remoteclaw.config.rights import BY_PEOPLE


class MatrixAccount(TokenConfig):
    """An account on a homeserver."""

    secrets: ClassVar[Mapping[str, Secret]] = {
        "token": Secret(form=r"\S{8,}", kind="an access token, which has no spaces")
    }

    api_url: Annotated[str, BY_PEOPLE] = "https://matrix.org"
    """The address of the homeserver, such as https://matrix-client.matrix.org."""

    user: Annotated[str | None, BY_PEOPLE] = None
    """The account's id, such as `@bot:example.org`. `channel add` writes it."""
    device: Annotated[str | None, BY_PEOPLE] = None
    """The id of the account's device, with which `channel add` logs in again. `channel add` writes
    it."""

    require_encryption: Annotated[bool, BY_PEOPLE] = False
    """Whether messages that are not encrypted are refused. What an agent is told to send to a room
    without encryption is sent."""

    @field_validator("api_url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if not value.startswith(("https://", "http://")) or value.split("//")[1] in ("", "/"):
            raise ValueError("is no address of a server: write it as https://matrix.example.org")
        return value.rstrip("/")


class MatrixConfig(MatrixAccount, ChannelConfig):
    """Matrix: one account, configured in this table, and more in `accounts`."""

    accounts: Annotated[dict[str, MatrixAccount], BY_PEOPLE] = Field(default_factory=dict)
    """More accounts, by names that you choose."""
