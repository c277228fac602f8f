"""The configuration as a whole."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from remoteclaw.config.model.agents import AgentConfig, workspace
from remoteclaw.config.model.approvals import ApprovalsConfig
from remoteclaw.config.model.channels import AccountConfig, ChannelConfig, accounts_of
from remoteclaw.config.model.fleet import FleetConfig
from remoteclaw.config.model.gateway import GatewayConfig
from remoteclaw.config.model.hooks import HooksConfig
from remoteclaw.config.model.queue import QueueConfig
from remoteclaw.config.model.redis import RedisConfig
from remoteclaw.config.model.section import Section, check_names
from remoteclaw.config.model.sessions import RecordConfig, ResetConfig, SessionsConfig
from remoteclaw.config.model.terminals import TerminalsConfig
from remoteclaw.config.model.tools import ToolsConfig
from remoteclaw.config.rights import BY_AGENTS, BY_PEOPLE
from remoteclaw.errors import ConfigError
from remoteclaw.messages import ChatKind, channel_name
from remoteclaw.profiles import is_gateways, profile_of

#: The settings of a channel that its profile decides where the file says nothing.
_OF_PROFILE = ("chunk_limit", "chunk_unit", "formatting", "attachment_mb", "attachment_types")


class Config(Section):
    """Everything that can be configured."""

    redis: RedisConfig = RedisConfig()
    gateway: GatewayConfig = GatewayConfig()
    fleet: FleetConfig = FleetConfig()
    agents: Annotated[dict[str, AgentConfig], BY_PEOPLE] = Field(
        default_factory=lambda: {"main": AgentConfig()}
    )
    """The agents by name. Messages go to `main`, else to the only one there is."""
    projects: Annotated[dict[str, Path], BY_PEOPLE] = Field(default_factory=dict)
    """Directories by name, such as `web = "~/code/web"`: absolute, or beginning with ~. With
    `/project NAME` an owner has a chat's agent work in one, in the place of its workspace: what
    holds there, such as `permissions` and `trust_workspace`, then holds for the project."""
    channels: Annotated[dict[str, ChannelConfig], BY_AGENTS] = Field(default_factory=dict)
    """The channels by name."""
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which of RemoteClaw's tools every agent may use."""
    approvals: ApprovalsConfig = ApprovalsConfig()
    queue: QueueConfig = QueueConfig()
    sessions: SessionsConfig = SessionsConfig()
    record: RecordConfig = RecordConfig()
    terminals: TerminalsConfig = TerminalsConfig()
    hooks: HooksConfig = HooksConfig()

    @field_validator("agents")
    @classmethod
    def _check_agents(cls, value: dict[str, AgentConfig]) -> dict[str, AgentConfig]:
        if not value:
            raise ValueError("is empty: leave it out, or name an agent")
        return check_names(value)

    @field_validator("projects")
    @classmethod
    def _check_projects(cls, value: dict[str, Path]) -> dict[str, Path]:
        if "none" in value:
            raise ValueError("has the name 'none', by which a chat leaves its project")
        for name, directory in value.items():
            try:
                workspace(directory)
            except ValueError as problem:
                raise ValueError(f"{name} {problem}") from None
        return check_names(value)

    @field_validator("channels")
    @classmethod
    def _check_channels(
        cls, value: dict[str, ChannelConfig], info: ValidationInfo
    ) -> dict[str, ChannelConfig]:
        agents = info.data.get("agents", {})
        for name, channel in value.items():
            channel_name(name)
            form = profile_of(name).id_form
            for one in sorted(channel.named_ids()):
                if form and not re.fullmatch(form, one):
                    raise ValueError(
                        f"{name} has {one!r}, which is no id there: ids have the form {form}"
                    )
            for account in accounts_of(channel).values():
                if agents and account.agent is not None and account.agent not in agents:
                    there = ", ".join(map(repr, agents))
                    raise ValueError(f"{name} has the agent {account.agent!r}: there are {there}")
        return value

    def channel(self, name: str) -> ChannelConfig:
        """Return a channel's settings; what the file leaves out is as its profile says."""
        named, profile = self.channels.get(name, ChannelConfig()), profile_of(name)
        unset = {key for key in _OF_PROFILE if key not in named.model_fields_set}
        return named.model_copy(update={key: getattr(profile, key) for key in unset})

    def accounts(self) -> dict[tuple[str, str], AccountConfig]:
        """Return the accounts on chat platforms, by channel and name."""
        return {
            (channel, name): account
            for channel, settings in self.channels.items()
            for name, account in accounts_of(settings).items()
            if not is_gateways(channel)
        }

    def account(self, channel: str, name: str) -> AccountConfig | None:
        """Return an account, also one that each gateway has without a word here."""
        if is_gateways(channel):
            settings = self.channels.get(channel) or ChannelConfig.named(channel)()
            return accounts_of(settings).get(name)
        return self.accounts().get((channel, name))

    def reset_of(self, channel: str, kind: ChatKind) -> ResetConfig:
        """Return when conversations of a kind end by themselves on a channel."""
        if (own := self.channel(channel).reset) is not None:
            return own
        return self.sessions.reset_by_kind.get(kind, self.sessions.reset)

    def agent(self, name: str | None, project: str | None = None) -> tuple[str, AgentConfig]:
        """Return an agent's name and configuration; `None` asks for main, else for the first one.

        In a project, that is its workspace. Raises `ConfigError` for a name that isn't configured.
        """
        wanted = name or ("main" if "main" in self.agents else next(iter(self.agents)))
        if wanted not in self.agents:
            raise ConfigError(
                f"There is no agent {wanted!r}: the configuration has "
                f"{', '.join(map(repr, self.agents))}."
            )
        settings = self.agents[wanted]
        if project is None:
            return wanted, settings
        if project not in self.projects:
            raise ConfigError(
                f"There is no project {project!r} any more, in which this chat works: `/project` "
                "lists those there are."
            )
        return wanted, settings.model_copy(update={"workspace": self.projects[project]})
