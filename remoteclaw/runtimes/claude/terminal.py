"""Claude's own program in a terminal: its start, and its state according to hooks and records.

A hook appends its input to a file in the run directory. So no RemoteClaw process has to run at that
moment, and a process that starts later reads what it missed.
"""

import asyncio
import contextlib
import shlex
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.events import PermissionEvent
from remoteclaw.host.files import write_new
from remoteclaw.protocols import Activity, AgentSpec, Decision, Launch, ModelRequest
from remoteclaw.runtimes.claude.hook import WAIT_S
from remoteclaw.runtimes.claude.hook_permissions import HookPermissions, permission_hook
from remoteclaw.runtimes.claude.launch import (
    PLANNING,
    SETTINGS,
    common_options,
    environment_of,
    server_of,
)
from remoteclaw.runtimes.claude.transcript import (
    Interruptions,
    file_of,
    items_of,
    model_requests,
    projects_of,
)
from remoteclaw.runtimes.terminal import (
    BaseWatch,
    LineFile,
    RecordTranscript,
    main_argument,
    record_of,
)
from remoteclaw.runtimes.wire import UUID, mapping, mappings, text

#: The file to which the hooks append, in the run directory.
NOTES = "notes"
#: How long claude waits for a hook, in seconds. It waits, so that the hooks append in order.
HOOK_S = 10
#: Claude deletes transcripts that were not changed for this many days; its default is 30.
KEPT_DAYS = 3650
#: The hooks whose whole input is appended.
_HOOKS = (
    *("SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "Notification"),
    *("Stop", "StopFailure", "SessionEnd"),
)
#: The hooks of which only the name is appended, because their input has the tool's whole output.
_BARE_HOOKS = ("PostToolUse", "PostToolUseFailure")

#: Claude's permission mode for each of our permissions. Under "auto", tools are also allowed by
#: name: claude's own mode for that is refused to root, and begins with a dialog.
_MODES = {"ask": "default", "edits": "acceptEdits", "auto": "acceptEdits", "deny": "dontAsk"}
_AUTO = ("Bash", "Edit", "NotebookEdit", "Read", "Skill", "WebFetch", "WebSearch", "Write")


class ClaudeTerminal:
    """Claude Code in a terminal."""

    shows_prompt = False

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, prompt: str, run_dir: Path
    ) -> Launch:
        """Return the command line; settings, MCP servers and system prompt are in files."""
        own_id = session_id or str(uuid.uuid4())
        is_planning = spec.note.startswith(PLANNING)
        mode = "plan" if is_planning else _MODES[spec.permissions]
        argv = [*spec.command, f"--{'resume' if session_id else 'session-id'}={own_id}"]
        argv += ["--permission-mode", mode]
        argv += ["--settings", _write_file(run_dir, "settings.json", _settings(run_dir / NOTES))]
        if spec.mcp_servers:
            servers = {
                name: server_of(server, run_dir) for name, server in spec.mcp_servers.items()
            }
            argv += ["--mcp-config", _write_file(run_dir, "mcp.json", {"mcpServers": servers})]
        if spec.system_prompt:
            write_new(run_dir / "system.md", spec.system_prompt.encode("utf-8", "replace"))
            argv += ["--append-system-prompt-file", str(run_dir / "system.md")]
        # The last common option takes any number of values, so only `--` may follow it.
        argv += common_options(spec, run_dir, allowed=_AUTO if spec.permissions == "auto" else ())
        if prompt:
            argv += ["--", prompt]
        write_new(run_dir / NOTES, orjson.dumps({"is_prompted": bool(prompt)}) + b"\n")
        return Launch(
            argv=tuple(argv), env=environment_of(spec), cwd=spec.workspace, session_id=own_id
        )

    def watch(
        self, *, run_dir: Path, workspace: str, env: Mapping[str, str], conversation: str | None
    ) -> "ClaudeWatch":
        """Return a watch of the program with this run directory."""
        return ClaudeWatch(run_dir / NOTES, projects_of(env), conversation)

    def transcript(
        self, conversation: str, *, workspace: str, env: Mapping[str, str]
    ) -> RecordTranscript:
        """Return the transcript of a conversation."""
        return RecordTranscript(partial(file_of, projects_of(env), conversation), items_of)

    def model_requests(self, conversation: str, env: Mapping[str, str]) -> list[ModelRequest]:
        """Return the requests to the model in the transcript of a conversation."""
        return model_requests(conversation, env)

    def places(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that locate claude's files."""
        return {name: env[name] for name in ("HOME", "CLAUDE_CONFIG_DIR") if name in env}


class ClaudeWatch(BaseWatch):
    """The state of one claude, from its hooks, its title and its transcript.

    None of them is enough: claude has the same title while it asks and while it is idle, and no
    hook reports that a person has interrupted it.
    """

    def __init__(self, notes: Path, projects: Path, conversation: str | None) -> None:
        super().__init__(conversation)
        self._notes, self._position = LineFile(notes), ""
        self._projects = projects
        self._path: Path | None = None
        """The transcript named by a hook; None before that."""
        self._hook_activity: Activity = "unknown"
        """The activity according to the hooks."""
        self._is_touched = False
        """Whether a person has typed while claude was idle, which may have opened a menu."""
        self._is_prompted = False
        """Whether claude was started with a prompt that it has not taken up yet."""
        self._prompt = ""
        """The id of the last prompt."""
        self._title = ""
        """The activity according to the title: "works", "rests" or empty."""
        self._interruptions = Interruptions()
        self._permissions = HookPermissions(notes.parent)

    @property
    def activity(self) -> Activity:
        """The activity, as far as hooks, title and transcript agree."""
        if self._hook_activity in ("busy", "waiting") and not self._was_interrupted:
            return self._hook_activity
        if self._title == "works":
            return "busy"
        if self._hook_activity == "unknown" or self._is_touched:
            return "unknown"
        return "idle"

    @property
    def requests(self) -> Sequence[PermissionEvent]:
        """The requests that waiting hooks hold open, while claude shows its dialog."""
        return self._permissions.requests() if self.activity == "waiting" else ()

    async def answer(self, request: str, decision: Decision) -> None:
        """Pass the decision to the hook of a request. Raises `OSError`."""
        self._permissions.answer(request, decision)

    @property
    def _was_interrupted(self) -> bool:
        is_last = bool(self._prompt) and self._interruptions.prompt == self._prompt
        return is_last and self._title == "rests"

    @property
    def transcript(self) -> RecordTranscript | None:
        """The transcript of the open conversation; None until it is known."""
        if self.conversation is None:
            return None
        return RecordTranscript(self._find, items_of)

    def title(self, text: str) -> None:
        """Read the activity from the title, which begins with a spinner while claude works."""
        before, sign = self._title, text[:1]
        self._title = "works" if "⠀" < sign <= "⣿" else "rests" if sign == "✳" else ""
        if self._hook_activity == "waiting" and (before, self._title) == ("rests", "works"):
            self._hook_activity = "busy"  # the dialog was answered
        self.notify()

    def typed(self) -> None:
        """Note that a person has typed, which may have opened a menu that no hook reports.

        The note is also appended to the file, for the watch of a restarted gateway.
        """
        if self.activity == "idle":
            self._set_touched(True)
        self.notify()

    def rested(self) -> None:
        """Note that no menu is open and nothing is typed."""
        self._set_touched(False)
        self.notify()

    def _set_touched(self, is_touched: bool) -> None:
        if is_touched == self._is_touched:
            return
        self._is_touched = is_touched
        name = b"typed" if is_touched else b"rested"
        with contextlib.suppress(OSError), self._notes.path.open("ab") as file:
            file.write(b'{"hook_event_name":"%b"}\n' % name)

    async def poll(self) -> None:
        """Read new notes of the hooks and new records of the transcript."""
        if self._notes.has_more(self._position):
            for line, next_position in await asyncio.to_thread(self._read_notes):
                self._position = next_position
                if line.strip():
                    self._apply(self._permissions.register(record_of(line)))
        if self._hook_activity in ("busy", "waiting"):
            await asyncio.to_thread(self._read_record)
        if self.activity != "waiting":
            self._permissions.release()

    def _read_notes(self) -> list[tuple[bytes, str]]:
        return list(self._notes.read(self._position))

    def _read_record(self) -> None:
        if path := self._find():
            self._interruptions.read(path)

    def _find(self) -> Path | None:
        return self._path or file_of(self._projects, self.conversation or "")

    def _apply(self, note: dict[str, Any]) -> None:
        """Update the state from the input of a hook."""
        self._prompt = text(note.get("prompt_id")) or self._prompt
        name = note.get("hook_event_name")
        if name != "Notification":  # it may arrive a minute later, because claude is idle
            self._is_touched = name == "typed"
        match name:
            case "SessionStart":
                self._begin(note)
            case "typed" | "rested":
                pass
            case "UserPromptSubmit" | "PreToolUse":
                self._hook_activity = "busy"
            case "PostToolUse" | "PostToolUseFailure":
                # With several tools at once, the dialog of another one may still be open.
                if self._hook_activity != "waiting" or self._title != "rests":
                    self._hook_activity = "busy"
            case "PermissionRequest":
                self._hook_activity, self.state.waiting_for = "waiting", _request_text(note)
            case "Notification" if note.get("notification_type") in _ASKING_NOTIFICATIONS:
                if self._hook_activity != "waiting":
                    self._hook_activity = "waiting"
                    self.state.waiting_for = text(note.get("message"))
            case "Stop" | "StopFailure":
                self._hook_activity = "idle"
            case "Notification":
                pass
            case None if "is_prompted" in note:
                self._is_prompted = note["is_prompted"] is True
            case _:  # the end, or an unreadable line
                self._hook_activity = "unknown"

    def _begin(self, note: dict[str, Any]) -> None:
        """Update the state at the start of a session: the first one, or another conversation."""
        self.state.is_ready = True
        if note.get("source") == "compact":
            return
        id_, path = text(note.get("session_id")), Path(text(note.get("transcript_path")))
        if UUID.fullmatch(id_):
            self.state.conversation = id_
            is_consistent = path.name == f"{id_}.jsonl" and path.is_relative_to(self._projects)
            self._path = path if is_consistent else None
        self._hook_activity = "unknown" if self._is_prompted else "idle"
        self._is_prompted = False


#: The types of notifications for which a dialog is open.
_ASKING_NOTIFICATIONS = ("permission_prompt", "elicitation_dialog")


def _request_text(note: dict[str, Any]) -> str:
    """Return a short description of a request for a permission."""
    tool, tool_input = text(note.get("tool_name")), mapping(note.get("tool_input"))
    if questions := mappings(tool_input.get("questions")):
        return main_argument({"text": questions[0].get("question")})
    return f"{tool}: {main_argument(tool_input)}".removesuffix(": ")


def _settings(notes: Path) -> dict[str, Any]:
    """Return settings that override the user's, with hooks that append their input to `notes`."""
    # A hook that exits with status 2 blocks the action. A shell that can't open the file would.
    to_file = f">> {shlex.quote(str(notes))} || :"
    commands = dict.fromkeys(_HOOKS, f"{{ cat; echo; }} {to_file}")
    for event in _BARE_HOOKS:
        bare = orjson.dumps({"hook_event_name": event}).decode()
        commands[event] = f"{{ cat >/dev/null; echo {shlex.quote(bare)}; }} {to_file}"
    commands["PermissionRequest"] = permission_hook(notes)
    waits = {"PermissionRequest": WAIT_S}
    hooks = {
        event: [
            {"hooks": [{"type": "command", "command": run, "timeout": waits.get(event, HOOK_S)}]}
        ]
        for event, run in commands.items()
    }
    return {**SETTINGS, "cleanupPeriodDays": KEPT_DAYS, "hooks": hooks}


def _write_file(run_dir: Path, name: str, content: dict[str, Any]) -> str:
    write_new(run_dir / name, orjson.dumps(content))
    return str(run_dir / name)
