"""The seam to a CLI's own program in a terminal: its start, what it says of itself, its transcript.

A program's activity comes from what it says, never from its screen: nothing heard is `unknown`, and
`unknown` is never `idle`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from remoteclaw.events import PermissionEvent
from remoteclaw.protocols.agent import AgentSpec, Decision, Launch

__all__ = ["Activity", "TerminalProgram", "TerminalWatch", "Transcript", "TranscriptItem"]

#: What a program does, as far as it says so.
Activity = Literal["busy", "waiting", "idle", "unknown"]


@dataclass(frozen=True, slots=True)
class TranscriptItem:
    """One thing that was said or done in a conversation, as its CLI has recorded it."""

    id: str
    """The record's own name: the same one is the same item."""
    kind: Literal["user", "agent", "tool", "notice"]
    """Who said it: the person, the agent; a tool that was used; the CLI itself, such as that the
    conversation was compacted or a request was interrupted."""
    text: str
    """What was said; of a tool, its argument that tells most, on one line."""
    name: str = ""
    """The tool."""
    at_ms: int = 0
    """When, in milliseconds since 1970; 0 where the CLI doesn't say."""


class Transcript(Protocol):
    """The CLI's own record of a conversation, which can be read while it runs and afterwards."""

    @property
    def is_there(self) -> bool:
        """Whether there is a record that the CLI can go on from."""

    def read(self, position: str) -> tuple[list[TranscriptItem], str]:
        """Return the complete items behind a position, and the position behind them.

        An empty position is the beginning. Called in a thread; returns a few hundred items at most,
        so it is called again until the position stays. Records of no one's words (meta, compaction
        summaries, subagents' own) are left out. Raises `OSError` when it can't be read now.
        """

    def end(self) -> str:
        """Return the position behind all that is there now."""


class TerminalWatch(Protocol):
    """What is known of one program in a terminal from what it says itself."""

    @property
    def activity(self) -> Activity:
        """The program's activity, as far as all its signs agree."""

    @property
    def waiting_for(self) -> str:
        """What it asks a person while it is `waiting`, in a few words; empty if it doesn't say."""

    @property
    def requests(self) -> Sequence[PermissionEvent]:
        """What it asks a person that can be answered without keys, while its dialog is open."""

    async def answer(self, request: str, decision: Decision) -> None:
        """Answer one of these, by its id; what it asks no more is left. Raises `OSError`."""

    @property
    def is_ready(self) -> bool:
        """Whether its first sign has come: before that, a dialog of its start may be open."""

    @property
    def conversation(self) -> str | None:
        """The CLI's id of the conversation that is open in it now, as far as it is known."""

    @property
    def transcript(self) -> Transcript | None:
        """The record of that conversation; None while the conversation is not known."""

    def title(self, text: str) -> None:
        """Take the title that it has set."""

    def osc(self, number: int, data: str) -> None:
        """Take an operating system command of its own that no terminal knows, such as 7501."""

    def typed(self) -> None:
        """Note that a person has typed: what was known may be over."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow what it says by other ways (files of hooks, a port), until cancelled.

        `changed` is called after each change of the properties, also those by `title()` and
        `osc()`. It starts from the beginning of what is there, so that a gateway that is restarted
        knows what the one before knew.
        """


class TerminalProgram(Protocol):
    """A CLI's own program for terminals."""

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, prompt: str, run_dir: Path
    ) -> Launch:
        """Return how to start it, resuming a conversation if its id is given.

        `prompt` is its first message, empty for none; it stands behind `--`, so that it is never an
        option. Model, permissions, environment, MCP servers and system prompt are those of its
        turns without a terminal, as far as the program takes them. What it needs beside the command
        line (hooks, settings; also what the watch needs to know, such as a port and its password)
        is written into `run_dir` here, readable for this user alone; secrets stand there or in
        the environment, never in `argv`.
        """

    def watch(
        self, *, run_dir: Path, workspace: str, env: Mapping[str, str], conversation: str | None
    ) -> TerminalWatch:
        """Return what follows a program that was started with this run directory.

        `conversation` is the launch's `session_id`, as far as it was known then. `env` are the
        variables that say where the CLI keeps its files (`HOME`, `XDG_…`, `CODEX_HOME`,
        `CLAUDE_CONFIG_DIR`), no secret.
        """

    def transcript(
        self, conversation: str, *, workspace: str, env: Mapping[str, str]
    ) -> Transcript:
        """Return the record of a conversation, found by its id alone."""

    def places(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the part of its environment that says where it keeps its files."""
