"""Opencode's configuration for one process: our settings, merged into the user's.

It is passed in an environment variable, so no file is edited.
"""

import contextlib
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.errors import AgentUnavailable, ErrorCategory
from remoteclaw.protocols import FILES, AgentSpec
from remoteclaw.runtimes.wire import mapping, text

#: The variable with a configuration that overrides the configuration files.
CONFIG = "OPENCODE_CONFIG_CONTENT"
#: The mode for asides. It has all tools, so that the provider reads the copied conversation from
#: its cache, but each tool needs a permission.
ASIDE = "remoteclaw-aside"
#: The tools that need no permission.
_HARMLESS = ("read", "glob", "grep", "list", "lsp", "skill", "task", "todowrite", "todoread")
#: The tools that need a permission. Their rules follow those for servers, so that no server's name
#: can override them.
_ASKED = (
    "bash",
    "codesearch",
    "doom_loop",
    "edit",
    "patch",
    "question",
    "webfetch",
    "websearch",
    "write",
)

#: The plugin directories, in the workspace or any directory above it.
_PLUGIN_DIRECTORIES = (".opencode/plugin", ".opencode/plugins")
#: The settings files there, which can name more plugins.
_SETTINGS_FILES = (
    *("opencode.json", "opencode.jsonc"),
    *(".opencode/opencode.json", ".opencode/opencode.jsonc"),
)
#: The setting that names plugins, in JSON with or without comments.
_NAMES_PLUGINS = re.compile(r'"plugins?"')
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
#: The largest settings file that is searched, in bytes; a larger one counts as naming plugins.
_MAX_SETTINGS_BYTES = 1024 * 1024

log = logging.getLogger(__name__)


def configuration_of(spec: AgentSpec, run_dir: Path, prompt: Path) -> dict[str, Any]:
    """Return the configuration of an agent; `prompt` is the file of its system prompt.

    Raises `AgentUnavailable` for an untrusted workspace with plugins: no setting keeps opencode
    from running them, whatever the agent's permissions are.
    """
    if not spec.trust_workspace and (problem := plugin_problem(spec.workspace, spec.env)):
        raise AgentUnavailable(problem, category=ErrorCategory.NOT_INSTALLED)
    config = _parse_config(spec.env.get(CONFIG, ""))
    config["instructions"] = [*_list_of(config.get("instructions")), str(prompt)]
    agent = mapping(config.get("agent"))
    config["agent"] = {
        **agent,
        "title": {"disable": True, **mapping(agent.get("title"))},
        ASIDE: _aside_mode(mapping(agent.get(text(config.get("default_agent")) or "build"))),
    }
    experimental = mapping(config.get("experimental"))
    config["experimental"] = {"continue_loop_on_deny": True, **experimental}
    config["permission"] = _permissions(spec, config.get("permission"), run_dir)
    return config


def environment_with(spec: AgentSpec, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of an agent with the configuration `config`."""
    env = {**spec.env, CONFIG: orjson.dumps(config).decode()}
    if not spec.trust_workspace:
        env["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    return env


def _aside_mode(main: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mode for asides, with the prompt of the `main` mode."""
    mode = {"mode": "primary", "description": "Answers messages during a turn."}
    prompt = {"prompt": main["prompt"]} if "prompt" in main else {}
    return {**mode, **prompt, "permission": {"*": "ask"}}


def _permissions(spec: AgentSpec, own: Any, run_dir: Path) -> Any:
    """Return opencode's permission rules: the tools that are allowed, asked for, or hidden.

    `own` are the user's rules. The last matching rule wins, so the rules for built-in tools follow
    those with names of servers.
    """
    files = {f"{run_dir / FILES}/**": "allow"}
    is_auto = spec.permissions == "auto" and not spec.branch
    if is_auto and spec.inherit_mcp:
        return own or {"external_directory": files}
    # A server's tool is recognized only by its name: the server's name, "_", and the tool's.
    hidden = {} if spec.inherit_mcp else {"*_*": "deny"}
    servers = {
        f"{name}_*": "allow" if name in spec.unasked_servers else "ask" for name in spec.mcp_servers
    }
    if is_auto:
        rules: dict[str, Any] = {"*": own} if isinstance(own, str) else mapping(own)
        last = {**hidden, **servers, "doom_loop": "allow", "external_directory": "allow"}
        rules = {name: rule for name, rule in rules.items() if name not in last} | last
    else:
        rules = {
            "*": "ask",
            **hidden,
            **servers,
            **dict.fromkeys(_HARMLESS, "allow"),
            **dict.fromkeys(_ASKED, "ask"),
            "external_directory": {"*": "ask", **files},
        }
        if spec.permissions == "auto":  # a branch: tools hidden from its parent stay hidden
            rules |= {name: rule for name, rule in mapping(own).items() if rule == "deny"}
    if not spec.inherit_mcp:  # the built-in tool `read` also reads resources of servers
        data = {f"mcp:{name}:*": "allow" for name in spec.mcp_servers}
        rules["read"] = {"*": "allow", "mcp:*": "deny", **data}
    return rules


def _parse_config(content: str) -> dict[str, Any]:
    try:
        return mapping(orjson.loads(content)) if content else {}
    except ValueError:
        log.warning("%s is not JSON, and is not used", CONFIG)
        return {}


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def plugin_problem(workspace: str, env: Mapping[str, str]) -> str | None:
    """Return why opencode can't be started in an untrusted workspace; None if it can."""
    plugin = next(_plugins(Path(workspace), Path(env.get("HOME") or "~").expanduser()), None)
    if plugin is None:
        return None
    return (
        f"{plugin} makes opencode run plugins, whatever the agent's permissions are: remove it, "
        "set trust_workspace = true if you trust everyone who can write there, or choose another "
        "workspace."
    )


def _plugins(workspace: Path, home: Path) -> Iterator[Path]:
    """Yield the files that make opencode run plugins in a workspace.

    Opencode searches the workspace and the directories above it up to the root of the repository.
    As the workspace itself can determine that root, all directories above are searched here, except
    the home directory, where plugins are the user's own.
    """
    above = {*workspace.parents, *workspace.resolve().parents} - {home, home.resolve()}
    for directory in (workspace, *sorted(above)):
        for name in _PLUGIN_DIRECTORIES:
            with contextlib.suppress(OSError):
                for file in sorted(os.listdir(directory / name)):
                    if file.endswith((".ts", ".js")):
                        yield directory / name / file
        yield from filter(_names_plugins, (directory / name for name in _SETTINGS_FILES))


def _names_plugins(settings: Path) -> bool:
    """Whether a settings file may name plugins, which includes mentions in comments and values."""
    try:
        if not stat.S_ISREG(settings.stat().st_mode):
            return not settings.is_dir()  # a pipe may contain something else at the next read
        with settings.open("rb") as file:
            content = file.read(_MAX_SETTINGS_BYTES + 1)
    except OSError:
        return False
    decoded = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), content.decode("utf-8", "replace"))
    return len(content) > _MAX_SETTINGS_BYTES or bool(_NAMES_PLUGINS.search(decoded))
