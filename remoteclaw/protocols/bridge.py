"""The protocols of the bridge: the session map, the store of files, its sources and callbacks."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol, Self

import orjson

from remoteclaw.events import AgentUsage, PermissionEvent, PlanStep, ToolActivity, ToolResultEvent
from remoteclaw.messages import Attachment, Entry, ReplyPayload, TaskStatus, ToolCall, key_part
from remoteclaw.protocols.launch import Decision

__all__ = [
    "FORK_OF",
    "NOTHING_SEEN",
    "SIDE_EFFECTS_FILE",
    "UNTOLD",
    "AttachmentStore",
    "BridgeCallbacks",
    "Conversation",
    "SessionMap",
    "TurnSources",
    "conversation_name",
    "parts_of_name",
]

#: The file in the agent's run directory to which a turn's tools write their side effects.
SIDE_EFFECTS_FILE = "side-effects.ndjson"


def conversation_name(agent: str, runtime: str, workspace: str) -> str:
    """Return the name under which a session map stores a CLI's conversation.

    It contains the agent, because two agents of a session may have the same CLI, the CLI, because
    another one doesn't know the id, and the directory, because claude finds a conversation only in
    its own directory.
    """
    return f"{key_part(agent)}|{runtime}|{workspace}"


def parts_of_name(name: str) -> tuple[str, str, str]:
    """Return the agent, the runtime and the directory in a `conversation_name()`.

    The agent is empty in a name of an earlier version, which begins with the runtime.
    """
    first, second, *rest = name.split("|", 2)
    if not rest or second.startswith("/"):
        return "", first, "|".join((second, *rest))
    return first, second, rest[0]


#: The prefix of an id in a session map that belongs to another session's conversation, which is to
#: be copied.
FORK_OF = "fork of "
#: What a conversation has of the record that has no finished turn: its first message may have been
#: refused, or answered by another agent.
NOTHING_SEEN = "0-0"

#: The prefix of the digest of an identity whose conversation has not been told the agent's memory.
UNTOLD = "?"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A CLI's own conversation, as a session map stores it."""

    id: str
    """The CLI's id. With the prefix `FORK_OF`, it is that of a conversation to be copied."""
    note: str = ""
    """The note of the CLI's last process (`AgentProcess.note`)."""
    seen: str = ""
    """The last turn of the session's record that the conversation has; `NOTHING_SEEN` until one of
    its turns has ended."""
    identity: str = ""
    """The digest of its `AgentIdentity`, behind `UNTOLD` before the first turn has ended. Empty if
    the next turn takes the current identity: before the first turn, and after a compaction."""

    def encode(self) -> str:
        """Return the stored form: JSON, behind `FORK_OF` for a conversation to be copied."""
        own = self.id.removeprefix(FORK_OF)
        mark = FORK_OF if own != self.id else ""  # the scripts put it there as well
        return mark + orjson.dumps(asdict(replace(self, id=own))).decode()

    @classmethod
    def decode(cls, stored: str) -> Self:
        """Return the stored conversation, also from the earlier form: the id, then the note."""
        plain = stored.removeprefix(FORK_OF)
        mark = FORK_OF if plain != stored else ""
        if not plain.startswith("{"):
            own, _, note = plain.partition("\n")
            return cls(mark + own, note)
        values = orjson.loads(plain)
        known = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        return cls(**known | {"id": mark + values["id"]})


class SessionMap(Protocol):
    """Stores the CLIs' own conversations of one session."""

    async def get(self, name: str) -> Conversation | None:
        """Return what is stored under a `conversation_name()`; None if nothing is."""

    async def set(self, name: str, conversation: Conversation) -> None:
        """Store a conversation, for 7 days from now."""

    async def delete(self, name: str) -> None:
        """Delete a conversation that the CLI no longer knows."""


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
    history: Callable[[str | None], Awaitable[Sequence[Mapping[str, str]]]] | None = None
    """Returns the record of the conversation, for an agent that begins a new one (None), or what
    others have said after a turn that the agent's conversation has (`Conversation.seen`)."""
    effects: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]] | None = None
    """Returns the side effects of the turn's tools so far, in all attempts at the turn."""
    denials: Callable[[], Awaitable[Sequence[Mapping[str, str]]]] | None = None
    """Returns the denials whose reason the agent doesn't know yet: `tool`, `what`, `by`, `why`."""
    tasks: Callable[[], Awaitable[Sequence[TaskStatus]]] | None = None
    """Returns the session's unfinished tasks and branches."""
    aside_notes: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]] | None = None
    """Returns the notes about asides that the agent doesn't know yet."""
    memory: Callable[[], Awaitable[str]] | None = None
    """Returns the agent's memory, for the first turn of a conversation and after a compaction."""
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
    """Called with a phase that the attempt reaches (`spawned`, `output`, `tool`), and a detail;
    also with `web` once a tool begins to read what others have written (`bridge.web_reading`)."""
