"""Gemini CLI, over ACP.

It destroys its own sessions: a later start deletes the history of one that was resumed, and one
that is loaded in the minute in which it was begun is overwritten. So another process goes on from
our record.

It connects MCP servers only in a workspace that it trusts, and there it obeys what it finds. So a
workspace is trusted where there is nothing to obey (docs/decisions/0023-gemini-s-trust.md).
"""

import contextlib
import glob
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.errors import AgentUnavailable, ErrorCategory, classify_error
from remoteclaw.events import ErrorEvent, Intent
from remoteclaw.messages import OWN_SERVER
from remoteclaw.protocols import FILES, AgentSpec, Capabilities, Launch, Remedies
from remoteclaw.runtimes.acp import AcpRuntime
from remoteclaw.runtimes.acp_turn import LogNote
from remoteclaw.runtimes.base import inherit
from remoteclaw.runtimes.gemini_chats import homes
from remoteclaw.runtimes.gemini_launch import common_options, environment_of
from remoteclaw.runtimes.gemini_terminal import GeminiTerminal
from remoteclaw.runtimes.model_wait import retry_at_ms
from remoteclaw.runtimes.wire import mapping, mappings, text

#: The paths that it obeys in a workspace that it trusts: settings, policies, hooks, commands,
#: agents and skills; environments, which it also looks for in all directories above.
_OBEYED = (".gemini", ".agents", ".env")
#: Its settings name programs that `git status` runs, which gemini doesn't ask for when it trusts.
_GIT = ".git"
#: The files of instructions, unless settings name others. Those in directories below count, too.
_INSTRUCTIONS = "GEMINI.md"
#: The most directories that are searched for those: more would delay each start by a second.
MAX_DIRECTORIES = 20_000
#: The settings of all users, as gemini finds them on Linux.
_SYSTEM = Path("/etc/gemini-cli")
#: Strings, which are kept, and comments, which aren't.
_COMMENTS = re.compile(r'("(?:\\.|[^"\\])*+"?)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
#: The prefix of our server's tools (`Home.server_name`).
_OWN_TOOL = re.compile(rf"^mcp_{OWN_SERVER}-[0-9a-f]+_")

#: The settings of the place for questions beside a turn: no tools, and no MCP servers.
_ASIDES = orjson.dumps(
    {
        "tools": {"core": [], "allowed": []},
        "mcp": {"allowed": ["none"]},
        "skills": {"enabled": False},
    }
)

#: The pause before its first retry, and the longest one, in seconds.
_FIRST_WAIT_S, _LONGEST_WAIT_S = 5.0, 30.0

log = logging.getLogger(__name__)


class GeminiRuntime(AcpRuntime):
    """Gemini CLI."""

    name = "gemini"
    command = ("gemini",)
    capabilities = Capabilities(
        steers=False,
        explains_denial=False,
        takes_commands=True,
        asides="notes",
        resumes="from our record",
        rules=frozenset(("Bash", "Edit", "WebFetch")),
        tested="0.61.0",
    )
    remedies = Remedies(
        install="npm install -g @google/gemini-cli",
        sign_in="run `gemini`, then /auth",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        models="`gemini`, then /model",
    )
    terminal = GeminiTerminal()
    aside_modes = ()  # it has no tools then, and where it isn't trusted, no mode takes them away
    log = (
        re.compile(rb"\[[0-9TZ:.-]+\] \[[A-Z]+\]"),
        re.compile(rb"\] Attempt \d+ failed|Retrying after \d+ms"),
    )

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return what gemini needs of our environment: its own settings and its keys."""
        env = inherit(inherited, prefixes=("GEMINI_", "GOOGLE_"))
        env["GEMINI_CLI_NO_RELAUNCH"] = "true"  # else it starts itself a second time
        env["NO_COLOR"] = "1"
        # Nothing else tells that it asks its model again, which it does for minutes.
        env.setdefault("GEMINI_DEBUG_LOG_FILE", "/dev/stderr")
        return env

    def read_log(self, line: str) -> LogNote | None:
        """Return the reason of a retry, and the pause before it."""
        stated = re.search(r"Retrying after (\d{1,9})ms", line)
        attempt = re.search(r"Attempt (\d{1,3}) failed(?: with status (\d{3}))?", line)
        if stated:
            wait_s = int(stated[1]) / 1000
        elif attempt and "Retrying with" in line[attempt.end() :]:
            wait_s = min(_FIRST_WAIT_S * 2 ** (int(attempt[1]) - 1), _LONGEST_WAIT_S)
        else:
            return None  # the next line has the pause
        status = int(attempt[2]) if attempt and attempt[2] else 429 if stated else None
        category = classify_error(line, status=status)
        retry_at = retry_at_ms(line) if stated else None
        why = line.rpartition("[WARN] ")[2]
        return LogNote(failure=ErrorEvent(category, why, retry_at_ms=retry_at), wait_s=wait_s)

    def fitted(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec with trust where that obeys nothing, else without any MCP server."""
        if spec.trust_workspace:
            return spec
        if spec.permissions != "deny":  # which leaves it no tool of a server anyway
            asks = spec.permissions != "auto"
            if (problem := trust_problem(spec.workspace, spec.env, asks=asks)) is None:
                return replace(spec, trust_workspace=True)
            log.warning("gemini: %s", problem)
        return replace(spec.without_tools(), mcp_servers={})

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line. What needs a permission is asked: we decide about it.

        Raises `AgentUnavailable` for a session of an earlier process, before it is started in vain.
        """
        if session_id is not None:
            why = "gemini can't go on with a session of an earlier process"
            raise AgentUnavailable(why, category=ErrorCategory.SESSION_EXPIRED)
        argv = [*spec.command, "--acp", "--approval-mode", "default"]
        argv += ["--include-directories", str(run_dir / FILES)]
        argv += common_options(spec, [self.server_name(name, spec) for name in spec.mcp_servers])
        env = environment_of(spec)
        return Launch(argv=tuple(argv), env=env, cwd=spec.workspace, session_id=None)

    def aside_place(self, spec: AgentSpec, run_dir: Path) -> str:
        """Return a directory of ours, for all questions beside a turn.

        Its settings leave gemini no tools, if it is told to trust its workspace; else those that
        read find nothing there. Its sessions are not listed among those of the workspace.
        """
        place = run_dir.parent.parent / "asides"
        for directory in (place, place / ".gemini"):
            directory.mkdir(mode=0o700, exist_ok=True)
        new = run_dir / "aside-settings"
        new.write_bytes(_ASIDES)
        new.replace(place / ".gemini" / "settings.json")
        return str(place)

    def forget(self, spec: AgentSpec, session: str) -> None:
        """Remove the file of a session, which has its whole id in the first line."""
        name = f"tmp/*/chats/session-*-{glob.escape(session[:8])}.jsonl"
        for home in homes(spec.env):
            for file in (home / ".gemini").glob(name):
                with contextlib.suppress(OSError), file.open("rb") as lines:
                    if f'"sessionId":"{session}"'.encode() in lines.readline():
                        file.unlink()

    def tool_name(self, call: Mapping[str, Any]) -> str:
        """Return a tool's name, which only the id of its call has: the title may be the model's."""
        name = text(call.get("toolCallId")).rpartition("__")[0] or text(call.get("title"))
        return _OWN_TOOL.sub(f"mcp_{OWN_SERVER}_", name)

    def intent_of(self, call: Mapping[str, Any], before: Mapping[str, Any]) -> Intent | None:
        """Return what a tool of gemini's own is for: the id has its name, which no other can have.

        A command is in the title, and an address nowhere.
        """
        match text(call.get("toolCallId")).rpartition("__")[0]:
            case "run_shell_command":
                return Intent("Bash", command=text(call.get("title")))
            case "write_file" | "replace":
                parts = (*mappings(call.get("content")), *mappings(call.get("locations")))
                paths = filter(None, (text(part.get("path")) for part in parts))
                return Intent("Edit", paths=tuple(dict.fromkeys(paths)))
            case "web_fetch":
                return Intent("WebFetch")
        return None

    def server_name(self, name: str, spec: AgentSpec) -> str:
        """Return a name that no other server has for RemoteClaw's own: others have their own."""
        return spec.own_server or name if name == OWN_SERVER else name

    def server_of(self, call: Mapping[str, Any], spec: AgentSpec) -> str | None:
        """Return the server whose tool it is, if that is certain.

        RemoteClaw's own is known by its name; others of the configuration only where there are no
        servers of the user's, which could be called like them.
        """
        call_id = text(call.get("toolCallId"))
        if spec.own_server and call_id.startswith(f"mcp_{spec.own_server}_"):
            return OWN_SERVER
        fitting = [name for name in spec.server_names if call_id.startswith(f"mcp_{name}_")]
        return fitting[0] if len(fitting) == 1 and not spec.inherit_mcp else None


def trust_problem(workspace: str, env: Mapping[str, str], *, asks: bool) -> str | None:
    """Return why gemini is not told to trust a workspace; None if that would obey nothing.

    `asks` tells that commands need a permission.
    """
    all_homes = set(homes(env))
    try:
        found = next(_obeyed(Path(workspace), all_homes, asks=asks), None)
    except _TooMany:
        why = f"{workspace} has more than {MAX_DIRECTORIES} directories to look through"
    else:
        if found is None:
            return None
        why = f"{found} would count in a workspace that gemini trusts"
    return (
        f"{why}, so it isn't trusted, and gemini connects no MCP server there, nor RemoteClaw's: "
        "take that out, set trust_workspace = true if you trust who can write there, or choose "
        "another workspace."
    )


class _TooMany(Exception):
    """Raised for a workspace with too many directories."""


def _obeyed(workspace: Path, user_homes: set[Path], *, asks: bool) -> Iterator[Path]:
    """Yield what gemini would obey in a workspace that it trusts, and above and below it.

    Files of the user's own home are theirs, and count anyway.
    """
    instructions = {_INSTRUCTIONS, *_configured(user_homes)}
    anywhere = (*sorted(instructions), *((_GIT,) if asks else ()))
    own = {*user_homes, *(home.resolve() for home in user_homes)}
    above = {*workspace.parents, *workspace.resolve().parents}
    for directory in (workspace, *sorted(above)):
        if directory not in own:
            yield from _present(directory, (*_OBEYED, *anywhere))
    for count, (below, _, _) in enumerate(os.walk(workspace)):
        if count >= MAX_DIRECTORIES:
            raise _TooMany
        if count:  # the first is the workspace itself
            yield from _present(Path(below), anywhere)


def _present(directory: Path, names: tuple[str, ...]) -> Iterator[Path]:
    return (directory / name for name in names if os.path.lexists(directory / name))


def _configured(user_homes: set[Path]) -> Iterator[str]:
    """Yield the names that settings outside of workspaces have for files of instructions."""
    files = [home / ".gemini" / "settings.json" for home in user_homes]
    for file in (*files, _SYSTEM / "settings.json", _SYSTEM / "system-defaults.json"):
        try:
            settings = orjson.loads(_COMMENTS.sub(r"\1", file.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
        names = mapping(mapping(settings).get("context")).get("fileName")
        yield from filter(None, map(text, names if isinstance(names, list) else [names]))
