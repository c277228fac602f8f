"""Gemini's own program in a terminal: how it is started, and what its title says.

It takes MCP servers and instructions from settings alone, which are the user's own: of RemoteClaw's
it has none here. Its title says that it rests also while it asks who signs in, so its word counts
from when it has written to the conversation's file.
"""

import asyncio
import uuid
from collections.abc import Mapping
from pathlib import Path

from remoteclaw.host.files import write_new
from remoteclaw.protocols import Activity, AgentSpec, Launch
from remoteclaw.runtimes.gemini_chats import GeminiTranscript, chat_files, is_resumable
from remoteclaw.runtimes.gemini_launch import common_options, environment_of
from remoteclaw.runtimes.terminal import NotedWatch, TerminalNotes
from remoteclaw.runtimes.wire import UUID

#: What the sign at the beginning of its title says.
_SIGNS: Mapping[str, Activity] = {"◇": "idle", "✦": "busy", "⏲": "busy", "✋": "waiting"}
#: How it notifies that it waits for a person.
_ATTENTION = "Gemini CLI needs your attention"
#: Gemini's own rules under `permissions = "deny"`: what would be asked for is refused.
_REFUSED = """
[[rule]]
toolName = ["run_shell_command", "write_file", "replace", "web_fetch", "save_memory"]
decision = "deny"
priority = 999

[[rule]]
mcpName = "*"
toolName = "*"
decision = "deny"
priority = 999
"""


class GeminiTerminal:
    """Gemini CLI in a terminal."""

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, prompt: str, run_dir: Path
    ) -> Launch:
        """Return the command line.

        Of a conversation that gemini has lost another one is begun: its id tells that.
        """
        is_kept = session_id is not None and is_resumable(session_id, spec.workspace, spec.env)
        own_id = session_id if session_id and is_kept else str(uuid.uuid4())
        argv = [*spec.command, f"--{'resume' if is_kept else 'session-id'}={own_id}"]
        # What `edits` allows can't be told apart: a person is asked, who is there.
        argv += ["--approval-mode", "yolo" if spec.permissions == "auto" else "default"]
        if spec.permissions == "deny":
            write_new(run_dir / "refused.toml", _REFUSED.encode())
            argv += ["--policy", str(run_dir / "refused.toml")]
        argv += common_options(spec, ())
        if prompt:
            argv.append(f"--prompt-interactive={prompt}")
        TerminalNotes(run_dir).begin(conversation=own_id, is_prompted=bool(prompt))
        env = environment_of(spec)
        # A terminal has colours, and shows what is written to standard error.
        env = {name: value for name, value in env.items() if (name, value) not in _HEADLESS}
        return Launch(argv=tuple(argv), env=env, cwd=spec.workspace, session_id=own_id)

    def watch(
        self, *, run_dir: Path, workspace: str, env: Mapping[str, str], conversation: str | None
    ) -> "GeminiWatch":
        """Return what follows a gemini."""
        return GeminiWatch(TerminalNotes(run_dir), env, conversation)

    def transcript(
        self, conversation: str, *, workspace: str, env: Mapping[str, str]
    ) -> GeminiTranscript:
        """Return the record of a conversation."""
        return GeminiTranscript(conversation, env)

    def places(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the part of its environment that says where it keeps its files."""
        return {name: env[name] for name in ("HOME", "GEMINI_CLI_HOME") if name in env}


#: The variables of turns that a terminal doesn't want.
_HEADLESS = (("NO_COLOR", "1"), ("GEMINI_DEBUG_LOG_FILE", "/dev/stderr"))


class GeminiWatch(NotedWatch):
    """What gemini says by its title and notifications, once it has opened its conversation."""

    def __init__(
        self, notes: TerminalNotes, env: Mapping[str, str], conversation: str | None
    ) -> None:
        super().__init__(notes, conversation)
        self._env = env
        self._is_prompted = self._about.get("is_prompted") is True
        """Whether it was started with a prompt, which it has not taken up."""
        self._is_followed = False
        """Whether its titles are of now: a new watch is told earlier ones first."""
        self._said: Activity = "unknown"
        """What its title says."""
        self._is_asking = False
        """Whether it has notified of a question of which its title says nothing."""

    @property
    def activity(self) -> Activity:
        """What it does."""
        if self._is_asking:
            return "waiting"
        may_rest = self.is_ready and not (self._is_prompted or self._is_touched)
        return "unknown" if self._said == "idle" and not may_rest else self._said

    @property
    def transcript(self) -> GeminiTranscript | None:
        """The record of its conversation; of another one that is begun in it nothing is known."""
        return GeminiTranscript(self.conversation, self._env) if self.conversation else None

    def title(self, text: str) -> None:
        """Take the title."""
        self._said = _SIGNS.get(text[:1], "unknown")
        self._is_asking, self.known.waiting_for = False, ""
        if self._said in ("busy", "waiting"):
            if self._is_prompted:
                self._is_prompted = False
                self._notes.add(is_prompted=False)
            if self._is_followed:
                self._touch(False)
        self.tell()

    def osc(self, number: int, data: str) -> None:
        """Take a notification, if its user wants any: it may ask while its title rests."""
        if number == 9 and _ATTENTION in data and self._said == "idle" and self._is_followed:
            self._is_asking, self.known.waiting_for = True, data.rpartition(" | ")[2]
            self._touch(True)  # for the next watch, too
        self.tell()

    def typed(self) -> None:
        """Note that a person has typed: a menu may be open, under the same title."""
        if self._said == "idle":
            self._is_asking = False  # it may be answered
            self._touch(True)
        self.tell()

    async def look(self) -> None:
        """Check whether it has opened its conversation, until it has."""
        self._is_followed = True
        if not self.is_ready:
            self.known.is_ready = await asyncio.to_thread(self._has_opened)

    def _has_opened(self) -> bool:
        began = self._notes.began_ns
        conversation = self.conversation or ""
        if not began or not UUID.fullmatch(conversation):
            return False
        return any(_changed_ns(file) >= began for file in chat_files(conversation, self._env))


def _changed_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:  # just removed
        return 0
