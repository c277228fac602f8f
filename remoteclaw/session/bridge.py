"""The bridge of a session to its agent, built from the current configuration."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from remoteclaw.bridge import ChannelBridge, Hooks, Limits
from remoteclaw.bridge.scrubber import Scrubber, secrets_of
from remoteclaw.config.home import Home
from remoteclaw.config.model import AgentConfig, Config, Price
from remoteclaw.config.model.agents import ANOTHER_AGENT
from remoteclaw.config.tool_policy import listed_tools
from remoteclaw.errors import ConfigError, RemoteClawError
from remoteclaw.fleet.blobs import Blobs, SessionFiles
from remoteclaw.fleet.sessions.session_map import LeasedSessionMap
from remoteclaw.fleet.sessions.state import SessionState
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.messages import Turn
from remoteclaw.protocols import AgentSpec, ModelSetting, Runtime, conversation_name
from remoteclaw.runtimes import COMPACT, create_cli_runtime, detect_runtime
from remoteclaw.session.agent import AgentKeeper
from remoteclaw.session.fallbacks import Candidate, Fallbacks
from remoteclaw.session.identity import SessionIdentity, SessionMemory
from remoteclaw.session.tool_access import ToolAccess
from remoteclaw.tools.catalog import TOOLS

log = logging.getLogger(__name__)


@dataclass(slots=True)
class SessionBridge:
    """A session's connection to its agent, or the reason why it has none."""

    keeper: AgentKeeper
    files: SessionFiles
    channel: ChannelBridge | None = None
    """None if the session's agent is not configured, or its configuration is invalid."""
    working: ChannelBridge | None = None
    """The bridge to the agent that works now: that of `channel`, or a fallback; None as that."""
    fallbacks: Fallbacks | None = None
    """The session's agent and its fallbacks; None if `channel` is None."""
    problem: str = ""
    """The reason why `channel` is None, for logs and outcomes."""
    conversations: frozenset[str] = frozenset()
    """The names that the conversation may have in the session map: for the agent and its fallbacks,
    in the agent's workspace and in each project. Empty if `channel` is None, or
    if a hook may choose another directory."""
    workspace: Callable[[str | None], str] | None = None
    """Returns the agent's directory for a project, or without one (None). Raises `ConfigError` for
    a project that is no longer configured, or has no directory here. None if `channel` is None."""
    task_model: str | None = None
    """The agent's `task_model`."""
    zone: str | None = None
    """The agent's IANA time zone."""
    working_model: str | None = None
    """The model that the agent which works now is asked to use; None for its CLI's default."""
    prices: Mapping[str, Price] = field(default_factory=dict)
    """The prices of models."""
    default_price: Price | None = None
    """The price of the agent's `model`, for a chosen model without a price of its own."""
    memory: SessionMemory | None = None
    """The agent's memory; None if `channel` is None."""
    scrubber: Scrubber = field(default_factory=Scrubber)
    """Hides the secrets of the configuration."""

    @property
    def can_steer(self) -> bool:
        """Whether the agent accepts messages during its turn."""
        return self.working is not None and self.working.can_steer

    @property
    def can_aside(self) -> bool:
        """Whether the agent can answer asides."""
        return self.working is not None and bool(self.working.asides)

    @property
    def explains_denial(self) -> bool:
        """Whether the agent receives the reason together with a denial."""
        return self.working is not None and self.working.explains_denial

    @property
    def price(self) -> Price | None:
        """The price of the model that works now; None without one."""
        return self.prices.get(self.working_model or "", self.default_price)

    def model_of(self, turn: Turn, state: SessionState) -> tuple[str | None, ModelSetting]:
        """Return the model of a turn, and the setting that has it; None for the agent's `model`."""
        is_about_person = any(entry.origin == "chat" for entry in turn.entries)
        if state.model:
            return state.model, "/model"
        if state.is_background and (state.key.task or not is_about_person):
            return self.task_model, "task_model" if self.task_model else "model"
        return None, "model"

    def keep_of(self, turn: Turn) -> str | None:
        """Return what the summary is to keep that a person asks for with `/compact`, may be empty.

        None if the turn is no such command, or the agent has no summaries.
        """
        if self.channel is None or not self.channel.can_compact or not turn.is_command:
            return None
        name, _, keep = turn.entries[0].message.text.partition(" ")
        return keep.strip() if name == COMPACT else None

    async def aclose(self) -> None:
        """End an agent that is not parked, and wait for the hooks of finished turns."""
        await self.keeper.abandon()
        for channel in self.fallbacks.channels if self.fallbacks else ():
            await channel.settle()


def open_bridge(
    blobs: Blobs, lease: Lease, config: Config, home: Home, hooks: Hooks
) -> SessionBridge:
    """Return the bridge to a session's agent; if it can't be built, one with a `problem`."""
    try:
        return _bridge(blobs, lease, config, home, hooks)
    except RemoteClawError as problem:
        log.error("session %s: %s", lease.sid[:8], problem)
        access = ToolAccess(lease, transport="http")
        keeper = _keeper(lease, config, home, access, warm_s=0)
        return SessionBridge(keeper, SessionFiles(blobs, lease), problem=str(problem))


def _bridge(blobs: Blobs, lease: Lease, config: Config, home: Home, hooks: Hooks) -> SessionBridge:
    agent, settings = config.agent(lease.session.agent)
    access = ToolAccess(lease, transport=settings.mcp_transport)
    # A task's session is rarely used again, so its agent makes room for those of conversations.
    warm_s = 0.0 if lease.session.task else settings.warm_s
    keeper = _keeper(lease, config, home, access, warm_s=warm_s)
    files = SessionFiles(blobs, lease)
    secrets = frozenset(secrets_of(config))

    def channel_of(spec: AgentSpec, runtime: Runtime, *, agent: str) -> ChannelBridge:
        return ChannelBridge(
            spec,
            runtime=runtime,
            agents=keeper,
            session_map=LeasedSessionMap(lease),
            channel=config.channel_of(lease.session),
            zone=config.timezone_of(agent),
            hooks=hooks,
            attachments=files,
            identity=SessionIdentity(lease, config, home),
            limits=Limits(settings.start_s, settings.stall_s, settings.turn_s),
            secrets=secrets,
            home=home,
            launch_of=lease.state.launch_of[0],
            agent=agent,
        )

    runtime = create_cli_runtime(settings.runtime or detect_runtime()[0])
    spec = AgentSpec(
        **_of_cli(settings, runtime),
        workspace=str(home.workspace(agent, settings)),
        permissions=settings.permissions,
        allow=settings.allow,
        inherit_mcp=settings.inherit_mcp,
        trust_workspace=settings.trust_workspace,
        mcp_servers=settings.servers(),
        tools=_tools(lease, config) if access.is_available else None,
        own_server=home.server_name(lease.state.launch_of[0].sid),
        branch=settings.branches if lease.state.is_branch else "",
    )
    channel = channel_of(spec, runtime, agent=agent)
    candidates = [Candidate("", agent, None, spec, runtime, channel)]
    for fallback in settings.fallbacks:
        if not fallback.startswith(ANOTHER_AGENT):
            candidates.append(Candidate(fallback, agent, fallback, spec, runtime, channel))
            continue
        name, other = config.agent(fallback.removeprefix(ANOTHER_AGENT))
        cli = create_cli_runtime(other.runtime or detect_runtime()[0])
        theirs = spec_in_place_of(spec, other, cli)
        in_place = channel_of(theirs, cli, agent=name)
        candidates.append(Candidate(fallback, name, None, theirs, cli, in_place))

    def workspace_in(project: str | None) -> str:
        return str(home.workspace(*config.agent(agent, project)))

    def existing_workspace(project: str | None) -> str:
        directory = workspace_in(project)
        if project is not None and not Path(directory).is_dir():
            raise ConfigError(
                f"This chat works in the project {project!r}, whose directory is not on this "
                "computer: create it, or return to the workspace with `/project none`."
            )
        return directory

    conversations = {
        conversation_name(each.agent, each.runtime.name, workspace_in(project))
        for each in candidates
        for project in (None, *config.projects)
        if "before_runtime_spawn" not in hooks  # it may choose another directory
    }
    return SessionBridge(
        keeper,
        files,
        channel,
        working=channel,
        fallbacks=Fallbacks(lease, candidates, home.host_id),
        conversations=frozenset(conversations),
        workspace=existing_workspace,
        task_model=settings.task_model,
        zone=config.timezone_of(agent),
        working_model=settings.model,
        prices=config.prices,
        default_price=config.prices.get(settings.model or ""),
        memory=SessionMemory(lease, config, home),
        scrubber=Scrubber(secrets),
    )


def spec_in_place_of(spec: AgentSpec, settings: AgentConfig, runtime: Runtime) -> AgentSpec:
    """Return the spec of another agent that works in place of the one with `spec`.

    It has its own CLI, environment and model, and the rights of the first one. Of the CLI's own
    servers and of the workspace's files it gets no more than both may have.
    """
    return replace(
        spec,
        **_of_cli(settings, runtime),
        inherit_mcp=spec.inherit_mcp and settings.inherit_mcp,
        trust_workspace=spec.trust_workspace and settings.trust_workspace,
    )


def _of_cli(settings: AgentConfig, runtime: Runtime) -> dict[str, Any]:
    """Return those values of an agent's spec that are about its CLI."""
    return {
        "runtime": runtime.name,
        "command": tuple(settings.command or runtime.command),
        "env": runtime.environment(os.environ) | settings.variables(os.environ),
        "model": settings.model,
    }


def _tools(lease: Lease, config: Config) -> tuple[str, ...]:
    session, limits = lease.state.launch_of
    return tuple(sorted(listed_tools(config, session, TOOLS.values(), limits)))


def _keeper(
    lease: Lease, config: Config, home: Home, access: ToolAccess, *, warm_s: float
) -> AgentKeeper:
    return AgentKeeper(
        home,
        epoch=int(lease.epoch),
        kill_at=lambda: lease.kill_at,
        warm_s=warm_s,
        budget=config.fleet,
        parked=lease.state.agent_process,
        finished_turn=lease.state.finished_turn,
        tool_access=access,
    )
