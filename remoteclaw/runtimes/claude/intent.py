"""What claude's tools do, in the terms of permissions."""

from collections.abc import Mapping
from typing import Any

from remoteclaw.events import Intent
from remoteclaw.runtimes.wire import text

#: The tool with which claude asks a person.
QUESTION_TOOL = "AskUserQuestion"
#: The tool with which claude presents its plan in order to leave plan mode.
PLAN_TOOL = "ExitPlanMode"


def intent_of(tool: str, tool_input: Mapping[str, Any], directory: str | None) -> Intent | None:
    """Return the action of a tool call; None if the tool is unknown.

    `directory` is that of a command, None if it isn't known. The result is reliable: the answer to
    the request repeats the arguments, and claude uses the answer's.
    """
    match tool:
        case "Bash":
            return Intent("Bash", command=text(tool_input.get("command")), cwd=directory)
        case "Edit" | "MultiEdit" | "Write":
            return Intent("Edit", paths=(text(tool_input.get("file_path")),))
        case "NotebookEdit":
            return Intent("Edit", paths=(text(tool_input.get("notebook_path")),))
        case "Read":
            return Intent("Read", paths=(text(tool_input.get("file_path")),))
        case "Glob" | "Grep":
            return Intent("Read", paths=(text(tool_input.get("path")) or ".",))
        case "WebFetch":
            return Intent("WebFetch", url=text(tool_input.get("url")))
        case "WebSearch":
            return Intent("WebSearch")
    return Intent(tool) if tool.startswith("mcp__") else None
