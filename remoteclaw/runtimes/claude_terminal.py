"""Claude's own program in a terminal: how it is started, and what its hooks and records say.

A hook appends what claude tells it to a file of the run directory. So no process of ours has to be
there, and one that comes later reads what it missed.
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
from remoteclaw.protocols import Activity, AgentSpec, Decision, Launch
from remoteclaw.runtimes.claude_asks import WAIT_S, ClaudeAsks, asking_hook
from remoteclaw.runtimes.claude_launch import (
    PLANNING,
    SETTINGS,
    common_options,
    environment_of,
    server_of,
)
from remoteclaw.runtimes.claude_transcript import Interruptions, items_of, projects_of
from remoteclaw.runtimes.terminal import BaseWatch, LineFile, RecordTranscript, record_of, telling
from remoteclaw.runtimes.wire import UUID, mapping, mappings, text

#: The file to which the hooks append, in the run directory.
NOTES = "notes"
#: How long claude waits for a hook, in seconds: they run one after the other, so that what they
#: append stands in the order in which it happened.
HOOK_S = 10
#: Claude removes transcripts that were not changed for so many days; 30 unless it is said.
KEPT_DAYS = 3650
_HOOKS = (
    *("SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "Notification"),
    *("Stop", "StopFailure", "SessionEnd"),
)
#: Those of which it is told only that they were: their input has all that a tool gave back.
_BARE_HOOKS = ("PostToolUse", "PostToolUseFailure")

#: Claude's mode for each of our permissions. Under "auto", tools are allowed by their names: its
#: own mode for that is refused to root, and begins with a dialog.
_MODES = {"ask": "default", "edits": "acceptEdits", "auto": "acceptEdits", "deny": "dontAsk"}
_AUTO = ("Bash", "Edit", "NotebookEdit", "Read", "Skill", "WebFetch", "WebSearch", "Write")


class ClaudeTerminal:
    """Claude Code in a terminal."""

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, prompt: str, run_dir: Path
    ) -> Launch:
        """Return the command line; settings, MCP servers and system prompt are files."""
        own_id = session_id or str(uuid.uuid4())
        is_planning = spec.note.startswith(PLANNING)
        mode = "plan" if is_planning else _MODES[spec.permissions]
        argv = [*spec.command, f"--{'resume' if session_id else 'session-id'}={own_id}"]
        argv += ["--permission-mode", mode]
        argv += ["--settings", _file(run_dir, "settings.json", _settings(run_dir / NOTES))]
        if spec.mcp_servers:
            servers = {name: server_of(each, run_dir) for name, each in spec.mcp_servers.items()}
            argv += ["--mcp-config", _file(run_dir, "mcp.json", {"mcpServers": servers})]
        if spec.system_prompt:
            write_new(run_dir / "system.md", spec.system_prompt.encode("utf-8", "replace"))
            argv += ["--append-system-prompt-file", str(run_dir / "system.md")]
        # The last option takes several words.
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
        """Return what follows a claude."""
        return ClaudeWatch(run_dir / NOTES, projects_of(env), conversation)

    def transcript(
        self, conversation: str, *, workspace: str, env: Mapping[str, str]
    ) -> RecordTranscript:
        """Return the record of a conversation."""
        return RecordTranscript(partial(_find, projects_of(env), conversation), items_of)

    def places(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the part of its environment that says where it keeps its files."""
        return {name: env[name] for name in ("HOME", "CLAUDE_CONFIG_DIR") if name in env}


class ClaudeWatch(BaseWatch):
    """What claude says: by hooks; by its title, that it works; by its record, that it was stopped.

    The title of a claude that asks is the title of one that is idle. A hook doesn't tell that a
    person has stopped it.
    """

    def __init__(self, notes: Path, projects: Path, conversation: str | None) -> None:
        super().__init__(conversation)
        self._notes, self._position = LineFile(notes), ""
        self._projects = projects
        self._path: Path | None = None
        """The transcript, as a hook has named it."""
        self._said: Activity = "unknown"
        """What the hooks say."""
        self._is_prompted = False
        """Whether it was started with a prompt, which it has not taken up."""
        self._prompt = ""
        """The id of the last prompt."""
        self._title = ""
        """What its title says: "works", "rests" or nothing."""
        self._interruptions = Interruptions()
        self._asks = ClaudeAsks(notes.parent)

    @property
    def activity(self) -> Activity:
        """What it does, as far as all its signs agree."""
        if self._said in ("busy", "waiting") and self._was_interrupted:
            return "idle"
        return "busy" if self._title == "works" and self._said != "waiting" else self._said

    @property
    def requests(self) -> Sequence[PermissionEvent]:
        """What its hooks wait for, while it asks."""
        return self._asks.requests() if self.activity == "waiting" else ()

    async def answer(self, request: str, decision: Decision) -> None:
        """Have the hook of a request say what was decided."""
        self._asks.answer(request, decision)

    @property
    def _was_interrupted(self) -> bool:
        is_last = bool(self._prompt) and self._interruptions.prompt == self._prompt
        return is_last and self._title == "rests"

    @property
    def transcript(self) -> RecordTranscript | None:
        """The record of the conversation that is open."""
        if self.conversation is None:
            return None
        return RecordTranscript(self._find, items_of)

    def title(self, text: str) -> None:
        """Take the title: a wheel of dots turns while it works."""
        before, sign = self._title, text[:1]
        self._title = "works" if "⠀" < sign <= "⣿" else "rests" if sign == "✳" else ""
        if self._said == "waiting" and (before, self._title) == ("rests", "works"):
            self._said = "busy"  # a person has answered
        self.tell()

    def typed(self) -> None:
        """Note that a person has typed: a menu or a dialog may be open, of which no hook tells.

        It is noted, so that a gateway that is restarted knows it.
        """
        if self._said == "idle" or self._was_interrupted:
            self._said = "unknown"
            with contextlib.suppress(OSError), self._notes.path.open("ab") as file:
                file.write(b'{"hook_event_name":"typed"}\n')
        self.tell()

    async def look(self) -> None:
        """Read what the hooks have appended, and what was recorded."""
        if self._notes.has_more(self._position):
            for line, behind in await asyncio.to_thread(self._read_notes):
                self._position = behind
                if line.strip():
                    self._take(self._asks.take(record_of(line)))
        if self._said in ("busy", "waiting"):
            await asyncio.to_thread(self._read_record)
        if self.activity != "waiting":
            self._asks.let_go()

    def _read_notes(self) -> list[tuple[bytes, str]]:
        return list(self._notes.read(self._position))

    def _read_record(self) -> None:
        if path := self._find():
            self._interruptions.read(path)

    def _find(self) -> Path | None:
        return self._path or _find(self._projects, self.conversation or "")

    def _take(self, note: dict[str, Any]) -> None:
        """Take what a hook was told."""
        self._prompt = text(note.get("prompt_id")) or self._prompt
        match note.get("hook_event_name"):
            case "SessionStart":
                self._begin(note)
            case "UserPromptSubmit" | "PreToolUse":
                self._said = "busy"
            case "PostToolUse" | "PostToolUseFailure":
                # With several tools at once, another one may be asked for still.
                if self._said != "waiting" or self._title != "rests":
                    self._said = "busy"
            case "PermissionRequest":
                self._said, self.known.waiting_for = "waiting", _asked(note)
            case "Notification" if note.get("notification_type") in _ASKING:
                if self._said != "waiting":
                    self._said, self.known.waiting_for = "waiting", text(note.get("message"))
            case "Stop" | "StopFailure":
                self._said = "idle"
            case "Notification":
                pass
            case None if "is_prompted" in note:
                self._is_prompted = note["is_prompted"] is True
            case _:  # typed, the end, or a line that can't be read
                self._said = "unknown"

    def _begin(self, note: dict[str, Any]) -> None:
        """Note that a conversation is open in it: the first one, or another one than before."""
        self.known.is_ready = True
        if note.get("source") == "compact":
            if self._said == "unknown":  # a person has typed `/compact`: no Stop comes
                self._said = "idle"
            return
        id_, path = text(note.get("session_id")), Path(text(note.get("transcript_path")))
        if UUID.fullmatch(id_):
            self.known.conversation = id_
            is_its_own = path.name == f"{id_}.jsonl" and path.is_relative_to(self._projects)
            self._path = path if is_its_own else None
        self._said = "unknown" if self._is_prompted else "idle"
        self._is_prompted = False


#: The kinds of notifications that ask for something.
_ASKING = ("permission_prompt", "elicitation_dialog")


def _asked(note: dict[str, Any]) -> str:
    """Return what a person is asked for, in a few words."""
    tool, given = text(note.get("tool_name")), mapping(note.get("tool_input"))
    if questions := mappings(given.get("questions")):
        return telling({"text": questions[0].get("question")})
    return f"{tool}: {telling(given)}".removesuffix(": ")


def _settings(notes: Path) -> dict[str, Any]:
    """Return settings above those of the user: hooks that append to a file what they are told."""
    # A hook that fails with status 2, as a shell does that can't open the file, blocks what it
    # was told of.
    to_file = f">> {shlex.quote(str(notes))} || :"
    commands = dict.fromkeys(_HOOKS, f"{{ cat; echo; }} {to_file}")
    for event in _BARE_HOOKS:
        bare = orjson.dumps({"hook_event_name": event}).decode()
        commands[event] = f"{{ cat >/dev/null; echo {shlex.quote(bare)}; }} {to_file}"
    commands["PermissionRequest"] = asking_hook(notes)
    waits = {"PermissionRequest": WAIT_S}
    hooks = {
        event: [
            {"hooks": [{"type": "command", "command": run, "timeout": waits.get(event, HOOK_S)}]}
        ]
        for event, run in commands.items()
    }
    return {**SETTINGS, "cleanupPeriodDays": KEPT_DAYS, "hooks": hooks}


def _file(run_dir: Path, name: str, content: dict[str, Any]) -> str:
    write_new(run_dir / name, orjson.dumps(content))
    return str(run_dir / name)


def _find(projects: Path, conversation: str) -> Path | None:
    """Return the transcript of a conversation, in whichever workspace."""
    found = projects.glob(f"*/{conversation}.jsonl") if UUID.fullmatch(conversation) else ()
    return next(iter(found), None)
