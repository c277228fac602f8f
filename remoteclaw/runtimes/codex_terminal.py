"""Codex' own program in a terminal: how it is started, and what it and its records say."""

import asyncio
import json
import re
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from remoteclaw.host.files import write_new
from remoteclaw.protocols import Activity, AgentSpec, Launch
from remoteclaw.runtimes.codex_rollouts import (
    LastTurn,
    OpenRollouts,
    finder,
    items_of,
    sessions_of,
    thread_in,
)
from remoteclaw.runtimes.codex_thread import HEADERS, common_options, server_of
from remoteclaw.runtimes.terminal import NotedWatch, RecordTranscript, TerminalNotes

#: The variable by which its process is known: its run directory.
MARK = "REMOTECLAW_TERMINAL"
#: How often its open files are looked at, in seconds.
FILES_S = 1.0

#: Asks for whatever its sandbox refuses. In a terminal it has no policy "untrusted", which asks
#: before anything that is not known to be harmless; in a sandbox that only reads, this does.
_ASKED = "sandbox_approval rules mcp_elicitations request_permissions skill_approval".split()
_ASKS = "{granular={" + ",".join(f"{what}=true" for what in _ASKED) + "}}"
_POLICIES = {
    "auto": ('"never"', "danger-full-access"),
    "ask": (_ASKS, "read-only"),
    "edits": (_ASKS, "read-only"),
    "deny": ('"never"', "read-only"),
}
#: The states that it tells by OSC 7501.
_STATES: Mapping[str, Activity] = {
    "idle": "idle",
    "done": "idle",
    "error": "idle",
    "working": "busy",
    "blocked": "waiting",
}
_ASKING = re.compile(r"\[ [.!] \] ")
#: Starts an MCP server with the variables that a file sets.
_WITH_FILE = 'set -a; . "$0"; exec "$@"'


class CodexTerminal:
    """Codex in a terminal."""

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, prompt: str, run_dir: Path
    ) -> Launch:
        """Return the command line; keys of MCP servers are in the environment, or in files."""
        policy, sandbox = _POLICIES[spec.permissions]
        options = [f"approval_policy={policy}", f"sandbox_mode={_toml(sandbox)}"]
        if spec.model:
            options.append(f"model={_toml(spec.model)}")
        if spec.system_prompt and not session_id:  # a thread keeps those that it began with
            options.append(f"developer_instructions={_toml(spec.system_prompt)}")
        env = {**spec.env, MARK: str(run_dir)}
        for number, (name, server) in enumerate(spec.mcp_servers.items()):
            about = server_of(server, run_dir, asks=name not in spec.unasked_servers)
            secrets = _hide_headers(about, number)
            _hide_variables(about, run_dir / f"server-{number}.env")
            env |= secrets
            options.append(f"mcp_servers.{name}={_toml(about)}")
        # Its tools for threads begin some that no one sees, and write to those of other sessions.
        options.append('mcp_servers.codex_tui={command="true",enabled=false}')
        TerminalNotes(run_dir).begin()
        # With a daemon, other processes than this one would have its thread.
        argv = [*spec.command, "--no-daemon"]
        argv += ["resume", session_id] if session_id else []
        argv += common_options(spec)
        argv += [word for option in options for word in ("-c", option)]
        argv += ["--", prompt] if prompt else []
        return Launch(argv=tuple(argv), env=env, cwd=spec.workspace, session_id=session_id)

    def watch(
        self, *, run_dir: Path, workspace: str, env: Mapping[str, str], conversation: str | None
    ) -> "CodexWatch":
        """Return what follows a codex."""
        return CodexWatch(run_dir, sessions_of(env), conversation)

    def transcript(
        self, conversation: str, *, workspace: str, env: Mapping[str, str]
    ) -> RecordTranscript:
        """Return the record of a conversation."""
        return RecordTranscript(finder(sessions_of(env), conversation), items_of)

    def places(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the part of its environment that says where it keeps its files."""
        return {name: env[name] for name in ("HOME", "CODEX_HOME") if name in env}


class CodexWatch(NotedWatch):
    """What codex says: its state, in its output; its title; and its rollout, which remains.

    A state is told once. Who comes later has the title, and from the rollout whether the last turn
    is over.
    """

    def __init__(self, run_dir: Path, sessions: Path, conversation: str | None) -> None:
        super().__init__(TerminalNotes(run_dir), conversation)
        self._sessions = sessions
        self._find: Callable[[], Path | None] = finder(sessions, self.conversation or "")
        self._open = OpenRollouts(sessions, f"{MARK}={run_dir}".encode())
        self._looked_at = 0.0
        self._last_turn = LastTurn()
        self._state: Activity = "unknown"
        """What it has said last."""
        self._title = ""
        """What its title says: "works", "asks", "rests" or nothing."""

    @property
    def activity(self) -> Activity:
        """What it does, as far as all its signs agree."""
        if self._state == "waiting" or self._title == "asks":
            return "waiting"
        if self._state == "busy" or self._title == "works":
            return "busy"
        if self._is_touched:
            return "unknown"
        if self._state == "unknown" and self._title == "rests":
            return self._last_turn.said
        return self._state

    @property
    def transcript(self) -> RecordTranscript | None:
        """The record of the conversation that is open."""
        return RecordTranscript(self._find, items_of) if self.conversation else None

    def title(self, text: str) -> None:
        """Take the title: it begins with a wheel of dots, or that an action is required."""
        if _ASKING.match(text):
            self._title = "asks"
        else:
            self._title = "works" if "⠀" < text[:1] <= "⣿" else "rests" if text else ""
        # None is set before the dialogs of its start are over.
        self.known.is_ready = self.is_ready or bool(text)
        self.tell()

    def osc(self, number: int, data: str) -> None:
        """Take its state, such as `state=blocked:app=codex:kind=permission`."""
        said = dict(part.partition("=")[::2] for part in data.split(":"))
        if number != 7501 or "state" not in said:
            return
        self.known.is_ready = True
        self._state = _STATES.get(said["state"], "unknown")
        self.known.waiting_for = said.get("kind", "")
        if self._state in ("busy", "waiting"):
            self._touch(False)
        self.tell()

    def typed(self) -> None:
        """Note that a person has typed: a menu may be open until it works the next time.

        That it is idle it says again at the first key.
        """
        if self.activity == "idle":
            self._touch(True)
        self.tell()

    async def look(self) -> None:
        """See which thread it writes, and whether that one's last turn is over."""
        if time.monotonic() >= self._looked_at + FILES_S:
            opened = await asyncio.to_thread(self._read_files)
            thread = thread_in(opened) if opened else None
            if thread and thread != self.conversation:
                self._opened(thread)
                self._find = finder(self._sessions, thread)
            self._looked_at = time.monotonic()

    def _read_files(self) -> Path | None:
        opened = self._open.newest()
        if self._state == "unknown" and (path := opened or self._find()):
            self._last_turn.read(path)
        return opened


def _hide_headers(about: dict[str, Any], number: int) -> dict[str, str]:
    """Return a server's headers as variables, by whose names codex is told of them."""
    headers = about.pop("http_headers", {})
    if headers:
        names = {header: f"{HEADERS}{number}_{at}" for at, header in enumerate(headers)}
        about["env_http_headers"] = names
        return {names[header]: value for header, value in headers.items()}
    return {}


def _hide_variables(about: dict[str, Any], file: Path) -> None:
    """Make a shell start a server, which reads its variables from a file."""
    if variables := about.pop("env", {}):
        lines = (f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
        write_new(file, "".join(lines).encode("utf-8", "replace"))
        about["args"] = ["-c", _WITH_FILE, str(file), about["command"], *about["args"]]
        about["command"] = "/bin/sh"


def _toml(value: Any) -> str:
    """Return a value as TOML has it on one line."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(k)}={_toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
