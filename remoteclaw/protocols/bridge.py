"""The protocols of the bridge: the session map, the store of files, its sources and callbacks."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from remoteclaw.events import AgentUsage, PermissionEvent, PlanStep, ToolActivity, ToolResultEvent
from remoteclaw.messages import Attachment, Entry, ReplyPayload, TaskStatus, ToolCall
from remoteclaw.protocols.launch import Decision

__all__ = [
    "FORK_OF",
    "SIDE_EFFECTS_FILE",
    "AttachmentStore",
    "BridgeCallbacks",
    "SessionMap",
    "TurnSources",
    "conversation_name",
]

#: The file in the agent's run directory to which a turn's tools write their side effects.
SIDE_EFFECTS_FILE = "side-effects.ndjson"


def conversation_name(runtime: str, workspace: str) -> str:
    """Return the name under which a session map stores a CLI's id of a conversation.

    It contains the CLI and the directory, because another CLI doesn't know the id, and claude finds
    a conversation only in its own directory.
    """
    return f"{runtime}|{workspace}"


#: The prefix of an id in a session map that belongs to another session's conversation, which is to
#: be copied.
FORK_OF = "fork of "


class SessionMap(Protocol):
    """Stores the CLIs' own ids of one session's conversations."""

    async def get(self, name: str) -> str | None:
        """Return the id stored under a `conversation_name()`; None if there is none."""

    async def note(self, name: str) -> str:
        """Return the note that is stored with the id; empty if there is none."""

    async def set(self, name: str, session_id: str, note: str = "") -> None:
        """Store an id with the agent's note, for 7 days from now."""

    async def delete(self, name: str) -> None:
        """Delete an id that the CLI no longer knows."""


class AttachmentStore(Protocol):
    """The store of the files that one session receives and sends."""

    async def load(self, attachment: Attachment) -> bytes | None:
        """Return the content of a file; None if it is no longer stored."""

    async def store(self, name: str, content: bytes) -> Attachment:
        """Store a file that the agent sends; raises `RedisRefused` if there is no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSources:
    """The functions with which the bridge asks its caller during a turn. All are optional."""

    newcomers: Callable[[], AsyncGenerator[Entry, None]] | None = None
    """Yields entries that arrive during the turn and that the agent should get at once."""
    history: Callable[[], Awaitable[Sequence[Mapping[str, str]]]] | None = None
    """Returns the record of the conversation, for an agent that begins a new one."""
    effects: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]] | None = None
    """Returns the side effects of the turn's tools so far, in all attempts at the turn."""
    denials: Callable[[], Awaitable[Sequence[Mapping[str, str]]]] | None = None
    """Returns the denials whose reason the agent doesn't know yet: `tool`, `what`, `by`, `why`."""
    tasks: Callable[[], Awaitable[Sequence[TaskStatus]]] | None = None
    """Returns the session's unfinished tasks and branches."""
    aside_notes: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]] | None = None
    """Returns the notes about asides that the agent doesn't know yet."""
    is_earlier_message: Callable[[str], Awaitable[bool]] | None = None
    """Returns whether a person has sent the message with an id earlier in the conversation."""


@dataclass(frozen=True, slots=True)
class BridgeCallbacks:
    """Functions that the bridge calls during a turn, in the order of the agent's output.

    All are optional. The bridge awaits those that return an awaitable; the others must not block.
    """

    on_partial_reply: Callable[[ReplyPayload], Awaitable[None]] | None = None
    """Called with each complete message of the answer except the last."""
    on_block_reply: Callable[[ReplyPayload], Awaitable[None]] | None = None
    """Called with the last message of the answer, and after it with messages about errors and
    files."""
    on_tool_result: Callable[[ToolResultEvent], Awaitable[None]] | None = None
    """Called with the result of a tool, which is no part of the answer."""
    on_thinking: Callable[[str], None] | None = None
    """Called with each new piece of the model's reasoning."""
    on_live_text: Callable[[int, str], None] | None = None
    """Called with the index of a message and its partial text."""
    on_activity: Callable[[tuple[ToolActivity, ...]], None] | None = None
    """Called with the running tools after each change of them."""
    on_tool: Callable[[ToolCall], None] | None = None
    """Called with the state of a tool call, when the call begins and when it ends."""
    on_plan: Callable[[tuple[PlanStep, ...]], None] | None = None
    """Called with the agent's whole plan after each change of it."""
    on_usage: Callable[[AgentUsage], None] | None = None
    """Called with the tokens of the turn so far, if the CLI reports them."""
    on_permission: Callable[[PermissionEvent], Awaitable[Decision]] | None = None
    """Asks a person whether a tool may be used, while the agent waits; cancelled when the turn
    ends. Without this function, nobody can be asked."""
    on_withdrawn: Callable[[str], Awaitable[None]] | None = None
    """Called with the id of a permission for which the agent no longer waits; `on_permission` is
    cancelled then."""
    on_phase: Callable[[str, str], Awaitable[None]] | None = None
    """Called with a phase that the attempt reaches (`spawned`, `output`, `tool`), and a detail."""
