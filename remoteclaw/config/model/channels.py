"""The sections `[channels.NAME]`."""

import re
from typing import Annotated, Literal, TypeVar

from pydantic import Field, field_validator

from remoteclaw.config.model.section import MOST, Section, check_ids
from remoteclaw.config.model.sessions import ResetConfig
from remoteclaw.config.model.tools import GroupConfig, SenderConfig, ToolsConfig
from remoteclaw.config.rights import BY_AGENTS, BY_PEOPLE
from remoteclaw.protocols import Unit

__all__ = ["ChannelConfig"]

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
    reset: Annotated[ResetConfig | None, BY_PEOPLE] = None
    """When conversations end by themselves there; else as `[sessions]` says."""
    attachment_mb: Annotated[int, BY_PEOPLE] = Field(default=20, ge=0, le=20)
    """Largest file that people and agents may send there, in megabytes; 0 for none."""
    attachment_types: Annotated[tuple[str, ...], BY_PEOPLE] = Field(default=("*",), max_length=50)
    """Which files may be sent there, by their MIME types: `image/*`, `application/pdf`."""

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
        return {*(self.owners or ()), *self.senders, *self.groups, *groups} - {"*"}
