"""The tables `[….tools]`, and what differs for a sender or a group chat."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from remoteclaw.config.model.approvals import ApprovalsConfig
from remoteclaw.config.model.section import Section, check_ids
from remoteclaw.config.rights import BY_PEOPLE

Profile = Literal["full", "limited", "messaging", "minimal"]


class ToolsConfig(Section):
    """The tools of RemoteClaw that agents may use: everywhere, or where the table is.

    A list has names of tools, groups such as `group:cron`, and `*` for any letters: `message_*`.
    """

    profile: Annotated[Profile, BY_PEOPLE] = "full"
    """What there is to choose from: `full` is everything, `minimal` the session's status alone."""
    allow: Annotated[tuple[str, ...], BY_PEOPLE] = ()
    """Nothing but these, if there is one; else everything that the profile has."""
    deny: Annotated[tuple[str, ...], BY_PEOPLE] = ()
    """None of these, even if another list has them."""
    also_allow: Annotated[tuple[str, ...], BY_PEOPLE] = ()
    """These besides the profile. What another table takes away stays away, but what subagents are
    denied anyway, an agent's own table gives back."""

    approve: Annotated[tuple[str, ...] | None, BY_PEOPLE] = None
    """What a person has to approve before it is done: `gateway_config_patch` and
    `gateway_config_apply` can wait for that. The narrowest table that has this decides; an empty
    list is nothing."""

    @field_validator("allow", "deny", "also_allow", "approve")
    @classmethod
    def _check_entries(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for entry in value or ():
            if not re.fullmatch(r"[A-Za-z0-9_:*-]+", entry):
                raise ValueError(f"has {entry!r}: write a tool, a group, or a name with *")
        return value


class SenderConfig(Section):
    """Settings for a sender, by their id on the platform; `*` is for all without a table."""

    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which tools the agent may use for them."""


class GroupConfig(Section):
    """Settings for a group chat, by its id on the platform; `*` is for all without a table."""

    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which tools the agent may use there."""
    approvals: ApprovalsConfig = Field(default_factory=ApprovalsConfig)
    """Who answers what the agent asks people for there."""
    senders: Annotated[dict[str, SenderConfig], BY_PEOPLE] = Field(default_factory=dict)
    """Settings for senders there."""
    require_mention: Annotated[bool, BY_PEOPLE] = True
    """Whether the agent hears there only what mentions it, answers it or is a command to it, and
    not everything that is said."""

    @field_validator("senders")
    @classmethod
    def _check_senders(cls, value: dict[str, SenderConfig]) -> dict[str, SenderConfig]:
        check_ids(value)
        return value
