"""The protocol for agents: their runtimes, processes and turns."""

import hashlib
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from remoteclaw.events import AgentEvent, AsideAnswer, Compacted, ContextSize
from remoteclaw.messages import Image
from remoteclaw.protocols.launch import AgentSpec, Decision, Launch
from remoteclaw.protocols.terminal import TerminalProgram

__all__ = [
    "FILES",
    "LOG_LINE",
    "AgentPipes",
    "AgentProcess",
    "Agents",
    "Capabilities",
    "Remedies",
    "Runtime",
    "prompt_file",
]

#: The method of the notification that carries a line of a CLI's log; its `line` is the text.
LOG_LINE = "$/log"
#: The subdirectory of a run directory for files from people, which the agent may read.
FILES = "files"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of a kind of agent, besides answering a message."""

    steers: bool
    """Whether the agent can take in messages during a turn."""
    explains_denial: bool
    """Whether the agent gets the reason of a denied permission in the same turn."""
    reports_cost: bool = False
    """Whether the CLI reports the cost of a turn."""
    forks: bool = False
    """Whether the CLI can begin a conversation as a copy of another one."""
    has_points: bool = False
    """Whether a copy of a conversation with a running turn can end at the last finished turn."""
    asides: Literal["", "copy", "notes"] = ""
    """How the agent answers asides: in a copy of the conversation, or in an empty conversation with
    notes; empty if it can't."""
    compacts: bool = False
    """Whether the CLI summarizes its conversation on request, to make room."""
    keeps_on_request: bool = False
    """Whether the request can say what the summary is to keep."""
    compact_at: float = 0.0
    """The used part of the context from which on an idle conversation is summarized by default; 0
    if a compaction can't be interrupted without a trace."""
    takes_commands: bool = False
    """Whether the CLI takes a text such as `/compact` for a command."""
    chooses_model: bool = True
    """Whether RemoteClaw can choose the model."""
    resumes: str = "by its own id"
    """How another process continues a conversation, in words for people."""
    rules: frozenset[str] = frozenset()
    """The kinds of rules in `allow` that have an effect, because the CLI's requests say enough:
    `Bash`, `Edit`, `Read`, `WebFetch`, `WebFetch(domain)`, `WebSearch` and `mcp`."""
    tested: str = ""
    """The version with which RemoteClaw was tested."""


@dataclass(frozen=True, slots=True)
class Remedies:
    """What to do if a CLI doesn't reach its model, in words for the person who runs it."""

    install: str = ""
    """The command that installs the CLI."""
    sign_in: str = ""
    """How to sign in, as a part of a sentence."""
    keys: tuple[str, ...] = ()
    """The variables with an API key for the model, the one that the CLI prefers first."""
    models: str = ""
    """How to list the models."""


class AgentPipes(Protocol):
    """The pipes of a running CLI, as a stream of lines in each direction."""

    async def read(self) -> bytes | None:
        """Return the next line of the CLI's output, without its line end; None at the end.

        An empty line stands for a line that was too long.
        """

    async def write(self, line: bytes) -> None:
        """Send a line. If the CLI has ended, nothing is raised: `read()` reports that."""

    def take_unread(self) -> list[bytes]:
        """Return the lines that have arrived and were not read, without waiting."""

    @property
    def is_clean(self) -> bool:
        """Whether no line has been read or sent partially."""

    def last_errors(self) -> str:
        """Return the end of the CLI's standard error, for logs."""

    def follow_log(self, log: re.Pattern[bytes], wanted: re.Pattern[bytes]) -> None:
        """Have `read()` also return lines of standard error, each as a notification `LOG_LINE`.

        These are the lines that match `wanted`; each is returned before later output. Other lines
        that match `log` are dropped.
        """


class AgentProcess(Protocol):
    """A CLI that is ready for turns: one conversation, and one turn at a time."""

    @property
    def session_id(self) -> str | None:
        """The CLI's own id of the conversation."""

    @property
    def note(self) -> str:
        """A line for the next process of the conversation, or empty.

        It is stored with the id, so that the next process sends the model the same requests.
        """

    @property
    def missing_servers(self) -> Mapping[str, str]:
        """The MCP servers that could not be connected at the start, each with a reason or empty."""

    def turn(
        self, prompt: str, images: Sequence[Image] = (), *, is_command: bool = False
    ) -> AsyncGenerator[AgentEvent, None]:
        """Ask the agent, and yield its events; the last one is the only `DoneEvent`.

        `images` have types in the runtime's `image_types`. With `is_command`, the prompt is a
        command of the CLI, `/name` with its arguments.
        """

    async def steer(self, prompt: str, key: str, images: Sequence[Image] = ()) -> None:
        """Send the agent a message during a turn, after the turn has begun.

        The turn yields `SteeredEvent(key)` once the agent has taken the message in. If the turn
        ends without this event, the conversation doesn't contain the message.
        """

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a `PermissionEvent` of the running turn; do nothing if it is unknown."""

    async def aside(self, prompt: str) -> AsideAnswer:
        """Return the answer to a question during the running turn; the agent uses no tool for it.

        The question is asked in a copy of the conversation after its last finished turn, or, if the
        runtime's `asides` are "notes", in an empty conversation. The conversation itself doesn't
        change. Several asides can run at once, even in the first turn of a conversation, whose copy
        is empty. An aside may continue after the end of the turn until the next turn begins.
        Cancelling the call ends it. Raises `AsideFailed` if there is no answer; what such an aside
        has used counts with the turn, or with the next one.
        """

    async def compact(self, keep: str = "") -> Compacted:
        """Have the CLI replace its conversation by a summary, between turns.

        `keep` says what the summary is to keep. Only for a runtime that `compacts`. Cancelling the
        call leaves the CLI in an unknown state.
        """

    async def context_size(self) -> ContextSize | None:
        """Return the size of the conversation, between turns; None if the CLI doesn't tell it.

        The call may be cancelled.
        """

    async def set_model(self, model: str | None) -> bool:
        """Have `model` answer from the next turn on; with None, the CLI's default model.

        Between turns. Returns whether the process has that model: else only a new process can get
        it. Raises `AgentUnavailable` if the CLI refuses the name; many CLIs accept any, and fail
        in the turn.
        """

    async def interrupt(self) -> None:
        """Stop the running turn, which then ends with `aborted`; do nothing if no turn runs.

        It also stops a compaction, for a runtime with `compact_at`.
        """

    def parked_state(self) -> dict[str, Any] | None:
        """Return the state for the next worker; None if the agent can't be parked now."""


@runtime_checkable
class Runtime(Protocol):
    """A kind of agent CLI: its command line, its handshake, and the translation of its messages."""

    @property
    def name(self) -> str:
        """The runtime's name in the configuration."""

    @property
    def command(self) -> tuple[str, ...]:
        """The program's usual name on PATH, and its first arguments."""

    def find(self, program: str, path: str | None) -> str | None:
        """Return the path of the program to start for a name on `path`; None if it isn't found."""

    @property
    def capabilities(self) -> Capabilities:
        """The agent's abilities."""

    @property
    def remedies(self) -> Remedies:
        """What a person can do if the CLI doesn't reach its model."""

    @property
    def image_types(self) -> frozenset[str]:
        """The MIME types of images that a prompt can contain; of others the agent gets the path."""

    @property
    def terminal(self) -> TerminalProgram | None:
        """The CLI's own program in a terminal; None if it has none."""

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return those variables of RemoteClaw's environment that the CLI needs."""

    def account(self, env: Mapping[str, str]) -> Sequence[str]:
        """Return what identifies the account of the CLI's provider: keys in its environment, and
        the id in the CLI's own file. It contains secrets. Empty if nothing identifies it."""

    def openings(self, spec: AgentSpec) -> Sequence[str]:
        """Return what files of the user allow although the agent needs permissions."""

    def fitted(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec with what the CLI supports in its workspace now.

        Called before each start. Raises `AgentUnavailable` if the CLI may not be started.
        """

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the launch of the CLI, which resumes a conversation if `session_id` is given.

        With `fork`, the CLI begins a new conversation as a copy of that one. `run_dir` belongs to
        this process; the agent may read the files in its subdirectory `FILES`.
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
        """Take over a CLI that was just started, or that another worker has parked.

        `parked_state` is the state that the other worker left; None for a new CLI. `session_id` is
        the launch's, or if that is None, the id of the conversation to continue, or with `fork` to
        copy.
        """


class Agents(Protocol):
    """The bridge's source of agents: a warm agent that matches the spec, or a new one."""

    async def obtain(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool = False
    ) -> AgentProcess:
        """Return an agent that continues the conversation `session_id`, or with `fork` its copy.

        Raises `AgentUnavailable` if none can be started.
        """

    async def warm_up(self, spec: AgentSpec, *, session_id: str | None, fork: bool = False) -> None:
        """Begin to start the agent for the next `obtain()`, which raises what fails here."""

    async def discard(self) -> None:
        """End the current agent's whole process tree."""

    @property
    def description(self) -> str:
        """The origin of the current agent, in words for the trace of a turn."""

    @property
    def is_new(self) -> bool:
        """Whether the current agent was started by the last `obtain()`."""

    async def lacks_tools(self) -> bool:
        """Whether the new agent could not reach RemoteClaw's tools and this turn has to say so.

        It is said once, until an agent of the conversation reaches them again.
        """

    @property
    def last_output_at(self) -> float:
        """The time of the current agent's last output, on `time.monotonic()`."""

    @property
    def run_dir(self) -> Path:
        """The current agent's private directory, which is removed when the agent ends."""

    @property
    def files_dir(self) -> Path:
        """The subdirectory of `run_dir` for files from people, which the agent may read."""


def prompt_file(run_dir: Path, prompt: str) -> Path:
    """Return the path of the file for a system prompt, next to the directory of run directories."""
    digest = hashlib.sha256(prompt.encode("utf-8", "replace")).hexdigest()[:32]
    return run_dir.parent.parent / "prompts" / f"{digest}.md"
