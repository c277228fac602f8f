"""Opencode's configuration for one process: our settings, merged into the user's.

It is passed in an environment variable, so no file is edited.

Opencode merges our rules for permissions into the user's: a rule takes the place of the user's rule
with the same name, and the last rule that matches wins. The rules of an agent follow those of all
agents. So every agent gets ours, under names that the user's rules don't have: that puts them last.
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
from remoteclaw.runtimes.opencode.own import CONTENT, PERMISSION, OwnConfig
from remoteclaw.runtimes.wire import mapping, text

#: The mode for asides. It has all tools, so that the provider reads the copied conversation from
#: its cache, but each tool needs a permission.
ASIDE = "remoteclaw-aside"
#: The tools that need no permission.
_HARMLESS = ("glob", "grep", "list", "lsp", "skill", "todowrite", "todoread")
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

#: Hides the tools of servers, which are recognized only by their names: the server's, "_", and the
#: tool's.
_HIDDEN = {"*_*": "deny"}

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

#: Opencode's agent that only plans.
_PLANNING = "plan"
#: Opencode ignores this at the end of a rule's name, unless the name of the tool has a blank.
_LAST = " *"

log = logging.getLogger(__name__)


def configuration_of(spec: AgentSpec, run_dir: Path, prompt: Path) -> dict[str, Any]:
    """Return the configuration of an agent; `prompt` is the file of its system prompt.

    Raises `AgentUnavailable` for an untrusted workspace with plugins: no setting keeps opencode
    from loading them, whatever the agent's permissions are.
    """
    if not spec.trust_workspace and (problem := plugin_problem(spec.workspace, spec.env)):
        raise AgentUnavailable(problem, category=ErrorCategory.NOT_INSTALLED)
    config = _parse_config(spec.env.get(CONTENT, ""))
    config["instructions"] = [*_list_of(config.get("instructions")), str(prompt)]
    agent = mapping(config.get("agent"))
    config["agent"] = {
        **agent,
        "title": {"disable": True, **mapping(agent.get("title"))},
        ASIDE: _aside_mode(mapping(agent.get(text(config.get("default_agent")) or "build"))),
    }
    if not spec.trust_workspace:
        # For its snapshots, git asks each repository within, whose settings may name a program.
        config["snapshot"] = False
    experimental = mapping(config.get("experimental"))
    config["experimental"] = {"continue_loop_on_deny": True, **experimental}
    if not spec.is_limited:
        config["permission"] = _permissions_of_auto(spec, config.get("permission"), run_dir)
        return config
    _limit(config, spec, run_dir)
    return config


def environment_with(spec: AgentSpec, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of an agent with the configuration `config`."""
    env = {**spec.env, CONTENT: orjson.dumps(config).decode()}
    if not spec.trust_workspace:
        env["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    if spec.is_limited:
        env.pop(PERMISSION, None)  # it would be the strongest configuration
    if spec.permissions == "deny":
        env["OPENCODE_PURE"] = "1"  # else a plugin can answer requests in a person's place
    return env


def _aside_mode(main: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mode for asides, with the prompt of the `main` mode."""
    mode = {"mode": "primary", "description": "Answers messages during a turn."}
    prompt = {"prompt": main["prompt"]} if "prompt" in main else {}
    return {**mode, **prompt, "permission": {"*": "ask"}}


def _permissions_of_auto(spec: AgentSpec, own: Any, run_dir: Path) -> Any:
    """Return the rules of an agent that needs no permission; `own` are the user's rules."""
    files = {f"{run_dir / FILES}/**": "allow"}
    if spec.inherit_mcp:
        return own or {"external_directory": files}
    rules: dict[str, Any] = {"*": own} if isinstance(own, str) else mapping(own)
    last = {
        **_HIDDEN,
        **dict.fromkeys((f"{name}_*" for name in spec.mcp_servers), "allow"),
        **{"doom_loop": "allow", "external_directory": "allow", "read": _readable(spec)},
    }
    return {name: rule for name, rule in rules.items() if name not in last} | last


def _readable(spec: AgentSpec) -> dict[str, str]:
    """Return the rules for the tool `read`, which also reads resources of servers."""
    data = {f"mcp:{name}:*": "allow" for name in spec.mcp_servers}
    return {"*": "allow"} | ({} if spec.inherit_mcp else {"mcp:*": "deny", **data})


def _limit(config: dict[str, Any], spec: AgentSpec, run_dir: Path) -> None:
    """Change a configuration so that nothing is done without a permission."""
    own = OwnConfig(spec.env, spec.workspace, is_trusted=spec.trust_workspace)
    agents, strict = own.agents(), own.strict_agents()
    config["permission"] = mapping(config.get("permission")) | _rules(spec, own, run_dir, "")
    for name, is_main in agents.items():
        if is_main and name in strict:
            continue  # what its file refuses stays, and the rules for all agents apply
        rules = _rules(spec, own, run_dir, name)
        agent = mapping(config["agent"].get(name))
        # Nobody is asked for a subagent: it would wait without end.
        permission = mapping(agent.get("permission")) | (rules if is_main else denied(rules))
        config["agent"][name] = {**agent, "permission": permission}
    config["share"] = "disabled"
    if not spec.trust_workspace:  # they can be programs of the workspace
        config |= {"formatter": False, "lsp": False}


def _rules(spec: AgentSpec, own: OwnConfig, run_dir: Path, agent: str) -> dict[str, Any]:
    """Return the rules of an agent that needs permissions, under names that put them last."""
    servers = {
        f"{name}_*": "allow" if name in spec.unasked_servers else "ask" for name in spec.mcp_servers
    }
    subagents = (name for name, is_main in own.agents().items() if not is_main)
    rules: dict[str, Any] = {
        "*": "ask",
        **({} if spec.inherit_mcp else _HIDDEN),
        **servers,
        **dict.fromkeys(_HARMLESS, "allow"),
        **dict.fromkeys(_ASKED, "ask"),
        "read": _readable(spec),
        "task": {"*": "ask", **dict.fromkeys(subagents, "allow")},
        "external_directory": {"*": "ask", f"{run_dir / FILES}/**": "allow"},
    }
    if agent == _PLANNING:
        rules["edit"] = "deny"
    for name, rule in rules.items():
        refused = own.refusals(name, agent)
        if refused == "deny":
            rules[name] = refused
        elif refused:
            rules[name] = {**(rule if isinstance(rule, dict) else {"*": rule}), **mapping(refused)}
    if spec.permissions == "deny" or spec.only_reads:
        rules |= dict.fromkeys(own.tools(), "deny")
    return {f"{name}{_LAST}": rule for name, rule in rules.items()}


def denied(rules: Any) -> Any:
    """Return permission rules with "deny" in place of "ask"."""
    if isinstance(rules, dict):
        return {name: denied(rule) for name, rule in rules.items()}
    return "deny" if rules == "ask" else rules


def _parse_config(content: str) -> dict[str, Any]:
    try:
        return mapping(orjson.loads(content)) if content else {}
    except ValueError:
        log.warning("%s is not JSON, and is not used", CONTENT)
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
