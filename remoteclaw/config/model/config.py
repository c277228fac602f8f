"""The configuration as a whole."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from remoteclaw.config.model.agents import AgentConfig, workspace
from remoteclaw.config.model.budgets import Budget, PersonConfig, Price
from remoteclaw.config.model.channels import (
    AccountConfig,
    ChannelConfig,
    SecretsConfig,
    accounts_of,
)
from remoteclaw.config.model.fleet import FleetConfig
from remoteclaw.config.model.gateway import GatewayConfig
from remoteclaw.config.model.hooks import HooksConfig
from remoteclaw.config.model.queue import QueueConfig, QueueOverride
from remoteclaw.config.model.redis import RedisConfig
from remoteclaw.config.model.requests import AskingSection, RequestsConfig
from remoteclaw.config.model.section import check_names
from remoteclaw.config.model.sessions import RecordConfig, ResetConfig, SessionsConfig
from remoteclaw.config.model.terminals import TerminalsConfig
from remoteclaw.config.model.tools import ToolsConfig
from remoteclaw.config.rights import BY_AGENTS, BY_PEOPLE
from remoteclaw.errors import ConfigError
from remoteclaw.messages import SHOWN_CHARS, ChatKind, ChatPlace, SessionKey, channel_name, person
from remoteclaw.profiles import id_problem, profile_of, runs_in_gateway

#: The settings of a channel whose defaults are in its profile instead of in `ChannelConfig`.
_PROFILE_SETTINGS = (
    *("chunk_limit", "chunk_unit", "code_file_lines", "formatting"),
    *("attachment_mb", "attachment_types"),
)


class Config(AskingSection):
    """All settings."""

    redis: RedisConfig = RedisConfig()
    gateway: GatewayConfig = GatewayConfig()
    fleet: FleetConfig = FleetConfig()
    agents: Annotated[dict[str, AgentConfig], BY_PEOPLE] = Field(
        default_factory=lambda: {"main": AgentConfig()}
    )
    """The agents, by name. Messages go to the agent `main`, or to the first one if there is no
    `main`, unless the sender or the account names another agent."""
    projects: Annotated[dict[str, Path], BY_PEOPLE] = Field(default_factory=dict)
    """Directories, by name, in which agents can work instead of in their workspace, such as
    `web = "~/code/web"`. A path is absolute or begins with ~. With `/project NAME`, an owner has
    the agent of a chat work in the project; the agent's `permissions`, `trust_workspace` and other
    settings then apply to the project."""
    channels: Annotated[dict[str, ChannelConfig], BY_AGENTS] = Field(default_factory=dict)
    """The channels, by name."""
    people: Annotated[dict[str, PersonConfig], BY_PEOPLE] = Field(default_factory=dict)
    """The people, by name. A person without a section is known by each id alone."""
    budgets: Annotated[tuple[Budget, ...], BY_PEOPLE] = Field(default=(), max_length=100)
    """The budgets."""
    prices: Annotated[dict[str, Price], BY_PEOPLE] = Field(default_factory=dict)
    """The prices of models, by the name that the CLI gets."""
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    """Which of RemoteClaw's tools all agents may use."""
    requests: RequestsConfig = RequestsConfig()
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
        for name in value:
            _check_fallbacks(value, name)
        return check_names(value)

    @field_validator("people")
    @classmethod
    def _check_people(cls, value: dict[str, PersonConfig]) -> dict[str, PersonConfig]:
        return check_names(value)

    @field_validator("budgets", mode="before")
    @classmethod
    def _check_budgets(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError("is no list: write each budget as [[budgets]], in double brackets")
        return value

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
            for id_ in sorted(channel.named_ids()):
                if problem := id_problem(name, id_, "group" if id_ in channel.groups else "id"):
                    raise ValueError(f"{name} has {id_!r}, {problem}")
            accounts = [account.agent for account in accounts_of(channel).values()]
            for agent in (*accounts, *(group.agent for group in channel.groups.values())):
                if agents and agent is not None and agent not in agents:
                    names = ", ".join(map(repr, agents))
                    raise ValueError(f"{name} has the agent {agent!r}: there are {names}")
        return value

    def person_of(self, provider: str, id_: str) -> str:
        """Return the name of a person in `people`, else `provider:id`.

        A person of the channel `cli`, on which `send` may write, is the one of that id on `web`.
        """
        wanted = person("web" if provider == "cli" else provider, id_)
        named = (name for name, each in self.people.items() if wanted in each.ids)
        return next(named, wanted)

    def channel(self, name: str) -> ChannelConfig:
        """Return the settings of a channel, with its profile's defaults for keys that are unset."""
        settings, profile = self.channels.get(name, ChannelConfig()), profile_of(name)
        unset = {key for key in _PROFILE_SETTINGS if key not in settings.model_fields_set}
        settings = settings.model_copy(update={key: getattr(profile, key) for key in unset})
        takes_files = settings.attachment_mb > 0 and "*" in settings.attachment_types
        has_room = settings.chunk_limit >= 2 * SHOWN_CHARS
        if not (profile.code_file_lines and takes_files and has_room):
            settings = settings.model_copy(update={"code_file_lines": 0})
        return settings

    def timezone_of(self, agent: str) -> str | None:
        """Return the time zone of an agent's clock and schedules; None for the host's."""
        settings = self.agents.get(agent)
        return (settings and settings.timezone) or self.fleet.timezone

    def channel_of(self, session: SessionKey) -> ChannelConfig:
        """Return the settings of the channel of a session."""
        return self.channel(session.provider)

    def knowing(self, place: ChatPlace, within: tuple[str, ...]) -> "Config":
        """Return the configuration with the ids of what contains a chat, narrowest first.

        The tables of `groups` for these ids then apply to the chat.
        """
        if not within or place.provider not in self.channels:
            return self
        channel = self.channels[place.provider].knowing(place.chat, within)
        return self.model_copy(update={"channels": {**self.channels, place.provider: channel}})

    def queue_of(self, session: SessionKey, own: QueueOverride | None) -> QueueConfig:
        """Return the queue settings of a session, which may have some of its `own`."""
        return self.queue.of(session.provider, own)

    def accounts(self) -> dict[tuple[str, str], AccountConfig]:
        """Return the accounts that have an adapter, by channel and account name."""
        return {
            (channel, name): account
            for channel, settings in self.channels.items()
            for name, account in accounts_of(settings).items()
            if not runs_in_gateway(channel)
        }

    def without_account(self) -> Mapping[str, str]:
        """Return what to do for each channel whose section names no account's secrets, by name."""
        problems: dict[str, str] = {}
        for name, channel in self.channels.items():
            if isinstance(channel, SecretsConfig) and not accounts_of(channel):
                places = ", and ".join(f"{each}_file or {each}_env" for each in channel.secrets)
                problems[name] = f"[channels.{name}] has no account: set {places}."
        return problems

    def account(self, channel: str, name: str) -> AccountConfig | None:
        """Return an account, or None if there is none of that name.

        Gateways run the accounts of some channels, such as `web`, without any configuration: such
        an account has default settings where the file has none.
        """
        if runs_in_gateway(channel):
            settings = self.channels.get(channel) or ChannelConfig.named(channel)()
            return accounts_of(settings).get(name)
        return self.accounts().get((channel, name))

    def reset_of(self, channel: str, kind: ChatKind) -> ResetConfig:
        """Return the rules by which conversations in a kind of chat on a channel end by time."""
        if (own := self.channel(channel).reset) is not None:
            return own
        return self.sessions.reset_by_kind.get(kind, self.sessions.reset)

    def agent(self, name: str | None, project: str | None = None) -> tuple[str, AgentConfig]:
        """Return the name and the settings of an agent.

        If `name` is None, that is the agent `main`, or the first agent if there is no `main`. If
        `project` is given, `workspace` in the settings is the project's directory. Raises
        `ConfigError` if the agent or the project isn't configured.
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
                f"This chat works in the project {project!r}, which is no longer configured: "
                "`/project` lists the projects."
            )
        return wanted, settings.model_copy(update={"workspace": self.projects[project]})


def _check_fallbacks(agents: Mapping[str, AgentConfig], name: str) -> None:
    """Raise ValueError if an agent's fallbacks name an unknown agent, or lead back to it.

    Fallbacks of a fallback are never asked, so two agents that name each other would work. But the
    one that stands in would then look as if somebody stood in for it as well.
    """
    for other in agents[name].fallback_agents:
        if other not in agents:
            known = ", ".join(map(repr, agents))
            raise ValueError(
                f"{name}.fallbacks has 'agent:{other}', which is no agent: there are {known}"
            )
        if other == name:
            raise ValueError(f"{name}.fallbacks has 'agent:{name}', the agent itself: take it out")
    paths = [[name, other] for other in agents[name].fallback_agents]
    while paths:
        path = paths.pop()
        for other in agents[path[-1]].fallback_agents if path[-1] in agents else ():
            if other == name:
                circle = " → ".join((*path, name))
                raise ValueError(
                    f"{name}.fallbacks is part of a circle, {circle}: take one out, or name "
                    f"an agent without fallbacks, such as a second section like {path[-1]}"
                )
            if other not in path:
                paths.append([*path, other])
