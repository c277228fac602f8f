"""The protocol for a CLI's own program in a terminal: its launch, activity and transcript.

A program's activity comes from its own reports, never from its screen. Without a report it is
`unknown`, which never counts as `idle`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from remoteclaw.events import AgentUsage, PermissionEvent
from remoteclaw.protocols.launch import AgentSpec, Decision, Launch

__all__ = [
    "Activity",
    "ModelRequest",
    "TerminalProgram",
    "TerminalWatch",
    "Transcript",
    "TranscriptItem",
]

#: What a program does, by its own reports. `waiting`: it waits for a person's answer.
Activity = Literal["busy", "waiting", "idle", "unknown"]


@dataclass(frozen=True, slots=True)
class TranscriptItem:
    """An item in the CLI's transcript of a conversation."""

    id: str
    """The record's own id, the same at each read."""
    kind: Literal["user", "agent", "tool", "notice"]
    """A person's message, the agent's text, a tool that was used, or a notice of the CLI, such as
    that the conversation was compacted or a request interrupted."""
    text: str
    """The text; for a tool, its main argument on one line."""
    name: str = ""
    """The name of the tool."""
    at_ms: int = 0
    """The time of the item, in milliseconds since 1970; 0 if the CLI doesn't record it."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to the model in the CLI's transcript of a conversation."""

    id: str
    """The request's own id, the same at each read and in copies of the conversation, or with an
    earlier time in these."""
    at_ms: int
    """The time of its answer, in milliseconds since 1970."""
    usage: AgentUsage
    model: str = ""
    """The name of the model; empty if the CLI doesn't record it."""
    cost_usd: float | None = None
    """The cost in US dollars; None if the CLI doesn't record it."""


class Transcript(Protocol):
    """The CLI's own transcript of a conversation, readable while the program runs and later."""

    @property
    def is_resumable(self) -> bool:
        """Whether the CLI can continue the conversation."""

    def read(self, position: str) -> tuple[list[TranscriptItem], str]:
        """Return complete items after a position, and the position after them.

        The empty position is the beginning. A call returns a few hundred items at most; call it
        again until the position stays the same. Records that are no items (metadata, compaction
        summaries, those of the CLI's subagents) are left out. The call blocks, so it is made in a
        thread. Raises `OSError` if the transcript can't be read now.
        """

    def end(self) -> str:
        """Return the position after all current items."""


class TerminalWatch(Protocol):
    """The state of a program in a terminal, from the program's own reports."""

    @property
    def activity(self) -> Activity:
        """The program's activity; `unknown` unless its reports agree."""

    @property
    def waiting_for(self) -> str:
        """What the program asks a person while it is `waiting`, briefly; empty if unknown."""

    @property
    def requests(self) -> Sequence[PermissionEvent]:
        """The requests in the program's open dialogs that can be answered without keys."""

    async def answer(self, request: str, decision: Decision) -> None:
        """Answer one of `requests` by its id; do nothing if it is gone. Raises `OSError`."""

    @property
    def is_ready(self) -> bool:
        """Whether the program has reported anything; before that, it may show a start dialog."""

    @property
    def conversation(self) -> str | None:
        """The CLI's id of the conversation that is open in the program; None if unknown."""

    @property
    def transcript(self) -> Transcript | None:
        """The transcript of that conversation; None while the conversation is unknown."""

    def title(self, text: str) -> None:
        """Handle a window title that the program has set."""

    def osc(self, number: int, data: str) -> None:
        """Handle an operating system command that terminals don't know, such as 7501."""

    def typed(self) -> None:
        """Note that a person has typed, after which an earlier report may be outdated."""

    def rested(self) -> None:
        """Note that nothing is left of what was typed: the report before it counts again."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow the program's other reports (files of hooks, a port), until cancelled.

        `changed` is called after each change of the properties, including those by `title()` and
        `osc()`. The reports are read from their beginning, so that a gateway that starts again has
        the same state as the gateway before it.
        """


class TerminalProgram(Protocol):
    """The CLI's own program for terminals."""

    shows_prompt: bool
    """Whether its command line, which all users of the host can read, has the system prompt of a
    new conversation. That prompt then has nothing of the agent's identity."""

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, prompt: str, run_dir: Path
    ) -> Launch:
        """Return the launch of the program, which resumes a conversation if `session_id` is given.

        `prompt` is the first message, or empty; it follows `--` on the command line, so that it is
        never an option. Model, permissions, environment, MCP servers and system prompt are those of
        the agent's turns without a terminal, if the program supports them. Files that the program
        or the watch needs (hooks, settings, a port and its password) are written to `run_dir`,
        readable only for this user. Secrets are in these files or in the environment, never in
        `argv`.
        """

    def watch(
        self, *, run_dir: Path, workspace: str, env: Mapping[str, str], conversation: str | None
    ) -> TerminalWatch:
        """Return the watch of a program that was launched with `run_dir`.

        `conversation` is the launch's `session_id`, or None if it was unknown. `env` are the
        variables that locate the CLI's files, without secrets (see `places()`).
        """

    def transcript(
        self, conversation: str, *, workspace: str, env: Mapping[str, str]
    ) -> Transcript:
        """Return the transcript of a conversation, which is found by its id."""

    def model_requests(self, conversation: str, env: Mapping[str, str]) -> list[ModelRequest]:
        """Return the requests to the model that the transcript of a conversation has.

        They include those of the CLI's subagents. A request that is recorded again while it is
        answered is returned again: the last one is complete. The call reads the whole transcript
        and blocks. Raises `OSError` if it can't be read now.
        """

    def places(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of `env` that locate the CLI's files, such as `HOME`."""
