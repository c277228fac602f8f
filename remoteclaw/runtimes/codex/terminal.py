"""Codex's own program in a terminal: its start, and its state from its output and rollouts."""

import asyncio
import re
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from remoteclaw.host.files import write_new
from remoteclaw.protocols import Activity, AgentSpec, Launch, ModelRequest
from remoteclaw.runtimes.codex.rollouts import (
    LastTurn,
    OpenRollouts,
    items_of,
    model_requests,
    rollout_finder,
    sessions_of,
    thread_in,
)
from remoteclaw.runtimes.codex.thread import HEADERS, common_options, parts_of, server_of
from remoteclaw.runtimes.terminal import NotedWatch, RecordTranscript, TerminalNotes
from remoteclaw.runtimes.wire import toml

#: The environment variable that identifies the process; its value is the run directory.
MARK = "REMOTECLAW_TERMINAL"
#: The pause between two searches for the process's open rollout, in seconds.
FILES_POLL_S = 1.0

#: An approval policy that asks for whatever the sandbox refuses. Codex's terminal program has no
#: policy "untrusted", which asks for everything not known to be harmless; in a read-only sandbox,
#: this one has the same effect.
_GRANULAR = "sandbox_approval rules mcp_elicitations request_permissions skill_approval".split()
_ASKING_POLICY = "{granular={" + ",".join(f"{name}=true" for name in _GRANULAR) + "}}"
#: For each of our permissions, the approval policy and the sandbox.
_POLICIES = {
    "auto": ('"never"', "danger-full-access"),
    "ask": (_ASKING_POLICY, "read-only"),
    "edits": (_ASKING_POLICY, "read-only"),
    "deny": ('"never"', "read-only"),
}
#: The activities for the states that codex reports by OSC 7501.
_STATES: Mapping[str, Activity] = {
    "idle": "idle",
    "done": "idle",
    "error": "idle",
    "working": "busy",
    "blocked": "waiting",
}
#: The beginning of the title while codex waits for a person.
_ASKING_TITLE = re.compile(r"\[ [.!] \] ")
#: A shell script that starts an MCP server with the variables set in the file `$0`.
_WITH_FILE = 'set -a; . "$0"; exec "$@"'


class CodexTerminal:
    """Codex in a terminal."""

    shows_prompt = True

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, prompt: str, run_dir: Path
    ) -> Launch:
        """Return the command line; secrets of MCP servers are in the environment or in files."""
        policy, sandbox = _POLICIES[spec.permissions]
        options = [f"approval_policy={policy}", f"sandbox_mode={toml(sandbox)}"]
        if model := spec.model or parts_of(spec.note)[1]:
            options.append(f"model={toml(model)}")
        if spec.system_prompt and not session_id:  # a resumed thread keeps its instructions
            options.append(f"developer_instructions={toml(spec.system_prompt)}")
        env = {**spec.env, MARK: str(run_dir)}
        for number, (name, server) in enumerate(spec.mcp_servers.items()):
            config = server_of(server, run_dir, asks=name not in spec.unasked_servers)
            secrets = _hide_headers(config, number)
            _hide_variables(config, run_dir / f"server-{number}.env")
            env |= secrets
            options.append(f"mcp_servers.{name}={toml(config)}")
        # Codex's thread tools could begin threads that no one sees, and write to other sessions'.
        options.append('mcp_servers.codex_tui={command="true",enabled=false}')
        TerminalNotes(run_dir).begin()
        # With a daemon, the thread would be in another process than this one.
        argv = [*spec.command, "--no-daemon"]
        argv += ["resume", session_id] if session_id else []
        argv += common_options(spec)
        argv += [word for option in options for word in ("-c", option)]
        argv += ["--", prompt] if prompt else []
        return Launch(argv=tuple(argv), env=env, cwd=spec.workspace, session_id=session_id)

    def watch(
        self, *, run_dir: Path, workspace: str, env: Mapping[str, str], conversation: str | None
    ) -> "CodexWatch":
        """Return a watch of the program with this run directory."""
        return CodexWatch(run_dir, sessions_of(env), conversation)

    def transcript(
        self, conversation: str, *, workspace: str, env: Mapping[str, str]
    ) -> RecordTranscript:
        """Return the transcript of a conversation."""
        return RecordTranscript(rollout_finder(sessions_of(env), conversation), items_of)

    def model_requests(self, conversation: str, env: Mapping[str, str]) -> list[ModelRequest]:
        """Return the requests to the model in the transcript of a conversation."""
        return model_requests(conversation, env)

    def places(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that locate codex's files."""
        return {name: env[name] for name in ("HOME", "CODEX_HOME") if name in env}


class CodexWatch(NotedWatch):
    """The state of one codex, from OSC 7501 in its output, its title and its rollout.

    Codex reports each state only once. A watch that starts later has only the title, and the
    rollout, which shows whether the last turn is over.
    """

    def __init__(self, run_dir: Path, sessions: Path, conversation: str | None) -> None:
        super().__init__(TerminalNotes(run_dir), conversation)
        self._sessions = sessions
        self._find: Callable[[], Path | None] = rollout_finder(sessions, self.conversation or "")
        self._open_rollouts = OpenRollouts(sessions, f"{MARK}={run_dir}".encode())
        self._files_read_at = 0.0
        self._last_turn = LastTurn()
        self._reported_activity: Activity = "unknown"
        """The activity according to the last OSC 7501."""
        self._title = ""
        """The activity according to the title: "works", "asks", "rests" or empty."""

    @property
    def activity(self) -> Activity:
        """The activity, as far as output, title and rollout agree."""
        if self._reported_activity == "waiting" or self._title == "asks":
            return "waiting"
        if self._reported_activity == "busy" or self._title == "works":
            return "busy"
        if self._is_touched:
            return "unknown"
        if self._reported_activity == "unknown" and self._title == "rests":
            return self._last_turn.activity
        return self._reported_activity

    @property
    def transcript(self) -> RecordTranscript | None:
        """The transcript of the open conversation; None until it is known."""
        return RecordTranscript(self._find, items_of) if self.conversation else None

    def title(self, text: str) -> None:
        """Read the activity from the title, which begins with a spinner or an action marker."""
        if _ASKING_TITLE.match(text):
            self._title = "asks"
        else:
            self._title = "works" if "⠀" < text[:1] <= "⣿" else "rests" if text else ""
        # Codex sets no title before its startup dialogs are over.
        self.state.is_ready = self.is_ready or bool(text)
        self.notify()

    def osc(self, number: int, data: str) -> None:
        """Read the state from OSC 7501, such as `state=blocked:app=codex:kind=permission`."""
        fields = dict(part.partition("=")[::2] for part in data.split(":"))
        if number != 7501 or "state" not in fields:
            return
        self.state.is_ready = True
        self._reported_activity = _STATES.get(fields["state"], "unknown")
        self.state.waiting_for = fields.get("kind", "")
        if self._reported_activity in ("busy", "waiting"):
            self._set_touched(False)
        self.notify()

    def typed(self) -> None:
        """Note that a person has typed, which may have opened a menu.

        Codex reports `idle` again at the first key, so the note lasts until it works again.
        """
        if self.activity == "idle":
            self._set_touched(True)
        self.notify()

    async def poll(self) -> None:
        """Check which thread the process writes, and whether the thread's last turn is over."""
        if time.monotonic() >= self._files_read_at + FILES_POLL_S:
            rollout = await asyncio.to_thread(self._read_files)
            thread = thread_in(rollout) if rollout else None
            if thread and thread != self.conversation:
                self._set_conversation(thread)
                self._find = rollout_finder(self._sessions, thread)
            self._files_read_at = time.monotonic()

    def _read_files(self) -> Path | None:
        rollout = self._open_rollouts.newest()
        if self._reported_activity == "unknown" and (path := rollout or self._find()):
            self._last_turn.read(path)
        return rollout


def _hide_headers(config: dict[str, Any], number: int) -> dict[str, str]:
    """Move the headers of a server's configuration into environment variables; return these.

    `number` makes their names unique among the servers.
    """
    headers = config.pop("http_headers", {})
    if headers:
        names = {header: f"{HEADERS}{number}_{at}" for at, header in enumerate(headers)}
        config["env_http_headers"] = names
        return {names[header]: value for header, value in headers.items()}
    return {}


def _hide_variables(config: dict[str, Any], file: Path) -> None:
    """Move the variables of a server's configuration into `file`, and have a shell read them."""
    if variables := config.pop("env", {}):
        lines = (f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
        write_new(file, "".join(lines).encode("utf-8", "replace"))
        config["args"] = ["-c", _WITH_FILE, str(file), config["command"], *config["args"]]
        config["command"] = "/bin/sh"
