"""The tables `[….tools]`, and the settings of senders and group chats."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from remoteclaw.config.model.requests import AskingSection, RequestsConfig
from remoteclaw.config.model.section import Section, check_ids
from remoteclaw.config.rights import BY_PEOPLE

Profile = Literal["full", "limited", "messaging", "minimal"]
Threads = Literal["auto", "platform", "off"]


class ToolsConfig(Section):
    """RemoteClaw's tools that agents may use: everywhere (`[tools]`), or in the table's scope.

    A list contains names of tools, groups of tools such as `group:cron`, and patterns in which `*`
    stands for any letters, such as `message_*`.
    """

    profile: Annotated[Profile, BY_PEOPLE] = "full"
    """The set of tools to start from. `full`: all tools. `messaging`: the tools for chats, and for
    reading and writing to sessions. `limited`: reading, and answering in the chat. `minimal`:
    `session_status` only."""
    allow: Annotated[tuple[str, ...], BY_PEOPLE] = ()
    """If not empty, only these tools are allowed; else all tools of `profile`."""
    deny: Annotated[tuple[str, ...], BY_PEOPLE] = ()
    """Tools that are denied, even if another list or another table allows them."""
    also_allow: Annotated[tuple[str, ...], BY_PEOPLE] = ()
    """Tools that are added to `profile`. They stay denied where another table denies them. In an
    agent's own table, they also include tools that tasks don't have otherwise."""

    approve: Annotated[tuple[str, ...] | None, BY_PEOPLE] = None
    """Tools whose calls a person has to approve first. Only `gateway_config_patch`,
    `gateway_config_apply` and `memory_write` can wait for an approval. The narrowest table that has
    this key decides; an empty list means that no call needs an approval."""

    @field_validator("allow", "deny", "also_allow", "approve")
    @classmethod
    def _check_entries(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for entry in value or ():
            if not re.fullmatch(r"[A-Za-z0-9_:*-]+", entry):
                raise ValueError(f"has {entry!r}: write a tool, a group, or a name with *")
        return value


class SenderConfig(Section):
    """Settings for a sender, by the id that the platform assigned.

    The table `*` is for all senders without a table of their own.
    """

    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which of RemoteClaw's tools the agent may use on behalf of the sender."""


class GroupConfig(AskingSection):
    """Settings for a group chat, by the id that the platform assigned.

    The table of a category or server, by its id, is for all chats in it without a table of their
    own, and the table `*` for all other group chats.
    """

    agent: Annotated[str | None, BY_PEOPLE] = None
    """The name of the agent that answers in the group. Without it, the agent is that of `/pair as
    AGENT`, else that of the next wider table, and at last that of the account."""
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which of RemoteClaw's tools the agent may use in the group."""
    requests: RequestsConfig = Field(default_factory=RequestsConfig)
    """Who answers the agent's requests in the group."""
    senders: Annotated[dict[str, SenderConfig], BY_PEOPLE] = Field(default_factory=dict)
    """Settings for senders in the group, by the sender's id."""
    require_mention: Annotated[bool | Literal["start"], BY_PEOPLE] = "start"
    """Whether the agent receives only messages that mention it, reply to it or are commands to it.
    `start`: only these, and all messages of a thread or topic in which it has a conversation.
    If false, it receives all messages in the group."""
    threads: Annotated[Threads | None, BY_PEOPLE] = None
    """Which threads of the group have a conversation of their own. Without it, the account's
    `threads` decides."""

    @field_validator("require_mention", mode="before")
    @classmethod
    def _check_mention(cls, value: object) -> object:
        if value not in (True, False, "true", "false", "start"):
            raise ValueError(f'is {value!r}: write true, false or "start"')
        return value

    @field_validator("senders")
    @classmethod
    def _check_senders(cls, value: dict[str, SenderConfig]) -> dict[str, SenderConfig]:
        check_ids(value)
        return value
