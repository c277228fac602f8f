"""Codex' threads, for a conversation, a branch or a question beside a turn; and its options."""

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
from remoteclaw.runtimes.base import server_environment
from remoteclaw.runtimes.wire import mapping

#: The longest wait for codex' MCP servers, ours and codex' own for each, in seconds.
MCP_START_S = 30
#: The longest time that it waits for a tool, in seconds: one of ours may wait for another agent.
MCP_CALL_S = 300

#: For each of our permissions, when codex asks for one, and its sandbox.
_POLICIES = {
    "auto": ("never", "danger-full-access"),
    "ask": ("untrusted", "workspace-write"),
    "edits": ("untrusted", "workspace-write"),
    "deny": ("untrusted", "read-only"),
}
#: The setting for tools of a server. Without it, codex believes what a tool says of itself, such as
#: that it only reads.
APPROVAL = "default_tools_approval_mode"
#: The field of a new thread for its system prompt.
INSTRUCTIONS = "developerInstructions"
#: The beginning of the names of variables with headers for MCP servers, in a terminal.
HEADERS = "REMOTECLAW_HEADER_"
#: The variables that codex withholds from its commands.
_KEYS = f'["OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "{HEADERS}*"]'


def thread_of(spec: AgentSpec, run_dir: Path) -> dict[str, Any]:
    """Return what a thread of this spec is like."""
    policy, sandbox = _POLICIES[spec.permissions]
    servers = {
        f"mcp_servers.{name}": server_of(server, run_dir, asks=name not in spec.unasked_servers)
        for name, server in spec.mcp_servers.items()
    }
    model = {"model": spec.model} if spec.model else {}
    return {
        "cwd": spec.workspace,
        "approvalPolicy": policy,
        "sandbox": sandbox,
        "config": servers,
        **model,
    }


def limits_of(spec: AgentSpec) -> dict[str, Any]:
    """Return what a branch's turns say of permissions: its thread is started as its parent's is.

    Without its parent's sandbox, a parent under "auto" would have another tool for the web, and so
    another prefix: its branch is asked alone, and refused.
    """
    if not spec.only_reads and spec.conduct == spec.permissions:
        return {}
    sandbox = {} if spec.permissions == "auto" else {"sandboxPolicy": {"type": "readOnly"}}
    return {"approvalPolicy": "untrusted", **sandbox}


def aside_of(spec: AgentSpec, run_dir: Path) -> dict[str, Any]:
    """Return what the thread of a question is like: the same tools, and each has to ask for them.

    With other tools, the provider would read the whole conversation again.
    """
    thread = thread_of(replace(spec, permissions="deny"), run_dir)
    settings = own_settings(spec.env)
    if spec.permissions == "auto" and "web_search" not in settings:
        thread["config"]["web_search"] = "live"  # as it is in the sandbox of "auto"
    for name, own in servers_of(settings).items():
        if name not in spec.mcp_servers and spec.inherit_mcp:
            # A tool can have a setting of its own, which counts more than its server's.
            way = {"enabled": False} if "tools" in own else {APPROVAL: "prompt"}
            for key, value in way.items():
                thread["config"][f"mcp_servers.{name}.{key}"] = value
    return {**thread, "ephemeral": True, INSTRUCTIONS: spec.system_prompt}


def trust_of(spec: AgentSpec) -> str:
    """Return the option that says whether codex obeys the workspace's own configuration.

    Unless it is said, codex trusts the workspace of a thread that may write, for good: it writes
    that into the user's configuration, and starts what `.codex/config.toml` there names.
    """
    level = "trusted" if spec.trust_workspace else "untrusted"
    names = {spec.workspace, os.path.realpath(spec.workspace)}
    if not spec.trust_workspace:  # the root of its repository may have been trusted before
        names |= {str(parent) for name in names for parent in Path(name).parents}
    names_in_toml = (json.dumps(name, ensure_ascii=False) for name in sorted(names))
    projects = (f'{name}={{trust_level="{level}"}}' for name in names_in_toml)
    return f"projects={{{','.join(projects)}}}"


def own_settings(env: Mapping[str, str]) -> dict[str, Any]:
    """Return codex' own configuration; codex itself starts with no file that can't be read here."""
    home = Path(env.get("CODEX_HOME") or Path(env.get("HOME") or "~", ".codex")).expanduser()
    try:
        return tomllib.loads((home / "config.toml").read_text())
    except (OSError, ValueError):
        return {}


def servers_of(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return codex' own MCP servers, by name: nothing takes them all out."""
    servers = mapping(settings.get("mcp_servers")).items()
    return {name: mapping(server) for name, server in servers if re.fullmatch(r"[\w-]+", name)}


def server_of(server: McpServerConfig, run_dir: Path, *, asks: bool) -> dict[str, Any]:
    """Return an MCP server as codex wants it described."""
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
    """Return the options of turns and terminals about tools, trust and the user's MCP servers."""
    options = [
        "check_for_update_on_startup=false",
        f"shell_environment_policy.exclude={_KEYS}",
        # Agents of its own go on working when it is stopped.
        "features.multi_agent=false",
        # Its model is offered the tool anyway, and told that it is for another mode.
        "features.default_mode_request_user_input=true",
        trust_of(spec),
    ]
    if not spec.trust_workspace:
        options.append("project_doc_max_bytes=0")  # the workspace's AGENTS.md
    for name, own in sorted(servers_of(own_settings(spec.env)).items()):
        if name in spec.mcp_servers:
            continue  # ours replaces it
        if not spec.inherit_mcp:
            options.append(f"mcp_servers.{name}.enabled=false")
        elif (spec.permissions == "deny" or spec.branch) and APPROVAL not in own:
            options.append(f'mcp_servers.{name}.{APPROVAL}="prompt"')
    return [word for option in options for word in ("-c", option)]
