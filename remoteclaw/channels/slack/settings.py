"""The configuration section `[channels.slack]`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from remoteclaw.channels.slack.manifest import LINK
from remoteclaw.config.model import ChannelConfig, Secret, SecretsConfig
from remoteclaw.config.rights import BY_PEOPLE, SECRET


class SlackAccount(SecretsConfig):
    """An app in a workspace."""

    secrets: ClassVar[Mapping[str, Secret]] = {
        "token": Secret(
            form=r"xoxb-[\w-]{10,}",
            kind="a bot token, which begins with xoxb-",
            how="On the app's page, choose Install App, Install to your workspace, and Allow. The "
            "page then shows the Bot User OAuth Token.",
            label="bot token",
        ),
        "app_token": Secret(
            form=r"xapp-[\w-]{10,}",
            kind="an app-level token, which begins with xapp-",
            how="On the app's page, choose Basic Information, App-Level Tokens, Generate Token and "
            "Scopes. Enter any name, add the scope connections:write, and choose Generate.",
            label="app-level token",
        ),
    }
    making: ClassVar[Sequence[str]] = (
        "This link makes the app:",
        LINK,
        "Open it, choose the workspace, then Next and Create.",
    )
    reach: ClassVar[str] = (
        "Now write a message to {name} in its direct chat, so that it learns who you are. Slack "
        "has it under Apps in the sidebar, and finds it by its name. This first message gets no "
        "answer."
    )

    api_url: Annotated[str, BY_PEOPLE] = "https://slack.com/api"
    """The address of the Web API: Slack's, or that of GovSlack (`https://slack-gov.com/api`)."""
    token: Annotated[str | None, SECRET] = None
    """The bot token. Prefer `token_env` or `token_file`, which keep it out of this file."""
    token_env: Annotated[str | None, BY_PEOPLE] = None
    """The environment variable that contains the bot token."""
    token_file: Annotated[str | None, BY_PEOPLE] = None
    """The file that contains the bot token."""
    app_token: Annotated[str | None, SECRET] = None
    """The app-level token, with which Slack pushes events."""
    app_token_env: Annotated[str | None, BY_PEOPLE] = None
    """The environment variable that contains the app-level token."""
    app_token_file: Annotated[str | None, BY_PEOPLE] = None
    """The file that contains the app-level token."""
    external: Annotated[bool, BY_PEOPLE] = False
    """Whether people of another company in a shared channel count as its members. Without it, the
    account doesn't read what they write."""

    @field_validator("api_url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if not value.startswith(("https://", "http://")) or value.split("//")[1] in ("", "/"):
            raise ValueError("is no address of a server: write it as https://slack.com/api")
        return value.rstrip("/")


class SlackConfig(SlackAccount, ChannelConfig):
    """Slack: one app, configured in this table, and more in `accounts`."""

    accounts: Annotated[dict[str, SlackAccount], BY_PEOPLE] = Field(default_factory=dict)
    """More apps, by names that you choose."""
