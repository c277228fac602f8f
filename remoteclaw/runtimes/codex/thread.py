"""Parameters of codex's threads, for a conversation, a branch or an aside; and its options."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from remoteclaw.messages import McpServerConfig
from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes.base import server_environment, split_note, with_point
from remoteclaw.runtimes.wire import mapping, toml

#: The longest wait for MCP servers to start, in seconds: ours for all, and codex's for each.
MCP_START_S = 30
#: Codex's time limit for a tool call, in seconds: a tool of ours may wait for another agent.
MCP_CALL_S = 300

#: For each of our permissions, the approval policy and the sandbox.
_POLICIES = {
    "auto": ("never", "danger-full-access"),
    "ask": ("untrusted", "workspace-write"),
    "edits": ("untrusted", "workspace-write"),
    "deny": ("untrusted", "read-only"),
}
#: The setting that decides whether a server's tools need a permission. Without it, codex relies on
#: the tools' own annotations, such as that a tool only reads.
APPROVAL = "default_tools_approval_mode"
#: All settings that decide this, of servers and of single tools.
_APPROVALS = (APPROVAL, "approval_mode")
#: The parameter of a new thread for its system prompt.
INSTRUCTIONS = "developerInstructions"
#: The prefix of the variables with headers for MCP servers, in a terminal.
HEADERS = "REMOTECLAW_HEADER_"
#: The variables that codex withholds from the commands that it runs.
_KEYS = f'["OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "{HEADERS}*"]'


def thread_of(spec: AgentSpec, run_dir: Path) -> dict[str, Any]:
    """Return the parameters of a thread for `spec`."""
    policy, sandbox = _POLICIES[spec.permissions]
    servers = {
        f"mcp_servers.{name}": server_of(server, run_dir, asks=name not in spec.unasked_servers)
        for name, server in spec.mcp_servers.items()
    }
    model = {"model": spec.model} if spec.model else {}
    return {
        "cwd": spec.workspace,
        "approvalPolicy": policy,
        "approvalsReviewer": "user",  # else a model may decide in a person's place
        "sandbox": sandbox,
        "config": servers,
        **model,
    }


def note_of(prompt: str, default_model: str, point: str) -> str:
    """Return a note: the hash of the system prompt, the default model, and the point."""
    return with_point(f"{prompt} {default_model}".rstrip(), point)


def parts_of(note: str) -> tuple[str, str, str]:
    """Return the parts of a note, which may be empty: see `note_of()`."""
    words, point = split_note(note)
    prompt, _, default_model = words.partition(" ")
    return prompt, default_model, point


def limits_of(spec: AgentSpec) -> dict[str, Any]:
    """Return the parameters that restrict a branch's turns; none for any other session.

    The branch's thread has the permissions of its parent's thread. Under "auto", its turns also
    keep the parent's sandbox: another sandbox changes the web search tool, and with it the prompt
    that the provider has cached. Then only the approval policy restricts the branch.
    """
    if not spec.only_reads and spec.conduct == spec.permissions:
        return {}
    sandbox = {} if spec.permissions == "auto" else {"sandboxPolicy": {"type": "readOnly"}}
    return {"approvalPolicy": "untrusted", **sandbox}


def aside_of(spec: AgentSpec, run_dir: Path) -> dict[str, Any]:
    """Return the parameters of an aside's thread: the same tools, each of which needs a permission.

    With other tools, the provider's cache of the conversation would not apply.
    """
    thread = thread_of(replace(spec, permissions="deny"), run_dir)
    settings = own_settings(spec.env)
    if spec.permissions == "auto" and "web_search" not in settings:
        thread["config"]["web_search"] = "live"  # as it is in the sandbox of "auto"
    for name, own in servers_of(settings).items():
        if name not in spec.mcp_servers and spec.inherit_mcp:
            # A tool's own setting overrides its server's.
            setting = {"enabled": False} if "tools" in own else {APPROVAL: "prompt"}
            for key, value in setting.items():
                thread["config"][f"mcp_servers.{name}.{key}"] = value
    return {**thread, "ephemeral": True, INSTRUCTIONS: spec.system_prompt}


def trust_of(spec: AgentSpec) -> str:
    """Return the option that decides whether codex obeys the workspace's own configuration.

    Without it, codex permanently trusts the workspace of a thread that may write: it saves that in
    the user's configuration, and runs the programs of the workspace's `.codex/config.toml`.
    """
    level = "trusted" if spec.trust_workspace else "untrusted"
    names = {spec.workspace, os.path.realpath(spec.workspace)}
    if not spec.trust_workspace:  # the user may have trusted the root of its repository
        names |= {str(parent) for name in names for parent in Path(name).parents}
    names_in_toml = (json.dumps(name, ensure_ascii=False) for name in sorted(names))
    projects = (f'{name}={{trust_level="{level}"}}' for name in names_in_toml)
    return f"projects={{{','.join(projects)}}}"


def codex_home(env: Mapping[str, str]) -> Path:
    """Return the directory with codex's own configuration."""
    return Path(env.get("CODEX_HOME") or Path(env.get("HOME") or "~", ".codex")).expanduser()


def own_settings(env: Mapping[str, str]) -> dict[str, Any]:
    """Return codex's own configuration; empty for an unreadable one, which codex rejects, too."""
    try:
        return tomllib.loads((codex_home(env) / "config.toml").read_text())
    except (OSError, ValueError):
        return {}


def servers_of(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the MCP servers of codex's own configuration, by name.

    Codex has no option to disable them all.
    """
    servers = mapping(settings.get("mcp_servers")).items()
    return {name: mapping(server) for name, server in servers if re.fullmatch(r"[\w-]+", name)}


def server_of(server: McpServerConfig, run_dir: Path, *, asks: bool) -> dict[str, Any]:
    """Return an MCP server in codex's format; its tools need a permission if it `asks`."""
    common: dict[str, Any] = {
        "startup_timeout_sec": MCP_START_S,
        "tool_timeout_sec": MCP_CALL_S,
        APPROVAL: "prompt" if asks else "approve",
    }
    if server.url is not None:
        return {"url": server.url, "http_headers": server.headers, **common}
    env = server_environment(server, run_dir)
    return {"command": server.command, "args": list(server.args), "env": env, **common}


def common_options(spec: AgentSpec) -> list[str]:
    """Return the options that turns and terminals share: tools, trust, the user's MCP servers."""
    options = [
        "check_for_update_on_startup=false",
        f"shell_environment_policy.exclude={_KEYS}",
        # Codex's own subagents keep working when codex is stopped.
        "features.multi_agent=false",
        # Without this, codex offers the model the tool, but refuses its use in the default mode.
        "features.default_mode_request_user_input=true",
        trust_of(spec),
    ]
    if not spec.trust_workspace:
        options.append("project_doc_max_bytes=0")  # the workspace's AGENTS.md
    for name in sorted(servers_of(own_settings(spec.env))):
        if name in spec.mcp_servers:
            continue  # ours replaces it
        if not spec.inherit_mcp:
            options.append(f"mcp_servers.{name}.enabled=false")
        elif spec.permissions == "deny" or spec.branch:
            options.append(f'mcp_servers.{name}.{APPROVAL}="prompt"')
    if spec.is_limited:
        is_strict = spec.permissions == "deny" or bool(spec.branch)
        asked = asked_instead(own_settings(spec.env), is_strict=is_strict)
        options += [f"{key}={toml(value)}" for key, value in asked.items()]
    return [word for option in options for word in ("-c", option)]


def asked_instead(settings: Mapping[str, Any], *, is_strict: bool) -> dict[str, Any]:
    """Return the settings that have codex ask for the tools that the user's settings approve.

    They are those of MCP servers, apps and plugins, and of single tools of these. If it
    `is_strict`, codex also asks for those that it would approve by their claims about themselves.
    """
    asked: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _APPROVALS and (is_strict or value == "approve"):
            asked[name] = "prompt"
        elif isinstance(value, Mapping) and (inner := asked_instead(value, is_strict=is_strict)):
            asked[name] = inner
    return asked
