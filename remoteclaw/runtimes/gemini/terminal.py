"""Gemini's own program in a terminal: its start, and its state from title and notifications.

Gemini reads MCP servers and instructions only from settings, which are the user's, so in a terminal
it has none of RemoteClaw's. Its title also reports `idle` while its sign-in dialog is open. So the
title is trusted only after gemini has written to the conversation's file.
"""

import asyncio
import uuid
from collections.abc import Mapping
from pathlib import Path

from remoteclaw.host.files import write_new
from remoteclaw.protocols import Activity, AgentSpec, Launch, ModelRequest
from remoteclaw.runtimes.gemini.chats import (
    GeminiTranscript,
    chat_files,
    is_resumable,
    model_requests,
)
from remoteclaw.runtimes.gemini.launch import common_options, environment_of
from remoteclaw.runtimes.terminal import NotedWatch, TerminalNotes
from remoteclaw.runtimes.wire import UUID

#: The activity for the first character of the title.
_SIGNS: Mapping[str, Activity] = {"◇": "idle", "✦": "busy", "⏲": "busy", "✋": "waiting"}
#: The text of the notification while gemini waits for a person.
_ATTENTION = "Gemini CLI needs your attention"
#: Gemini's policy under `permissions = "deny"`: it refuses whatever would need a permission.
_DENY_POLICY = """
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

    shows_prompt = False

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, prompt: str, run_dir: Path
    ) -> Launch:
        """Return the command line.

        If gemini can't resume the conversation, a new one is begun, with another `session_id`.
        """
        is_resumed = session_id is not None and is_resumable(session_id, spec.workspace, spec.env)
        own_id = session_id if session_id and is_resumed else str(uuid.uuid4())
        argv = [*spec.command, f"--{'resume' if is_resumed else 'session-id'}={own_id}"]
        # Gemini has no mode for what `edits` allows: the person at the terminal is asked.
        argv += ["--approval-mode", "yolo" if spec.permissions == "auto" else "default"]
        if spec.permissions == "deny":
            write_new(run_dir / "refused.toml", _DENY_POLICY.encode())
            argv += ["--admin-policy", str(run_dir / "refused.toml")]
        argv += ["-m", spec.model] if spec.model else []
        argv += common_options(spec, ())
        if prompt:
            argv.append(f"--prompt-interactive={prompt}")
        TerminalNotes(run_dir).begin(conversation=own_id, is_prompted=bool(prompt))
        env = environment_of(spec)
        # A terminal shows colours, and would show the log on standard error.
        env = {name: value for name, value in env.items() if (name, value) not in _TURN_VARIABLES}
        return Launch(argv=tuple(argv), env=env, cwd=spec.workspace, session_id=own_id)

    def watch(
        self, *, run_dir: Path, workspace: str, env: Mapping[str, str], conversation: str | None
    ) -> "GeminiWatch":
        """Return a watch of the program with this run directory."""
        return GeminiWatch(TerminalNotes(run_dir), env, conversation)

    def transcript(
        self, conversation: str, *, workspace: str, env: Mapping[str, str]
    ) -> GeminiTranscript:
        """Return the transcript of a conversation."""
        return GeminiTranscript(conversation, env)

    def model_requests(self, conversation: str, env: Mapping[str, str]) -> list[ModelRequest]:
        """Return the requests to the model in the transcript of a conversation."""
        return model_requests(conversation, env)

    def places(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that locate gemini's files."""
        return {name: env[name] for name in ("HOME", "GEMINI_CLI_HOME") if name in env}


#: The variables of turns that are left out in a terminal.
_TURN_VARIABLES = (("NO_COLOR", "1"), ("GEMINI_DEBUG_LOG_FILE", "/dev/stderr"))


class GeminiWatch(NotedWatch):
    """The state of one gemini, from its title, notifications and the conversation's file."""

    def __init__(
        self, notes: TerminalNotes, env: Mapping[str, str], conversation: str | None
    ) -> None:
        super().__init__(notes, conversation)
        self._env = env
        self._is_prompted = self._noted.get("is_prompted") is True
        """Whether gemini was started with a prompt that it has not taken up yet."""
        self._is_followed = False
        """Whether titles are current: a new watch first receives an earlier one."""
        self._title_activity: Activity = "unknown"
        """The activity according to the title."""
        self._is_asking = False
        """Whether gemini has notified of a question that its title does not report."""

    @property
    def activity(self) -> Activity:
        """The activity, as far as title and notifications agree."""
        if self._is_asking:
            return "waiting"
        may_rest = self.is_ready and not (self._is_prompted or self._is_touched)
        if self._title_activity == "idle" and not may_rest:
            return "unknown"
        return self._title_activity

    @property
    def transcript(self) -> GeminiTranscript | None:
        """The transcript of the conversation it was started with; a later one can't be known."""
        return GeminiTranscript(self.conversation, self._env) if self.conversation else None

    def title(self, text: str) -> None:
        """Read the activity from the title."""
        self._title_activity = _SIGNS.get(text[:1], "unknown")
        self._is_asking, self.state.waiting_for = False, ""
        if self._title_activity in ("busy", "waiting"):
            if self._is_prompted:
                self._is_prompted = False
                self._notes.add(is_prompted=False)
            if self._is_followed:
                self._set_touched(False)
        self.notify()

    def osc(self, number: int, data: str) -> None:
        """Read a notification: gemini may ask a person while its title reports `idle`.

        Notifications depend on the user's settings.
        """
        needs_attention = number == 9 and _ATTENTION in data
        if needs_attention and self._title_activity == "idle" and self._is_followed:
            self._is_asking, self.state.waiting_for = True, data.rpartition(" | ")[2]
            self._set_touched(True)  # also for the next watch
        self.notify()

    def typed(self) -> None:
        """Note that a person has typed, which may have opened a menu without another title."""
        if self._title_activity == "idle":
            self._is_asking = False  # the question may be answered
            self._set_touched(True)
        self.notify()

    async def poll(self) -> None:
        """Check whether gemini has written to its conversation's file, until it has."""
        self._is_followed = True
        if not self.is_ready:
            self.state.is_ready = await asyncio.to_thread(self._has_opened)

    def _has_opened(self) -> bool:
        began_ns = self._notes.began_ns
        conversation = self.conversation or ""
        if not began_ns or not UUID.fullmatch(conversation):
            return False
        return any(_changed_ns(file) >= began_ns for file in chat_files(conversation, self._env))


def _changed_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:  # just removed
        return 0
