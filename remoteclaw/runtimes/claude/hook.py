"""The hook by which claude asks RemoteClaw before each use of a tool.

Claude's own requests are not enough: it asks for none if its settings, its built-in lists or a hook
of the user allow the tool, or if it believes that a command only reads. A hook of ours is asked in
any case, before those of the user decide, and is told the directory of a command. Whatever it
refuses stays refused, also by hooks of the user.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from remoteclaw.protocols import AgentSpec, Decision
from remoteclaw.runtimes.wire import mapping, text

#: A tool for which claude never asks. It has git check out files, which can start programs.
_WORKTREE = "EnterWorktree"
#: Commands that may change the directory of those that run beside them.
_MOVES = re.compile(
    r"(?<![\w./-])(?:cd|chdir|pushd|popd|eval|source)(?![\w./-])|(?:^|[;&|])\s*\.\s"
)
#: How long claude waits for a hook that asks people, in seconds: longer than any of them takes.
#: Claude's timers count milliseconds in 32 bits: with more than 24 days, they would fire at once.
WAIT_S = 7 * 86_400
_ID = "before-tool"


def is_ruled(spec: AgentSpec) -> bool:
    """Whether RemoteClaw decides about each action of an agent: it may not do everything."""
    return spec.permissions != "auto" or bool(spec.branch)


def hooks_of(spec: AgentSpec) -> dict[str, Any]:
    """Return the fields of claude's handshake that register the hook."""
    if not is_ruled(spec):
        return {}
    return {"hooks": {"PreToolUse": [{"hookCallbackIds": [_ID], "timeout": WAIT_S}]}}


def answer_of(decision: Decision) -> dict[str, Any]:
    """Return the hook's output for a decision."""
    output = {"hookEventName": "PreToolUse", "permissionDecision": decision.verdict}
    if decision.verdict == "deny":
        output["permissionDecisionReason"] = decision.message
    return {"hookSpecificOutput": output}


def decides_itself(tool: str, tool_input: Mapping[str, Any]) -> bool:
    """Whether the decision about a tool without an `Intent` is left to claude, which may ask then.

    A tool that a later version has for commands is none of these.
    """
    return tool != _WORKTREE and "command" not in tool_input


def is_own_file(tool: str, hook_input: Mapping[str, Any]) -> bool:
    """Whether a tool is used for a file that claude keeps for itself, of this conversation.

    It may read its notes about the workspace and its long results, and write its plan. These files
    are elsewhere, and people know nothing of them; claude itself checks which of them are its own.
    """
    path = os.path.normpath(text(mapping(hook_input.get("tool_input")).get("file_path")))
    transcript = PurePath(text(hook_input.get("transcript_path")))
    projects, own = transcript.parent.parent, transcript.parent.name
    is_planning = hook_input.get("permission_mode") == "plan"
    if is_planning and PurePath(path).parent == projects.with_name("plans"):
        return True
    if tool != "Read" or not PurePath(path).is_relative_to(projects):
        return False
    match PurePath(path).relative_to(projects).parts:
        case (project, "memory", _, *_):  # of the repository that has the workspace
            return own.startswith(project)
        case (project, session, "tool-results", _):
            return (project, session) == (own, transcript.stem)
    return False


class Directories:
    """The directories in which the commands of a turn run.

    Claude runs commands at the same time if it believes that they only read. If one of them changes
    the directory, the others may run in another one than they were allowed for.
    """

    def __init__(self) -> None:
        self._of: dict[str, Path] = {}
        """The directory of each command, by the id of its call."""
        self._running: dict[str, bool] = {}
        """Whether each command that has not ended may change the directory, by the same id."""

    def begin(self, call: str, hook_input: Mapping[str, Any]) -> bool:
        """Note a command before it is decided; return False if its directory may still change."""
        command = text(mapping(hook_input.get("tool_input")).get("command"))
        moves = bool(_MOVES.search(command))
        if any(self._running.values()) or (moves and self._running):
            return False
        self._running[call] = moves
        self._of[call] = Path(text(hook_input.get("cwd")))
        return True

    def end(self, call: str) -> None:
        """Note the end of a command, or its denial."""
        self._running.pop(call, None)

    def of(self, call: str) -> str | None:
        """Return the directory of a command; None if it is not known."""
        return str(self._of[call]) if call in self._of else None
