"""The seams of the bridge: the session map, the store of files, and its callbacks."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from remoteclaw.events import AgentUsage, PermissionEvent, PlanStep, ToolActivity, ToolResultEvent
from remoteclaw.messages import Attachment, Entry, ReplyPayload, ToolCall, Work
from remoteclaw.protocols.agent import Decision

__all__ = [
    "FORK_OF",
    "SIDE_EFFECTS_FILE",
    "AttachmentStore",
    "BridgeCallbacks",
    "SessionMap",
    "TurnSources",
    "conversation_name",
]

#: Where a turn's tools write what they did besides answering, in the agent's run directory.
SIDE_EFFECTS_FILE = "side-effects.ndjson"


def conversation_name(runtime: str, workspace: str) -> str:
    """Return the name under which a session map keeps a CLI's id of a conversation.

    Another CLI doesn't know the id, and claude finds it in its own directory only.
    """
    return f"{runtime}|{workspace}"


#: How a session map marks the id of another session's conversation: a copy of it is to be made.
FORK_OF = "fork of "


class SessionMap(Protocol):
    """Remembers the CLIs' own session ids of one session."""

    async def get(self, name: str) -> str | None:
        """Return the id kept under a runtime and workspace."""

    async def note(self, name: str) -> str:
        """Return what an agent has noted with that id; nothing if there is none."""

    async def set(self, name: str, session_id: str, note: str = "") -> None:
        """Keep an id, and what the agent has noted with it, for 7 days from now."""

    async def delete(self, name: str) -> None:
        """Forget an id that the CLI no longer knows."""


class AttachmentStore(Protocol):
    """The store of one session's files on their way."""

    async def load(self, attachment: Attachment) -> bytes | None:
        """Return a file's content; None if it is not kept any more."""

    async def store(self, name: str, content: bytes) -> Attachment:
        """Keep a file that the agent sends; raises `RedisRefused` when there is no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSources:
    """What the bridge asks its caller for while a turn runs. All are optional."""

    newcomers: Callable[[], AsyncGenerator[Entry, None]] | None = None
    """Yields the entries that arrive meanwhile, and that the agent is to hear of at once."""
    history: Callable[[], Awaitable[Sequence[Mapping[str, str]]]] | None = None
    """Returns the record of the conversation, for an agent that begins one."""
    effects: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]] | None = None
    """Returns what the turn's tools have done so far, in all attempts at it."""
    denials: Callable[[], Awaitable[Sequence[Mapping[str, str]]]] | None = None
    """Returns the denials whose reason the agent has yet to hear: `tool`, `what`, `by`, `why`."""
    working: Callable[[], Awaitable[Sequence[Work]]] | None = None
    """Returns what works for the session."""
    beside: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]] | None = None
    """Returns what was said in the chat beside the session's turns."""


@dataclass(frozen=True, slots=True)
class BridgeCallbacks:
    """Calls while a turn runs, in the order of the agent's output. All are optional."""

    on_partial_reply: Callable[[ReplyPayload], Awaitable[None]] | None = None
    """A message of the answer is complete and more follows."""
    on_block_reply: Callable[[ReplyPayload], Awaitable[None]] | None = None
    """The last message of the answer, and behind it messages about errors and files."""
    on_tool_result: Callable[[ToolResultEvent], Awaitable[None]] | None = None
    """A tool came back; it is no part of the answer."""
    on_thinking: Callable[[str], None] | None = None
    """More of the model's reasoning; not awaited."""
    on_live_text: Callable[[int, str], None] | None = None
    """The message with this index as far as it has come; not awaited."""
    on_activity: Callable[[tuple[ToolActivity, ...]], None] | None = None
    """The tools that the agent uses at the moment, each time that they change; not awaited."""
    on_tool: Callable[[ToolCall], None] | None = None
    """A tool as far as its call has come, when it begins and when it ends; not awaited."""
    on_plan: Callable[[tuple[PlanStep, ...]], None] | None = None
    """The agent's plan, whole with each change; not awaited."""
    on_usage: Callable[[AgentUsage], None] | None = None
    """The tokens of the turn so far, where the CLI tells them; not awaited."""
    on_permission: Callable[[PermissionEvent], Awaitable[Decision]] | None = None
    """Asks a person whether a tool may be used; the agent waits for it, and the call is cancelled
    when the turn ends. Without it, no one can be asked."""
    on_withdrawn: Callable[[str], Awaitable[None]] | None = None
    """The agent does not wait for that decision any more; it is cancelled then."""
    on_phase: Callable[[str, str], Awaitable[None]] | None = None
    """The attempt reached a phase (spawned, output, tool), with a word about how."""
