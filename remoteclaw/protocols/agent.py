"""The seam to agents: how a CLI is specified, started, asked and answered."""

import hashlib
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import orjson

from remoteclaw.events import AgentEvent
from remoteclaw.messages import OWN_SERVER, Image, McpServerConfig

if TYPE_CHECKING:
    from remoteclaw.protocols.terminal import TerminalProgram

__all__ = [
    "FILES",
    "LOG_LINE",
    "AgentPipes",
    "AgentProcess",
    "AgentSpec",
    "Agents",
    "Capabilities",
    "Decision",
    "Launch",
    "Remedies",
    "Runtime",
    "prompt_file",
]

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
    branch: Literal["", "read", "ask", "auto"] = ""
    """For a branch: which part of the `permissions` it has; it is launched with all of them."""
    allow: tuple[str, ...] = ()
    """Rules for what needs no permission; the bridge decides by them, so that a change of them
    restarts no process."""
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
    """The note of the last process of the conversation for the next one."""

    @property
    def only_reads(self) -> bool:
        """Whether all is refused that does more than read."""
        return self.branch == "read"

    @property
    def conduct(self) -> str:
        """The permissions by which its requests are decided, before `only_reads`."""
        is_wide = self.branch == "ask" and self.permissions in ("edits", "auto")
        return "ask" if is_wide else self.permissions

    @property
    def server_names(self) -> tuple[str, ...]:
        """The MCP servers that it has of us."""
        return tuple(dict.fromkeys((*self.mcp_servers, *([OWN_SERVER] if self.tools else ()))))

    @property
    def unasked_servers(self) -> tuple[str, ...]:
        """Those of its MCP servers whose tools need no permission; RemoteClaw's calls decide."""
        if self.permissions == "deny":
            return ()
        return tuple(name for name in self.server_names if not self.branch or name == OWN_SERVER)

    def without_tools(self) -> "AgentSpec":
        """Return the spec of an agent that has, and is told of, no tools of RemoteClaw's."""
        return replace(self, tools=None, system_prompt=self.plain_prompt)

    @property
    def fingerprint(self) -> str:
        """A hash of what a process is started with: a warm agent with another one is restarted."""
        try:
            program = Path(self.command[0]).stat()
            version = (program.st_ino, program.st_size, program.st_mtime_ns)
        except OSError:
            version = (0, 0, 0)
        servers = {name: asdict(server) for name, server in self.mcp_servers.items()}
        parts = (
            *(self.runtime, self.command, version, self.workspace, dict(self.env)),
            *(self.system_prompt, self.model, self.permissions, self.inherit_mcp),
            *(self.trust_workspace, servers, self.tools, self.own_server, self.branch),
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
    has_points: bool = False
    """Whether a copy of one at work can begin at its last finished turn."""
    asides: Literal["", "copy", "notes"] = ""
    """The way in which it answers beside its running turn: on a copy of the conversation, or, told
    notes of it, in another one; empty if it can't."""
    takes_commands: bool = False
    """Whether a text such as `/compact` is a command of its own."""
    chooses_model: bool = True
    """Whether it can be asked for a model."""
    resumes: str = "by its own id"
    """The way in which another process continues a conversation, in words."""
    rules: frozenset[str] = frozenset()
    """The kinds of rules in `allow` that it asks enough for: `Bash`, `Edit`, `Read`, `WebFetch`,
    `WebFetch(domain)`, `WebSearch` and `mcp`."""
    tested: str = ""
    """The version that it was tested with."""


@dataclass(frozen=True, slots=True)
class Remedies:
    """The ways to fix what keeps a CLI from its model, in words for the person who runs it."""

    install: str = ""
    """The command that installs it."""
    sign_in: str = ""
    """The way to sign in, as a part of a sentence."""
    keys: tuple[str, ...] = ()
    """The variables of keys that it asks its model with, the first one that is set."""
    models: str = ""
    """What lists its models."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a request for a permission."""

    verdict: Literal["allow", "deny"]
    """For this one call."""
    message: str = ""
    """The words for the agent with a denial."""
    answers: tuple[str, ...] = ()
    """What a person has answered to each of its questions, in their order."""
    ends_planning: bool = False
    """Whether the denial of a plan ends the agent's plan mode."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A command line of an agent CLI. Secrets are in `env`, never in `argv`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    session_id: str | None
    """The id of the conversation that this process will have, where it is known."""
    prompt_file: Path | None = None
    """The file of its system prompt: a path that the prompt alone decides, because the CLI
    tells the model the path as well."""


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
        """A line for the next process of the conversation, or nothing.

        It is kept with the id, so that the next one asks the model exactly what this one asked.
        """

    @property
    def missing_servers(self) -> Mapping[str, str]:
        """The MCP servers that it could not connect at its start, each with the reason or none."""

    def turn(
        self, prompt: str, images: Sequence[Image] = (), *, is_command: bool = False
    ) -> AsyncGenerator[AgentEvent, None]:
        """Ask the agent; yield what it says, with exactly one `DoneEvent`, last.

        `images` are of the kinds that its runtime names. A prompt that `is_command` is `/name` with
        what may stand behind it, for a CLI that takes commands.
        """

    async def steer(self, prompt: str, key: str, images: Sequence[Image] = ()) -> None:
        """Give the agent a message while it works, once its turn has begun.

        The turn says `SteeredEvent(key)` when the agent has taken it up. A turn that ends without
        saying so has left no trace of it.
        """

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a `PermissionEvent` of the running turn; of any other, do nothing."""

    async def aside(self, prompt: str) -> str:
        """Return the answer to a question beside the running turn, for which no tool is used.

        It is asked of the conversation as it was after its last finished turn, or, where the
        runtime's `asides` are "notes", of an empty one, and leaves no trace in either. It may be
        asked several times at once, also in the first turn of a conversation (then there is nothing
        before it), and may be awaited beyond the end of the turn, until the next one begins.
        Cancelling it ends it. Raises `AsideFailed` where there is no answer.
        """

    async def interrupt(self) -> None:
        """Stop the running turn, which then ends with `aborted`; without one, do nothing."""

    def parked_state(self) -> dict[str, Any] | None:
        """Return what the next worker must know, or None if the agent can't be parked now."""


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
    def remedies(self) -> Remedies:
        """What a person can do who is to get it to work."""

    @property
    def image_types(self) -> frozenset[str]:
        """The MIME types of pictures that it is shown with a prompt; of others it gets the path."""

    @property
    def terminal(self) -> "TerminalProgram | None":
        """The CLI's own program in a terminal; None if it has none."""

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
        """Take over a CLI: one just started, or one that another worker left with this state.

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

    async def warm_up(self, spec: AgentSpec, *, session_id: str | None, fork: bool = False) -> None:
        """Begin to get the agent that the next `obtain()` asks for; what fails, that one raises."""

    async def discard(self) -> None:
        """End the current agent's whole tree."""

    @property
    def description(self) -> str:
        """The origin of the current agent, in words for people who trace a turn."""

    @property
    def is_new(self) -> bool:
        """Whether the current agent was started by the last `obtain()`."""

    @property
    def heard_at(self) -> float:
        """The time of the current agent's last output, on `time.monotonic()`."""

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
