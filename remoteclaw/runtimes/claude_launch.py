"""The launch of claude: the options that its turns and its terminals share."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from remoteclaw.messages import McpServerConfig
from remoteclaw.protocols import FILES, AgentSpec
from remoteclaw.runtimes.base import parted, server_environment

#: The names of models that claude is asked for, as it gives them itself: `claude-opus-4-8[1m]`.
_MODEL = re.compile(r"[A-Za-z0-9][\w.:/@-]*(\[\w+\])?")
#: The beginning of the note of a process that was in plan mode.
PLANNING = "plan "
#: Settings for claude, above those of its user. In plan mode, which claude enters unasked, a model
#: of the provider's else decides about commands and changes, and nobody is asked.
SETTINGS = {"useAutoModeDuringPlan": False}


def common_options(spec: AgentSpec, run_dir: Path, *, allowed: Iterable[str] = ()) -> list[str]:
    """Return the options about settings, model, MCP servers and what needs no permission.

    That is `allowed`, and what never needs one.
    """
    # Settings of a workspace only if it is trusted: its hooks run regardless of permissions.
    options = [f"--setting-sources={'user,project,local' if spec.trust_workspace else 'user'}"]
    noted, _ = parted(spec.note)
    # Without --model, a resumed claude takes the model's name without its [1m] suffix.
    noted = noted.removeprefix(PLANNING)
    if model := spec.model or (noted if _MODEL.fullmatch(noted) else ""):
        options += ["--model", model]
    if not spec.inherit_mcp:
        options.append("--strict-mcp-config")
    rules = [*allowed, *_reading(run_dir / FILES)]
    if spec.permissions != "deny":
        rules += [f"mcp__{name}" for name in spec.unasked_servers]
    return [*options, "--allowedTools", ",".join(rules)]


def environment_of(spec: AgentSpec) -> dict[str, str]:
    """Return claude's whole environment."""
    # When a background task ends, claude takes a turn for which nobody asked: without a lease, if
    # it is parked by then.
    return {**spec.env, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1"}


def server_of(server: McpServerConfig, run_dir: Path) -> dict[str, Any]:
    """Return the description of an MCP server as claude takes it."""
    if server.url is not None:
        return {"type": "http", "url": server.url, "headers": server.headers}
    env = server_environment(server, run_dir)
    return {"type": "stdio", "command": server.command, "args": list(server.args), "env": env}


def _reading(directory: Path) -> list[str]:
    """Return the rules that let claude read in a directory, by its path and its resolved path.

    With `--add-dir`, claude would name the directory, another one for each process, in its system
    prompt, which would break the prompt cache.
    """
    return [f"Read(/{path}/**)" for path in dict.fromkeys((directory, directory.resolve()))]
