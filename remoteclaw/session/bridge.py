"""The bridge of a session to its agent, built from the current configuration."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from remoteclaw.bridge import ChannelBridge, Hooks, Limits
from remoteclaw.bridge.scrubber import Scrubber, secrets_of
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config, Price
from remoteclaw.config.tool_policy import listed_tools
from remoteclaw.errors import RemoteClawError
from remoteclaw.fleet.blobs import Blobs, SessionFiles
from remoteclaw.fleet.sessions.session_map import LeasedSessionMap
from remoteclaw.fleet.sessions.state import SessionState
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.messages import Turn
from remoteclaw.protocols import AgentSpec, ModelSetting, conversation_name
from remoteclaw.runtimes import create_cli_runtime, detect_runtime
from remoteclaw.session.agent import AgentKeeper
from remoteclaw.session.identity import SessionIdentity, SessionMemory
from remoteclaw.session.tool_access import ToolAccess
from remoteclaw.tools.catalog import TOOLS

log = logging.getLogger(__name__)


def _no_price(model: str | None) -> Price | None:
    return None


@dataclass(frozen=True, slots=True)
class SessionBridge:
    """A session's connection to its agent, or the reason why it has none."""

    keeper: AgentKeeper
    files: SessionFiles
    channel: ChannelBridge | None = None
    """None if the session's agent is not configured, or its configuration is invalid."""
    problem: str = ""
    """The reason why `channel` is None, for logs and outcomes."""
    conversations: frozenset[str] = frozenset()
    """The names that the conversation may have in the session map: for the agent's workspace and
    for each project. Empty if `channel` is None, or if a hook may choose another directory."""
    workspace: Callable[[str | None], str] | None = None
    """Returns the agent's directory for a project, or without one (None). Raises `ConfigError` for
    a project that is no longer configured. None if `channel` is None."""
    task_model: str | None = None
    """The agent's `task_model`."""
    zone: str | None = None
    """The agent's IANA time zone."""
    price_of: Callable[[str | None], Price | None] = _no_price
    """Returns the price of the model that was chosen for the conversation, or of the agent's own
    (None); None without one."""
    memory: SessionMemory | None = None
    """The agent's memory; None if `channel` is None."""
    scrubber: Scrubber = field(default_factory=Scrubber)
    """Hides the secrets of the configuration."""

    @property
    def can_steer(self) -> bool:
        """Whether the agent accepts messages during its turn."""
        return self.channel is not None and self.channel.can_steer

    @property
    def can_aside(self) -> bool:
        """Whether the agent can answer asides."""
        return self.channel is not None and bool(self.channel.asides)

    @property
    def explains_denial(self) -> bool:
        """Whether the agent receives the reason together with a denial."""
        return self.channel is not None and self.channel.explains_denial

    def model_of(self, turn: Turn, state: SessionState) -> tuple[str | None, ModelSetting]:
        """Return the model of a turn, and the setting that has it; None for the agent's `model`."""
        is_about_person = any(entry.origin == "chat" for entry in turn.entries)
        if state.model:
            return state.model, "/model"
        if state.is_background and (state.key.task or not is_about_person):
            return self.task_model, "task_model" if self.task_model else "model"
        return None, "model"

    async def aclose(self) -> None:
        """End an agent that is not parked, and wait for the hooks of finished turns."""
        await self.keeper.abandon()
        if self.channel:
            await self.channel.settle()


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
    runtime = create_cli_runtime(settings.runtime or detect_runtime()[0])
    workspace = str(home.workspace(agent, settings))
    access = ToolAccess(lease, transport=settings.mcp_transport)
    # A task's session is rarely used again, so its agent makes room for those of conversations.
    warm_s = 0.0 if lease.session.task else settings.warm_s
    keeper = _keeper(lease, config, home, access, warm_s=warm_s)
    spec = AgentSpec(
        runtime=runtime.name,
        command=tuple(settings.command or runtime.command),
        workspace=workspace,
        env=runtime.environment(os.environ) | settings.variables(os.environ),
        model=settings.model,
        permissions=settings.permissions,
        allow=settings.allow,
        inherit_mcp=settings.inherit_mcp,
        trust_workspace=settings.trust_workspace,
        mcp_servers=settings.servers(),
        tools=_tools(lease, config) if access.is_available else None,
        own_server=home.server_name(lease.state.launch_of[0].sid),
        branch=settings.branches if lease.state.is_branch else "",
    )
    files = SessionFiles(blobs, lease)
    secrets = frozenset(secrets_of(config))
    bridge = ChannelBridge(
        spec,
        runtime=runtime,
        agents=keeper,
        session_map=LeasedSessionMap(lease),
        channel=config.channel_of(lease.session),
        zone=settings.timezone,
        hooks=hooks,
        attachments=files,
        identity=SessionIdentity(lease, config, home),
        limits=Limits(settings.start_s, settings.stall_s, settings.turn_s),
        secrets=secrets,
        home=home,
        launch_of=lease.state.launch_of[0],
    )

    def workspace_in(project: str | None) -> str:
        return str(home.workspace(*config.agent(agent, project)))

    conversations = {
        conversation_name(agent, runtime.name, workspace_in(project))
        for project in (None, *config.projects)
        if "before_runtime_spawn" not in hooks  # it may choose another directory
    }
    return SessionBridge(
        keeper,
        files,
        bridge,
        conversations=frozenset(conversations),
        workspace=workspace_in,
        task_model=settings.task_model,
        zone=settings.timezone,
        price_of=lambda model: config.prices.get(model or settings.model or ""),
        memory=SessionMemory(lease, config, home),
        scrubber=Scrubber(secrets),
    )


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
