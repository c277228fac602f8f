"""Items and requests of a codex turn: translates tool calls, commands and plans for events."""

import shlex
from typing import Any

from remoteclaw.events import PlanEvent, PlanStep
from remoteclaw.runtimes.jsonrpc import RpcMessage
from remoteclaw.runtimes.wire import mapping, mappings, text

#: The types of items that are tool calls.
TOOLS = frozenset(("commandExecution", "fileChange", "mcpToolCall", "webSearch", "imageView"))
#: The longest command that is parsed, in characters: splitting one of a megabyte takes a second.
MAX_COMMAND_CHARS = 10_000
#: The shells to which codex gives commands: the model may name another program as its shell.
_SHELLS = frozenset(
    f"{directory}/{name}" for directory in ("/bin", "/usr/bin") for name in ("bash", "sh", "zsh")
)


def use_of(item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the tool's name and arguments of an item that begins."""
    match item.get("type"):
        case "commandExecution":
            return "shell", {"command": text(item.get("command")), "cwd": text(item.get("cwd"))}
        case "fileChange":
            paths = [text(change.get("path")) for change in mappings(item.get("changes"))]
            return "apply_patch", {"paths": paths}
        case "mcpToolCall":
            name = f"mcp__{text(item.get('server'))}__{text(item.get('tool'))}"
            return name, mapping(item.get("arguments"))
        case "webSearch":
            return "web_search", {"query": text(item.get("query"))}
    return "view_image", {"path": text(item.get("path"))}


def output_of(item: dict[str, Any]) -> tuple[str, bool]:
    """Return the tool's output of an item that has ended, and whether the tool failed."""
    is_error = item.get("status") in ("failed", "declined")
    match item.get("type"):
        case "commandExecution":
            return text(item.get("aggregatedOutput")), is_error or bool(item.get("exitCode"))
        case "mcpToolCall":
            error = text(mapping(item.get("error")).get("message"))
            content = mappings(mapping(item.get("result")).get("content"))
            return error or "".join(text(part.get("text")) for part in content), is_error
    return "", is_error


def plan_of(steps: list[dict[str, Any]]) -> PlanEvent:
    """Return the event of codex's plan."""
    return PlanEvent(
        tuple(PlanStep.of(text(step.get("step")), step.get("status")) for step in steps)
    )


def command_of(message: RpcMessage) -> str:
    """Return the shell command of a request; empty if the program is not a known shell."""
    command = text(message.params.get("command"))
    if len(command) > MAX_COMMAND_CHARS:
        return ""
    try:
        shell = shlex.split(command)
    except ValueError:
        return ""
    is_shell = len(shell) == 3 and shell[0] in _SHELLS and shell[1] in ("-lc", "-c")
    return shell[2] if is_shell else ""
