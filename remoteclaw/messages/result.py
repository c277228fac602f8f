"""The result of a turn: messages for the chat, tool calls, and side effects."""

from dataclasses import dataclass

from remoteclaw.errors import ErrorCategory
from remoteclaw.events import AgentRunResult, CompactionEvent
from remoteclaw.messages.chat import Attachment

__all__ = ["AgentDeliveryResult", "McpSideEffects", "ReplyPayload", "SentTarget", "ToolCall"]


@dataclass(frozen=True, slots=True)
class ReplyPayload:
    """One message for the chat."""

    text: str
    index: int = 0
    """The position among the turn's messages, from 0."""
    is_error: bool = False
    reply_to_id: str | None = None
    """The id of the chat's message that this one quotes, if the agent asked for a quote."""
    is_ours: bool = False
    """Whether RemoteClaw wrote the text, and not the agent."""
    attachments: tuple[Attachment, ...] = ()
    """The files of the message. A message with files may have no text."""
    code_file_lines: int = 0
    """A longer code block of the text is shown as its beginning and a file; 0 for none."""
    delivered: bool = False
    """True once a callback took the message: it must not be sent again."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of the agent in a turn, without secrets."""

    name: str
    input: str
    """The arguments as JSON, or their beginning."""
    output: str = ""
    """The result, or its beginning."""
    is_error: bool = False
    id: str = ""
    """The CLI's id of the call, unique within the turn."""
    argument: str = ""
    """The most informative argument, on one short line."""
    since_ms: int = 0
    """The start of the call, in milliseconds since 1970."""
    seconds: float | None = None
    """The duration of the call; None while it runs, or if no result arrived."""


@dataclass(frozen=True, slots=True)
class SentTarget:
    """The target of a message that a tool sent during a turn."""

    tool: str
    provider: str
    account_id: str | None = None
    to: str | None = None


@dataclass(frozen=True, slots=True)
class McpSideEffects:
    """The side effects of the turn's tools."""

    sent_texts: tuple[str, ...] = ()
    sent_media_urls: tuple[str, ...] = ()
    sent_targets: tuple[SentTarget, ...] = ()
    cron_adds: int = 0


@dataclass(frozen=True, slots=True)
class AgentDeliveryResult:
    """The result of `ChannelBridge.handle()`."""

    payloads: tuple[ReplyPayload, ...]
    run: AgentRunResult
    mcp: McpSideEffects
    error: str | None = None
    """The message of the CLI or of RemoteClaw about a failure, for logs; people read the
    payloads."""
    reason: str = ""
    """The same message on one line and without secrets, for a person who can fix the failure; empty
    if there is no such message."""
    error_category: ErrorCategory | None = None
    retry_at_ms: int | None = None
    """The time at which the provider accepts requests again, in milliseconds since 1970; None if
    unknown."""
    steered: tuple[str, ...] = ()
    """The ids of the entries that arrived during the turn and that the agent took up."""
    answered: tuple[str, ...] = ()
    """The ids of the entries whose answer was complete before the agent began the next answer: a
    later error of the turn does not concern them."""
    is_silent: bool = False
    """Whether the agent chose not to reply."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The turn's tool calls in order, at most the last 200."""
    is_stuck: bool = False
    """Whether the failure may be due to the earlier conversation, so that it would recur if the
    message were asked again."""
    conversation: str = ""
    """The conversation that has the turn, by its name in the session map; empty if the agent was
    not asked."""
    compaction: CompactionEvent | None = None
    """The last compaction of the conversation in this turn that is done; None if there is none."""
