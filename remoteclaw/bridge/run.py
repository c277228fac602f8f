"""The state of one turn in the bridge, which its ten steps share."""

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from remoteclaw.bridge.attachments import GivenFile
from remoteclaw.bridge.delivery import Delivered, DeliveryAdapter
from remoteclaw.bridge.failures import may_be_of_conversation
from remoteclaw.bridge.hooks import Hooks
from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.bridge.side_effects import SideEffectsReader
from remoteclaw.bridge.time_limits import Limits
from remoteclaw.config.home import Home
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import Overdue
from remoteclaw.events import AgentRunResult, ErrorEvent
from remoteclaw.messages import (
    AgentDeliveryResult,
    ChannelMessage,
    McpSideEffects,
    SessionKey,
    Turn,
)
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import (
    NOTHING_SEEN,
    AgentIdentity,
    AgentProcess,
    Agents,
    AgentSpec,
    AttachmentStore,
    BridgeCallbacks,
    Conversation,
    IdentitySource,
    ModelSetting,
    Runtime,
    SessionMap,
    TurnSources,
    conversation_name,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The arguments of a `ChannelBridge`, which are the same for all of its turns."""

    spec: AgentSpec
    runtime: Runtime
    agents: Agents
    session_map: SessionMap
    channel: ChannelConfig
    zone: str | None
    hooks: Hooks
    attachments: AttachmentStore | None
    limits: Limits
    identity: IdentitySource | None
    secrets: Collection[str]
    home: Home
    launch_of: SessionKey | None
    agent: str


@dataclass(slots=True)
class Run:
    """The state of one turn."""

    setup: Setup
    turn: Turn
    spec: AgentSpec
    """The agent's spec: the bridge's template, completed by steps 1 to 3; step 5 sets its note."""
    delivery: DeliveryAdapter
    callbacks: BridgeCallbacks
    messages: dict[str, ChannelMessage]
    """The messages that the agent has seen, by entry."""
    abort: asyncio.Event = field(default_factory=asyncio.Event)
    sources: TurnSources = field(default_factory=TurnSources)
    used_s: float = 0.0
    started: float = field(default_factory=time.monotonic)
    people_s: float = 0.0
    """For how long the turn has waited for people, which is not work."""
    known: Conversation | None = None
    """The conversation as the session map has it; None if the agent begins one."""
    session_id: str | None = None
    """The CLI's own id of the conversation; None if the conversation has none yet."""
    fork_of: str | None = None
    """The CLI's id of the conversation that this one begins as a copy of; None if it is no copy."""
    begins_conversation: bool = False
    """Whether the agent begins a conversation with this turn."""
    begins_anew: bool = False
    """Whether the agent begins a conversation although there is one, which the new one replaces
    once the model has answered in it."""
    identity: AgentIdentity = field(default_factory=AgentIdentity)
    """The operator's texts in the system prompt, which the conversation keeps."""
    identity_mark: str = ""
    """What is stored of the identity with the conversation (`Conversation.identity`)."""
    is_identity_kept: bool = False
    """Whether other processes can read the identity by its digest."""
    tells_memory: bool = False
    """Whether the agent gets its memory with this turn."""
    model_setting: ModelSetting = "model"
    """Where the model was chosen."""
    scrubber: Scrubber = field(default_factory=Scrubber)
    """Hides the secrets of the turn's agent."""
    agent: AgentProcess | None = None
    is_asked: bool = False
    """Whether the agent has received the prompt; only then can it answer asides."""
    side_effects: SideEffectsReader | None = None
    delivered: Delivered = field(default_factory=Delivered)
    result: AgentRunResult = field(default_factory=AgentRunResult)
    error: ErrorEvent | None = None
    reason: str = ""
    """The CLI's message about the error, for a person at this computer; else empty."""
    overdue: Overdue | None = None
    """The time limit that the turn has exceeded; None if none."""
    given: dict[str, list[GivenFile]] = field(default_factory=dict)
    """The files of messages that joined the turn, by entry."""
    tool_effects: McpSideEffects = field(default_factory=McpSideEffects)
    repeated_by_tool: frozenset[int] = frozenset()
    """The indexes of messages that a tool has already sent to the same chat."""

    @property
    def map_name(self) -> str:
        """The conversation's name in the session map."""
        agent = self.setup.agent or self.turn.session.agent
        return conversation_name(agent, self.setup.runtime.name, self.spec.workspace)

    async def remember(self, session_id: str, note: str) -> None:
        """Store the CLI's id of the conversation, its note, and its identity."""
        source, mark = self.setup.identity, self.identity_mark
        if source and mark and not self.is_identity_kept:
            self.is_identity_kept = await source.keep(self.identity)
        mark = mark if self.is_identity_kept else ""
        known = self.known or Conversation("", seen=NOTHING_SEEN)
        self.known = replace(known, id=session_id, note=note, identity=mark)
        await self.setup.session_map.set(self.map_name, self.known)

    @property
    def is_command(self) -> bool:
        """Whether the turn is a command of the agent's CLI, which gets it without a header."""
        return self.turn.is_command and self.setup.runtime.capabilities.takes_commands

    @property
    def is_local(self) -> bool:
        """Whether the chat is used at this computer, by a person who can fix its settings."""
        return profile_of(self.turn.place.provider).is_local

    def outcome(self) -> AgentDeliveryResult:
        """Return the result of the turn."""
        payloads, error = self.delivery.payloads, self.error
        return AgentDeliveryResult(
            payloads=tuple(p for p in payloads if p.index not in self.repeated_by_tool),
            run=self.result,
            mcp=self.tool_effects,
            error=error.detail if error else None,
            reason=self.reason,
            error_category=error.category if error else None,
            retry_at_ms=error.retry_at_ms if error else None,
            steered=self.delivered.steered,
            is_silent=self.delivered.is_silent or bool(self.repeated_by_tool),
            tool_calls=self.delivered.tool_calls,
            answered=self.delivered.answered,
            is_stuck=error is not None
            and not self.begins_conversation
            and not self.is_command
            and may_be_of_conversation(error),
            conversation=self.map_name if self.is_asked else "",
            compaction=self.delivered.compaction,
        )
