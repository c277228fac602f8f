"""The result of a turn: messages for the chat, tool calls, and side effects."""

from dataclasses import dataclass

from remoteclaw.errors import ErrorCategory
from remoteclaw.events import AgentRunResult
from remoteclaw.messages.chat import Attachment

__all__ = ["AgentDeliveryResult", "McpSideEffects", "ReplyPayload", "SentTarget", "ToolCall"]


@dataclass(frozen=True, slots=True)
class ReplyPayload:
    """One message for the chat."""

    text: str
    index: int = 0
    """Its place among the turn's messages, from 0."""
    is_error: bool = False
    reply_to_id: str | None = None
    """The message of the chat that it is to quote, where the agent asked for that."""
    is_ours: bool = False
    """Whether these are RemoteClaw's own words, and not the agent's."""
    attachments: tuple[Attachment, ...] = ()
    """The files that go with it. With one, there may be no text."""
    delivered: bool = False
    """True once a callback took it: it must not be sent again."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool that the agent used in a turn, without secrets."""

    name: str
    input: str
    """Its arguments as JSON, or their beginning."""
    output: str = ""
    """The result, or its beginning."""
    is_error: bool = False
    id: str = ""
    """The CLI's id of the call, which no other call of the turn has."""
    argument: str = ""
    """The argument that tells most, on one short line."""
    since_ms: int = 0
    """Its start, in milliseconds since 1970."""
    seconds: float | None = None
    """Its duration; None while it runs, or where it has not come back."""


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
    """The words of the CLI or of RemoteClaw about a failure, for logs; people read the payloads."""
    reason: str = ""
    """The same on a line and without secrets, for a person who can fix it; else nothing."""
    error_category: ErrorCategory | None = None
    retry_at_ms: int | None = None
    """The time when the provider takes requests again, in milliseconds since 1970, if known."""
    steered: tuple[str, ...] = ()
    """The ids of the entries that came during the turn and that the agent took up."""
    answered: tuple[str, ...] = ()
    """The ids of the entries whose answer was complete before another one began: an error is not
    about them."""
    is_silent: bool = False
    """Whether the agent chose to say nothing."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools that it used, in their order, the last 200."""
