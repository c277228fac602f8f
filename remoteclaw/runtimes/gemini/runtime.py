"""The runtime of Gemini CLI, over ACP.

Gemini destroys its own sessions: a later start deletes the history of a resumed session, and a
session that is loaded in the minute of its creation is overwritten. So a new process continues a
conversation from RemoteClaw's record.

Gemini connects MCP servers only in a trusted workspace, where it also obeys the settings and
instructions that it finds. So a workspace is trusted if it contains none of these
(docs/decisions/0023-gemini-s-trust.md).
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
from remoteclaw.events import AgentUsage, ErrorEvent, Intent
from remoteclaw.host.environment import inherit
from remoteclaw.messages import OWN_SERVER
from remoteclaw.protocols import FILES, AgentSpec, Capabilities, Launch, Remedies
from remoteclaw.runtimes.acp.messages import LogNote
from remoteclaw.runtimes.acp.runtime import AcpRuntime
from remoteclaw.runtimes.base import json_file
from remoteclaw.runtimes.gemini.chats import home_directories, tokens_of
from remoteclaw.runtimes.gemini.launch import common_options, environment_of
from remoteclaw.runtimes.gemini.policy import policy_options, system_policies
from remoteclaw.runtimes.gemini.settings import directories_of, settings_of
from remoteclaw.runtimes.gemini.terminal import GeminiTerminal
from remoteclaw.runtimes.model_wait import retry_at_ms
from remoteclaw.runtimes.wire import mapping, mappings, text, toml

#: The paths that gemini obeys in a trusted workspace: settings, policies, hooks, commands, agents,
#: skills and environments. It also reads `.env` in all directories above the workspace.
_OBEYED = (".gemini", ".agents", ".env")
#: Its settings name programs that `git status` runs, which gemini does in a trusted workspace
#: without asking.
_GIT = ".git"
#: The name of instruction files in the workspace and below, unless settings name others.
_INSTRUCTIONS = "GEMINI.md"
#: The maximum number of directories that are searched for instructions: more would delay each start
#: by a second.
MAX_DIRECTORIES = 20_000
#: The prefix of the names of RemoteClaw's own tools (`Home.server_name`).
_OWN_TOOL = re.compile(rf"^mcp_{OWN_SERVER}-[0-9a-f]+_")

#: The settings in the directory of asides: no tools, and no MCP servers.
_ASIDES = orjson.dumps(
    {
        "tools": {"core": [], "allowed": []},
        "mcp": {"allowed": ["none"]},
        "skills": {"enabled": False},
    }
)

#: Gemini's explanation of a command, with its directory as group 1 unless that is the workspace. An
#: explanation with other brackets could be about a directory with a bracket in its name.
_EXPLANATION = re.compile(
    r"\[(?:current working directory [^\]]+|in ([^\]]+))\](?: \([^\]]*\))?", re.DOTALL
)
#: Gemini's pause before its first retry, and its longest pause, in seconds.
_FIRST_WAIT_S, _MAX_WAIT_S = 5.0, 30.0

log = logging.getLogger(__name__)


class GeminiRuntime(AcpRuntime):
    """The runtime of Gemini CLI."""

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
    # Trusted, it has no tools in an aside; in an untrusted directory, no mode removes them.
    aside_modes = ()
    log = (
        re.compile(rb"\[[0-9TZ:.-]+\] \[[A-Z]+\]"),
        re.compile(rb"\] Attempt \d+ failed|Retrying after \d+ms"),
    )

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that gemini needs: the common ones, its settings and keys."""
        # An editor's terminal has the second one: it adds directories to the workspace.
        without = ("GEMINI_CLI_IDE_WORKSPACE_PATH",)
        env = inherit(inherited, prefixes=("GEMINI_", "GOOGLE_"), without=without)
        env["GEMINI_CLI_NO_RELAUNCH"] = "true"  # prevents a second process of itself
        env["NO_COLOR"] = "1"
        # Gemini retries requests for minutes, and reports that only in its debug log.
        env.setdefault("GEMINI_DEBUG_LOG_FILE", "/dev/stderr")
        return env

    def signed_in(self, env: Mapping[str, str]) -> str:
        """Return the address of the Google account that gemini noted."""
        for home in home_directories(env)[:1]:
            return text(json_file(home / ".gemini" / "google_accounts.json").get("active"))
        return ""

    def read_log(self, line: str) -> LogNote | None:
        """Return the reason of a retry and the pause before it; None for any other line."""
        stated = re.search(r"Retrying after (\d{1,9})ms", line)
        attempt = re.search(r"Attempt (\d{1,3}) failed(?: with status (\d{3}))?", line)
        if stated:
            wait_s = int(stated[1]) / 1000
        elif attempt and "Retrying with" in line[attempt.end() :]:
            wait_s = min(_FIRST_WAIT_S * 2 ** (int(attempt[1]) - 1), _MAX_WAIT_S)
        else:
            return None  # the next log line has the pause
        status = int(attempt[2]) if attempt and attempt[2] else 429 if stated else None
        category = classify_error(line, status=status)
        retry_at = retry_at_ms(line) if stated else None
        why = line.rpartition("[WARN] ")[2]
        return LogNote(failure=ErrorEvent(category, why, retry_at_ms=retry_at), wait_s=wait_s)

    def fitted(self, spec: AgentSpec) -> AgentSpec:
        """Return `spec` with trust if the workspace is harmless, else without MCP servers."""
        spec = super().fitted(spec)
        if spec.trust_workspace:
            return spec
        if spec.permissions != "deny":  # under "deny", no MCP tool could be used anyway
            asks = spec.permissions != "auto"
            if (problem := trust_problem(spec.workspace, spec.env, asks=asks)) is None:
                return replace(spec, trust_workspace=True)
            log.warning("gemini: %s", problem)
        return replace(spec.without_tools(), mcp_servers={})

    def openings(self, spec: AgentSpec) -> list[str]:
        """Return the policies that outrank ours, and the directories that belong to a workspace."""
        if not spec.is_limited:
            return []
        openings = [f"{file} outranks RemoteClaw's policy" for file in system_policies()]
        for file, settings in settings_of(directories_of(spec), spec.env):
            if added := mapping(settings.get("context")).get("includeDirectories"):
                openings.append(f"context.includeDirectories in {file} adds {toml(added)}")
        return openings

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line, with which gemini asks for every permission.

        Raises `AgentUnavailable` for a session of an earlier process, which gemini can't resume.
        """
        if session_id is not None:
            why = "gemini can't continue a session of an earlier process"
            raise AgentUnavailable(why, category=ErrorCategory.SESSION_EXPIRED)
        argv = [*spec.command, "--acp", "--approval-mode", "default"]
        argv += ["--include-directories", str(run_dir / FILES)]
        argv += policy_options(spec, run_dir)
        argv += common_options(spec, [self.server_name(name, spec) for name in spec.mcp_servers])
        # With `-m`, gemini would report that model as its default, to which /model goes back.
        env = environment_of(spec)
        return Launch(argv=tuple(argv), env=env, cwd=spec.workspace, session_id=None)

    def totals(self, spec: AgentSpec, session: str) -> tuple[AgentUsage, float] | None:
        """Return the totals from gemini's file of the session; it reports no costs."""
        return tokens_of(session, spec.env), 0.0

    def aside_directory(self, spec: AgentSpec, run_dir: Path) -> str:
        """Return a directory in the state directory, shared by all asides.

        If gemini trusts its workspace, the settings there remove all tools. Else its read tools
        find nothing there. Sessions there are not listed among those of the workspace.
        """
        directory = run_dir.parent.parent / "asides"
        for path in (directory, directory / ".gemini"):
            path.mkdir(mode=0o700, exist_ok=True)
        new = run_dir / "aside-settings"
        new.write_bytes(_ASIDES)
        new.replace(directory / ".gemini" / "settings.json")
        return str(directory)

    def forget(self, spec: AgentSpec, session: str) -> None:
        """Delete the file of a session, which has the whole session id in its first line."""
        name = f"tmp/*/chats/session-*-{glob.escape(session[:8])}.jsonl"
        for home in home_directories(spec.env):
            for file in (home / ".gemini").glob(name):
                with contextlib.suppress(OSError), file.open("rb") as lines:
                    if f'"sessionId":"{session}"'.encode() in lines.readline():
                        file.unlink()

    def tool_name(self, call: Mapping[str, Any]) -> str:
        """Return the tool's name from the id of its call: the title may be text of the model."""
        name = text(call.get("toolCallId")).rpartition("__")[0] or text(call.get("title"))
        return _OWN_TOOL.sub(f"mcp_{OWN_SERVER}_", name)

    def intent_of(self, call: Mapping[str, Any], before: Mapping[str, Any]) -> Intent | None:
        """Return the action of a built-in tool, whose name in the call's id can't be imitated.

        The title of a command is the command line; the URL of a fetch is not reported.
        """
        match text(call.get("toolCallId")).rpartition("__")[0]:
            case "run_shell_command":
                return Intent("Bash", command=text(call.get("title")), cwd=_directory_of(call))
            case "write_file" | "replace":
                parts = (*mappings(call.get("content")), *mappings(call.get("locations")))
                paths = filter(None, (text(part.get("path")) for part in parts))
                return Intent("Edit", paths=tuple(dict.fromkeys(paths)))
            case "web_fetch":
                return Intent("WebFetch")
        return None

    def server_name(self, name: str, spec: AgentSpec) -> str:
        """Return gemini's name for a server: a unique one for RemoteClaw's, else `name`."""
        return spec.own_server or name if name == OWN_SERVER else name

    def server_of(self, call: Mapping[str, Any], spec: AgentSpec) -> str | None:
        """Return the configured MCP server of a tool; None if it can't be determined reliably.

        RemoteClaw's server is recognized by its unique name. Other servers are recognized only if
        gemini has none of the user's own servers, whose names could be the same.
        """
        call_id = text(call.get("toolCallId"))
        if spec.own_server and call_id.startswith(f"mcp_{spec.own_server}_"):
            return OWN_SERVER
        fitting = [name for name in spec.server_names if call_id.startswith(f"mcp_{name}_")]
        return fitting[0] if len(fitting) == 1 and not spec.inherit_mcp else None


def _directory_of(call: Mapping[str, Any]) -> str | None:
    """Return the directory of a command; empty for the workspace, None if it is not certain."""
    parts = mappings(call.get("content"))
    explanation = "".join(text(mapping(part.get("content")).get("text")) for part in parts)
    match = _EXPLANATION.fullmatch(explanation)
    return (match[1] or "") if match else None


def trust_problem(workspace: str, env: Mapping[str, str], *, asks: bool) -> str | None:
    """Return why a workspace is not trusted; None if it contains nothing that gemini obeys.

    `asks` tells that commands need a permission.
    """
    try:
        obeyed_path = next(_obeyed_paths(Path(workspace), env, asks=asks), None)
    except _TooManyDirectories:
        why, remedy = f"{workspace} has more than {MAX_DIRECTORIES} directories to search", ""
    else:
        if obeyed_path is None:
            return None
        why = f"gemini would obey {obeyed_path} in a trusted workspace"
        remedy = "remove it, "
    return (
        f"{why}, so the workspace isn't trusted, and gemini connects no MCP server there, not even "
        f"RemoteClaw's: {remedy}set trust_workspace = true if you trust everyone who can write "
        "there, or choose another workspace."
    )


class _TooManyDirectories(Exception):
    """Raised for a workspace with too many directories."""


def _obeyed_paths(workspace: Path, env: Mapping[str, str], *, asks: bool) -> Iterator[Path]:
    """Yield the paths in, above and below a trusted workspace that gemini would obey.

    Files in a home directory are excluded: they are the user's, and count without trust. Raises
    `_TooManyDirectories`.
    """
    instructions = {_INSTRUCTIONS, *_instruction_names(env)}
    anywhere = (*sorted(instructions), *((_GIT,) if asks else ()))
    user_homes = home_directories(env)
    home_paths = {*user_homes, *(home.resolve() for home in user_homes)}
    above = {*workspace.parents, *workspace.resolve().parents}
    for directory in (workspace, *sorted(above)):
        if directory not in home_paths:
            yield from _existing(directory, (*_OBEYED, *anywhere))
    for count, (below, _, _) in enumerate(os.walk(workspace)):
        if count >= MAX_DIRECTORIES:
            raise _TooManyDirectories
        if count:  # the first directory is the workspace itself
            yield from _existing(Path(below), anywhere)


def _existing(directory: Path, names: tuple[str, ...]) -> Iterator[Path]:
    return (directory / name for name in names if os.path.lexists(directory / name))


def _instruction_names(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of instruction files in the user's and the system's settings."""
    own = (home / ".gemini" for home in home_directories(env))
    for _, settings in settings_of(own, env):
        names = mapping(settings.get("context")).get("fileName")
        yield from filter(None, map(text, names if isinstance(names, list) else [names]))
