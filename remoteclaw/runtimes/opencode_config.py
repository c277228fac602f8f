"""Opencode's configuration for one process: our settings, merged into the agent's own.

It goes with the environment, and no file is edited.
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

#: The variable with a configuration that overrides its files.
CONFIG = "OPENCODE_CONFIG_CONTENT"
#: The mode for questions beside a turn: it has all tools, so that the model's provider reads the
#: copy of a conversation from its cache, and asks for each.
ASIDE = "remoteclaw-aside"
#: The tools that need no permission.
_HARMLESS = ("read", "glob", "grep", "list", "lsp", "skill", "task", "todowrite", "todoread")
#: The tools that need one in any case, behind the rules for servers.
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

#: The directories of plugins, in any directory from the workspace upwards.
_PLUGIN_DIRECTORIES = (".opencode/plugin", ".opencode/plugins")
#: The files that name more plugins there.
_SETTINGS = (
    *("opencode.json", "opencode.jsonc"),
    *(".opencode/opencode.json", ".opencode/opencode.jsonc"),
)
#: The setting that names them, in any notation.
_NAMES_PLUGINS = re.compile(r'"plugins?"')
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
#: A longer file of settings is not read through, in bytes.
_SETTINGS_BYTES = 1024 * 1024

log = logging.getLogger(__name__)


def configured(spec: AgentSpec, run_dir: Path, prompt: Path) -> dict[str, Any]:
    """Return the configuration of an agent whose system prompt stands in a file.

    Raises `AgentUnavailable` for a workspace that has plugins and isn't trusted: no setting
    keeps opencode from running them, whatever the agent may do.
    """
    if not spec.trust_workspace and (problem := plugin_problem(spec.workspace, spec.env)):
        raise AgentUnavailable(problem, category=ErrorCategory.NOT_INSTALLED)
    config = _config(spec.env.get(CONFIG, ""))
    config["instructions"] = [*_listed(config.get("instructions")), str(prompt)]
    agent = mapping(config.get("agent"))
    config["agent"] = {
        **agent,
        "title": {"disable": True, **mapping(agent.get("title"))},
        ASIDE: _aside(mapping(agent.get(text(config.get("default_agent")) or "build"))),
    }
    experimental = mapping(config.get("experimental"))
    config["experimental"] = {"continue_loop_on_deny": True, **experimental}
    config["permission"] = _permissions(spec, config.get("permission"), run_dir)
    return config


def with_configuration(spec: AgentSpec, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of an agent with this configuration."""
    env = {**spec.env, CONFIG: orjson.dumps(config).decode()}
    if not spec.trust_workspace:
        env["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    return env


def _aside(main: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mode for questions beside a turn, with the prompt of the `main` one."""
    about = {"mode": "primary", "description": "Answers beside the running turn."}
    prompt = {"prompt": main["prompt"]} if "prompt" in main else {}
    return {**about, **prompt, "permission": {"*": "ask"}}


def _permissions(spec: AgentSpec, own: Any, run_dir: Path) -> Any:
    """Return opencode's rules: which tools it may use, asks for, and doesn't see.

    The last rule that fits decides: no name of a server may undo what stands behind it.
    """
    files = {f"{run_dir / FILES}/**": "allow"}
    is_auto = spec.permissions == "auto" and not spec.branch
    if is_auto and spec.inherit_mcp:
        return own or {"external_directory": files}
    # Nothing else tells whose a tool is: a server's has its name and this sign before its own.
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
        if spec.permissions == "auto":  # a branch: what its parent doesn't see, it doesn't either
            rules |= {name: rule for name, rule in mapping(own).items() if rule == "deny"}
    if not spec.inherit_mcp:  # other data of a server's is read with tools of opencode's own
        data = {f"mcp:{name}:*": "allow" for name in spec.mcp_servers}
        rules["read"] = {"*": "allow", "mcp:*": "deny", **data}
    return rules


def _config(content: str) -> dict[str, Any]:
    try:
        return mapping(orjson.loads(content)) if content else {}
    except ValueError:
        log.warning("%s is not JSON, and is not used", CONFIG)
        return {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def plugin_problem(workspace: str, env: Mapping[str, str]) -> str | None:
    """Return why opencode can't be started in a workspace that isn't trusted; None if it can."""
    plugin = next(_plugins(Path(workspace), Path(env.get("HOME") or "~").expanduser()), None)
    if plugin is None:
        return None
    return (
        f"{plugin} has opencode run plugins, whatever the agent may do: take it out, "
        "set trust_workspace = true if you trust who can write there, or choose another workspace."
    )


def _plugins(workspace: Path, home: Path) -> Iterator[Path]:
    """Yield the files by which opencode would run plugins of a workspace.

    It looks in the workspace and above, as far as the root of the repository, for which it takes
    the workspace's own word: so all directories above are looked through, apart from the user's
    own home, where plugins are theirs.
    """
    above = {*workspace.parents, *workspace.resolve().parents} - {home, home.resolve()}
    for directory in (workspace, *sorted(above)):
        for name in _PLUGIN_DIRECTORIES:
            with contextlib.suppress(OSError):
                for file in sorted(os.listdir(directory / name)):
                    if file.endswith((".ts", ".js")):
                        yield directory / name / file
        yield from filter(_names_plugins, (directory / name for name in _SETTINGS))


def _names_plugins(settings: Path) -> bool:
    """Whether a file of settings may name plugins: comments and values are not told apart."""
    try:
        if not stat.S_ISREG(settings.stat().st_mode):
            return not settings.is_dir()  # who reads a pipe doesn't know what the next one reads
        with settings.open("rb") as file:
            content = file.read(_SETTINGS_BYTES + 1)
    except OSError:
        return False
    words = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), content.decode("utf-8", "replace"))
    return len(content) > _SETTINGS_BYTES or bool(_NAMES_PLUGINS.search(words))
