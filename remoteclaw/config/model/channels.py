"""The sections `[channels.NAME]`."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from remoteclaw.config.model.approvals import ApprovalsConfig
from remoteclaw.config.model.section import MOST, Section, check_ids, check_names
from remoteclaw.config.model.sessions import ResetConfig
from remoteclaw.config.model.tools import GroupConfig, SenderConfig, ToolsConfig
from remoteclaw.config.rights import BY_AGENTS, BY_PEOPLE, SECRET
from remoteclaw.errors import ConfigError
from remoteclaw.messages import DEFAULT_ACCOUNT
from remoteclaw.profiles import channel_of
from remoteclaw.protocols import Unit

_T = TypeVar("_T")


class ChannelConfig(Section):
    """One channel."""

    instructions: Annotated[str | None, BY_PEOPLE] = Field(default=None, max_length=16_000)
    """What the agent is told of this channel, in its system prompt."""
    formatting: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=20)
    """How the channel shows messages, a sentence each, for the agent."""
    authorized_senders: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=100)
    """Who may write there, as information for the agent; it neither admits nor excludes anyone."""
    owners: Annotated[tuple[str, ...] | None, BY_PEOPLE] = None
    """The ids of those for whom agents may use the tools for owners: cron and the gateway's.
    Without it, a channel has none, except where everyone who writes is at this computer."""
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which tools agents may use there."""
    approvals: ApprovalsConfig = Field(default_factory=ApprovalsConfig)
    """Who answers what agents ask people for there."""
    senders: Annotated[dict[str, SenderConfig], BY_PEOPLE] = Field(default_factory=dict)
    """Settings for senders, by their ids."""
    groups: Annotated[dict[str, GroupConfig], BY_PEOPLE] = Field(default_factory=dict)
    """Settings for group chats, by their ids."""
    reactions: Annotated[Literal["minimal", "extensive"] | None, BY_AGENTS] = None
    """How often the agent should react to a message with an emoji."""
    chunk_limit: Annotated[int, BY_AGENTS] = Field(default=4000, ge=80, le=MOST)
    """Longest message of an answer; a longer answer is split."""
    chunk_unit: Annotated[Unit, BY_AGENTS] = "characters"
    """What `chunk_limit` counts: characters (code points), or units of UTF-16."""
    activity: Annotated[Literal["arguments", "names", "off"] | None, BY_PEOPLE] = None
    """What is shown of a running tool: its name with a short argument, the name alone, or nothing.
    Without it, `arguments` in direct chats, else `names`."""
    shows_work: Annotated[bool, BY_PEOPLE] = True
    """Whether a silent message says what works for a conversation while something does, where the
    platform can edit messages."""
    reset: Annotated[ResetConfig | None, BY_PEOPLE] = None
    """When conversations end by themselves there; else as `[sessions]` says."""
    attachment_mb: Annotated[int, BY_PEOPLE] = Field(default=20, ge=0, le=20)
    """Largest file that people and agents may send there, in megabytes; 0 for none."""
    attachment_types: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=("*",), max_length=50)
    """Which files may be sent there, by their MIME types: `image/*`, `application/pdf`."""
    transcribe: Annotated[tuple[str, ...] | None, SECRET] = Field(default=None, min_length=1)
    """The program that writes recordings down, and its first arguments, on platforms that have an
    adapter. It gets the path of a file as its last argument, and prints what is said in it."""

    @staticmethod
    def named(name: str) -> "type[ChannelConfig]":
        """Return the model of a channel's settings; raises `ConfigError` if it can't be loaded."""
        return _settings(name)

    @field_validator("attachment_types")
    @classmethod
    def _check_types(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for kind in value:
            if kind != "*" and not re.fullmatch(r"[a-z0-9.+*-]+/[a-z0-9.+*-]+", kind):
                raise ValueError(f"has {kind!r}: write MIME types, such as image/* or text/plain")
        return value

    @field_validator("owners")
    @classmethod
    def _check_owners(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if "*" in (value or ()):
            raise ValueError(
                "has '*', and then every sender could change the configuration: "
                "name each owner by the platform's id"
            )
        check_ids(value or ())
        return value

    @field_validator("senders", "groups")
    @classmethod
    def _check_tables(cls, value: dict[str, _T]) -> dict[str, _T]:
        check_ids(value)
        return value

    def named_ids(self) -> set[str]:
        """Return every id of a person or a chat that is named here."""
        groups = {sender for group in self.groups.values() for sender in group.senders}
        allowed = {one for account in accounts_of(self).values() for one in account.allow}
        return {*(self.owners or ()), *self.senders, *self.groups, *groups, *allowed} - {"*"}


class AccountConfig(Section):
    """One account of a channel with an adapter: which agent answers there, and to whom."""

    agent: Annotated[str | None, BY_PEOPLE] = None
    """The agent that answers; without it, the one that others are answered by."""
    sessions: Annotated[Literal["person", "chat"] | None, BY_PEOPLE] = None
    """Whether each `person` in a chat has a conversation of their own, or the `chat` has one.
    Without it, `person` in direct chats and `chat` in groups."""
    allow: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=(), max_length=1000)
    """The ids of those who may write, besides owners and people who were paired."""

    @property
    def is_account(self) -> bool:
        """Whether there is an account: a channel's own table may have none."""
        return True

    @field_validator("allow")
    @classmethod
    def _check_allow(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "*" in value:
            raise ValueError("has '*': name each person by the platform's id")
        check_ids(value)
        return value

    @model_validator(mode="after")
    def _check_accounts(self) -> "AccountConfig":
        accounts = getattr(self, "accounts", {})
        check_names(accounts)
        if DEFAULT_ACCOUNT in accounts:
            raise ValueError("has accounts.default, which is the account of the table itself")
        return self


class TokenConfig(AccountConfig):
    """An account that is signed in to with a token."""

    token: Annotated[str | None, SECRET] = None
    """The token, which is best kept elsewhere: in a variable or a file."""
    token_env: Annotated[str | None, BY_PEOPLE] = None
    """The environment variable that has it."""
    token_file: Annotated[str | None, BY_PEOPLE] = None
    """The file that has it, and nothing else."""

    @property
    def is_account(self) -> bool:
        """Whether it says where the token is."""
        return bool(self.token or self.token_env or self.token_file)

    @model_validator(mode="after")
    def _check_token(self) -> "TokenConfig":
        if len([one for one in (self.token, self.token_env, self.token_file) if one]) > 1:
            raise ValueError("has more than one of token, token_env and token_file: keep one")
        return self

    def read_token(self, environment: Mapping[str, str] = os.environ) -> str:
        """Return the token. Raises `ConfigError` if it is not where it should be."""
        if self.token_file:
            path = Path(self.token_file).expanduser()
            try:
                found = path.read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is no text"
                raise ConfigError(f"token_file {path} can't be read: {why}.") from None
            where = f"token_file {path}"
        elif self.token_env:
            found, where = environment.get(self.token_env, "").strip(), f"${self.token_env}"
        else:
            found, where = (self.token or "").strip(), "token"
        if not found:
            raise ConfigError(f"There is no token: {where} is empty.")
        if not found.isascii() or not found.isprintable() or " " in found:
            raise ConfigError(
                f"{where} doesn't contain a token: one is printable ASCII, without spaces."
            )
        return found


def accounts_of(channel: ChannelConfig) -> dict[str, AccountConfig]:
    """Return a channel's accounts by name; a channel without an adapter has none."""
    if not isinstance(channel, AccountConfig):
        return {}
    own: dict[str, Any] = {DEFAULT_ACCOUNT: channel} if channel.is_account else {}
    return own | getattr(channel, "accounts", {})


def _settings(name: str) -> type[ChannelConfig]:
    channel = channel_of(name)
    if channel is None or not channel.settings:
        return ChannelConfig
    try:
        found: type[ChannelConfig] = resolve_name(channel.settings)
    except Exception as error:  # noqa: BLE001 - the code is another package's
        raise ConfigError(
            f"The settings of the channel {name!r} can't be loaded from {channel.settings}: "
            f"{type(error).__name__}: {error}."
        ) from None
    assert issubclass(found, ChannelConfig), f"{channel.settings} is the model of a channel"
    return found
