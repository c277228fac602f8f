"""The seams: protocols between the parts."""

import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import orjson

from remoteclaw.events import AgentEvent, PermissionEvent, ToolActivity, ToolResultEvent
from remoteclaw.messages import OWN_SERVER, Attachment, Entry, Image, McpServerConfig, ReplyPayload

__all__ = [
    "FILES",
    "FORK_OF",
    "LOG_LINE",
    "SIDE_EFFECTS_FILE",
    "AgentPipes",
    "AgentProcess",
    "AgentSpec",
    "Agents",
    "AttachmentStore",
    "BridgeCallbacks",
    "Capabilities",
    "ChannelAdapter",
    "ChannelProfile",
    "Decision",
    "Effects",
    "History",
    "Launch",
    "Newcomers",
    "OperatingAdapter",
    "Operation",
    "Receipt",
    "Reply",
    "Runtime",
    "SessionMap",
    "Unit",
    "conversation_name",
    "prompt_file",
]


#: Where a turn's tools write what they did besides answering, in the agent's run directory.
SIDE_EFFECTS_FILE = "side-effects.ndjson"
#: The notification as which a line of a CLI's log is read; its `line` is that.
LOG_LINE = "$/log"
#: The part of a run directory in which the agent may read: for the files that people send.
FILES = "files"


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """The specification of an agent process: fixed at its start, compared at every turn.

    But for `note`, which only a process that resumes a conversation looks at. A bridge is given a
    template, and completes it for each turn.
    """

    runtime: str
    command: tuple[str, ...]
    """The program and its first arguments; in a template as it is looked for on PATH."""
    workspace: str
    """The working directory."""
    env: Mapping[str, str]
    """The whole environment that the process gets."""
    system_prompt: str = ""
    """Filled in by the bridge, like `plain_prompt` and `note`."""
    model: str | None = None
    permissions: str = "ask"
    inherit_mcp: bool = True
    trust_workspace: bool = False
    mcp_servers: Mapping[str, McpServerConfig] = field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    """Those of RemoteClaw's own tools that it may call; None if it isn't given the server."""
    plain_prompt: str = ""
    """The system prompt of an agent that is not given them."""
    own_server: str = ""
    """A name of their server that no other server can have, for a CLI that tells whose tool is
    called by the server's name alone."""
    note: str = ""
    """What the last process of the conversation has noted for the next one."""

    @property
    def server_names(self) -> tuple[str, ...]:
        """The MCP servers that it has of us."""
        return tuple(dict.fromkeys((*self.mcp_servers, *([OWN_SERVER] if self.tools else ()))))

    def without_tools(self) -> "AgentSpec":
        """Return the spec of an agent that has, and is told of, no tools of RemoteClaw's."""
        return replace(self, tools=None, system_prompt=self.plain_prompt)

    @property
    def fingerprint(self) -> str:
        """A hash of it all and of the program: a warm agent with another one is restarted."""
        try:
            program = Path(self.command[0]).stat()
            version = (program.st_ino, program.st_size, program.st_mtime_ns)
        except OSError:
            version = (0, 0, 0)
        servers = {name: asdict(server) for name, server in self.mcp_servers.items()}
        parts = (
            *(self.runtime, self.command, version, self.workspace, dict(self.env)),
            *(self.system_prompt, self.model, self.permissions, self.inherit_mcp),
            *(self.trust_workspace, servers, self.tools, self.own_server),
        )
        data = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of one kind of agent beside answering."""

    steers: bool
    """Whether it takes up messages while it works."""
    explains_denial: bool
    """Whether it is told why a permission was denied, and so can say it."""
    reports_cost: bool = False
    """Whether it tells what a turn cost."""
    forks: bool = False
    """Whether it can begin a conversation as a copy of another."""
    resumes: str = "by its own id"
    """How another process continues a conversation, in words."""
    tested: str = ""
    """The version that it was tested with."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a request for a permission."""

    verdict: Literal["allow", "allow_session", "deny"]
    """`allow_session` holds for calls like this one until the process ends, where the CLI knows
    that (`docs/agents.md` says what each takes for alike); else for this call."""
    message: str = ""
    """What the agent is told with a denial."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A command line of an agent CLI. Secrets are in `env`, never in `argv`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    session_id: str | None
    """The id of the conversation that this process will have, where it is known."""
    prompt_file: Path | None = None
    """Where it reads its system prompt: a path that the prompt alone decides, because the CLI tells
    the model the path as well."""


class AgentPipes(Protocol):
    """A running CLI, as a stream of lines each way."""

    async def read(self) -> bytes | None:
        """Return the next line that the CLI printed, without its end; None when it has ended.

        An empty one stands for a line that was too long.
        """

    async def write(self, line: bytes) -> None:
        """Send one line; a CLI that has ended is noticed by `read()`, not here."""

    def take_unread(self) -> list[bytes]:
        """Return the lines that have arrived and were not read, without waiting."""

    @property
    def is_clean(self) -> bool:
        """Whether every line that began was read and sent to its end."""

    def last_errors(self) -> str:
        """Return the end of what the CLI printed on standard error, for logs."""

    def follow_log(self, log: re.Pattern[bytes], wanted: re.Pattern[bytes]) -> None:
        """Read what is `wanted` of standard error among the lines, as a notification `LOG_LINE`.

        It comes before what the CLI says afterwards. Other lines that match `log` are dropped.
        """


class AgentProcess(Protocol):
    """A CLI that is ready for turns: one conversation, one turn at a time."""

    @property
    def session_id(self) -> str | None:
        """The CLI's own id of the conversation."""

    @property
    def note(self) -> str:
        """What the next process of the conversation has to know, beside its id: a line or nothing.

        It is kept with the id, so that the next one asks the model exactly what this one asked.
        """

    def turn(self, prompt: str, images: Sequence[Image] = ()) -> AsyncGenerator[AgentEvent, None]:
        """Ask the agent; yield what it says, with exactly one `DoneEvent`, last.

        `images` are of the kinds that its runtime names.
        """

    async def steer(self, prompt: str, key: str, images: Sequence[Image] = ()) -> None:
        """Give the agent a message while it works, once its turn has begun.

        The turn says `SteeredEvent(key)` when the agent has taken it up. A turn that ends without
        saying so has left no trace of it.
        """

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a `PermissionEvent` of the running turn; of any other, do nothing."""

    async def interrupt(self) -> None:
        """Stop the running turn, which then ends with `aborted`; without one, do nothing."""

    def parked_state(self) -> dict[str, Any] | None:
        """Return what the next driver must know, or None if the agent can't be parked now."""


class Runtime(Protocol):
    """One kind of agent CLI: its launch line, its handshake, its translation of messages."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""

    @property
    def command(self) -> tuple[str, ...]:
        """The program's usual name, looked for on PATH, and its first arguments."""

    def find(self, program: str, path: str | None) -> str | None:
        """Return the program to start for a command, looked for on `path`; None without one."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    @property
    def image_types(self) -> frozenset[str]:
        """The MIME types of pictures that it is shown with a prompt; of others it gets the path."""

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of RemoteClaw's environment that this CLI needs."""

    def fitted(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec as it can be had in its workspace now; called before each start."""

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return how to start it, resuming a conversation if its id is given.

        With `fork` it begins one of its own, as a copy of that. `run_dir` is its own; in the part
        `FILES` of it, it may read what people send.
        """

    async def connect(
        self,
        pipes: AgentPipes,
        spec: AgentSpec,
        *,
        session_id: str | None,
        fork: bool,
        parked_state: Mapping[str, Any] | None,
        run_dir: Path,
    ) -> AgentProcess:
        """Take over a CLI: one just started, or one that another driver left with this state.

        `session_id` is the launch's where it knows one, else that which was to be gone on with, or
        with `fork`, copied.
        """


class Agents(Protocol):
    """The bridge's source of agents: a warm one that matches the spec, or a new one."""

    async def obtain(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool = False
    ) -> AgentProcess:
        """Return an agent of this spec that continues this conversation, or with `fork` a copy.

        Raises `AgentUnavailable` when none can be started.
        """

    async def discard(self) -> None:
        """End the current agent's whole tree."""

    @property
    def description(self) -> str:
        """How the current agent came, in words for people who trace a turn."""

    @property
    def is_new(self) -> bool:
        """Whether the current agent was started by the last `obtain()`."""

    @property
    def heard_at(self) -> float:
        """When the current agent last printed anything, on `time.monotonic()`."""

    @property
    def run_dir(self) -> Path:
        """The current agent's own directory, private to it and removed when it ends."""

    @property
    def files_dir(self) -> Path:
        """A part of that directory in which the agent may read: for what people send."""


def prompt_file(run_dir: Path, prompt: str) -> Path:
    """Return where agents read this system prompt, beside the directory of all run directories."""
    digest = hashlib.sha256(prompt.encode("utf-8", "replace")).hexdigest()[:32]
    return run_dir.parent.parent / "prompts" / f"{digest}.md"


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
    """Where the files of one session are kept on their way."""

    async def load(self, attachment: Attachment) -> bytes | None:
        """Return a file's content; None if it is not kept any more."""

    async def store(self, name: str, content: bytes) -> Attachment:
        """Keep a file that the agent sends; raises `RedisRefused` when there is no room."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An action in a chat besides sending a message."""

    name: Literal["react", "delete", "pin", "read"]
    channel_id: str
    """The chat."""
    thread_id: str | None
    args: Mapping[str, Any]
    """`messageId` but for `read`; `emoji` for `react`, where an empty one takes the reaction away;
    `limit` for `read`."""
    expires_ms: int
    """When it is too late to begin with it, on Redis' clock."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One entry of a reply stream: a message to deliver, or an operation."""

    id: str
    """Its id on the stream."""
    sid: str
    """The session whose agent says it; "operator" if none does."""
    turn: str
    """The turn that it answers."""
    attempt: int
    """Which attempt at the turn said it."""
    index: int
    """Its place among the turn's messages, or among those of the call, from 0."""
    channel_id: str
    """The chat that it goes to."""
    thread_id: str | None
    """The thread of that chat."""
    text: str
    """What to send; empty if there are only files, or if it only says that the turn is over."""
    is_error: bool
    """Whether it reports a failure."""
    reply_to_id: str | None
    """The message of the chat to quote."""
    attachments: tuple[Attachment, ...]
    """The files to send with it; `fleet.blobs.get` has their contents."""
    is_final: bool
    """True for the last one of its turn."""
    entries: tuple[str, ...]
    """With a turn's last message, the entries that the turn answers."""
    call: str | None = None
    """The call of a tool that sent it, between the messages of the answer; None for the answer."""
    effect: str | None = None
    """The platform's name for an effect to show it with."""
    operation: Operation | None = None
    """What to do instead of sending a message; then nothing else tells more of it."""

    @property
    def key(self) -> str:
        """Names this message among all, for platforms that send once what has the same key."""
        if self.call is not None:
            return f"{self.call}:{self.index}"
        return f"{self.sid}:{self.turn}:{self.attempt}:{self.index}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """An adapter's report about a message that the platform has."""

    message_id: str | None = None
    """The platform's name for it; of several, the first one's."""
    kept: Collection[Attachment] = ()
    """The files that could not be sent: they are kept."""
    has_effect: bool = False
    """Whether it has the effect that was asked for."""


#: What platforms count in a text: code points, units of UTF-16, or bytes of UTF-8.
Unit = Literal["characters", "utf16", "bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelProfile:
    """What a channel is: its limits, its format, its ids and its owners.

    `[channels.NAME]` goes before the limits and the format.
    """

    chunk_limit: int = 4000
    """The longest message, in `chunk_unit`."""
    chunk_unit: Unit = "characters"
    formatting: tuple[str, ...] = ()
    """How it shows messages, a sentence each, for agents."""
    attachment_mb: int = 20
    """The largest file, in megabytes."""
    attachment_types: tuple[str, ...] = ("*",)
    """The MIME types of files that it takes; `*` stands for any part."""
    live_every_s: float = 0.25
    """The shortest time between two edits of a message that is being written, in seconds."""
    has_threads: bool = True
    lacks: frozenset[str] = frozenset()
    """The tools about the current chat that do nothing there."""
    id_form: str | None = None
    """The regular expression of its ids of people and chats, where that tells them from names."""
    is_owners: bool = False
    """Whether everyone who writes there is an owner, as long as no owners are configured."""


class ChannelAdapter(Protocol):
    """One account on one chat platform."""

    async def deliver(self, reply: Reply) -> Receipt | None:
        """Send one message; when this returns, the platform has it.

        Raises `PlatformRefused` if the platform will never take it: it is then given up, and its
        sender is told. Any other exception ends the relay, and the message is delivered again when
        the relay starts again.
        """


@runtime_checkable
class OperatingAdapter(ChannelAdapter, Protocol):
    """An adapter that can do more than send messages."""

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """Do something in a chat; when this returns, it is done.

        Return for `read` the `messages`, oldest first, each with `id`, `from`, `text` and `at`, in
        milliseconds since 1970; else nothing. It has four seconds.
        Raises `Unsupported` for what the platform doesn't have, and `PlatformRefused` for what it
        won't do. Whatever it raises, it is not tried again.
        """


#: The entries that arrive while a turn runs and that its agent is to hear of at once.
Newcomers = Callable[[], AsyncGenerator[Entry, None]]
#: What the tools of the turn have done so far, in all attempts at it.
Effects = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]
#: The record of a conversation that the agent itself knows nothing of.
History = Callable[[], Awaitable[Sequence[Mapping[str, str]]]]


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
    on_permission: Callable[[PermissionEvent], Awaitable[Decision]] | None = None
    """Decides whether a tool may be used, where `permissions = "ask"`; the agent waits for it, and
    the call is cancelled when the turn ends. Without it, no one can be asked."""
    on_phase: Callable[[str, str], Awaitable[None]] | None = None
    """The attempt reached a phase (spawned, output, tool), with a word about how."""
