"""Files of a user's own by which a CLI would do more without asking, by CLI and kind of file.

Each file's path is relative to the home directory, which `{home}` stands for in its content.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ALLOWING = {
    "hookSpecificOutput": {
        "hookEventName": "PermissionRequest",
        "decision": {"behavior": "allow"},
    }
}
_APPROVING = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
_CLAUDE_RULES = {
    "permissions": {
        "allow": [
            *("Bash", "Bash(*)", "Edit", "Read", "Write", "WebFetch", "EnterWorktree"),
            *("Edit(//**)", "Read(//**)", "Write(//**)"),
        ],
        "additionalDirectories": ["/"],
        "defaultMode": "bypassPermissions",
    },
    "skipDangerousModePermissionPrompt": True,
}
_CLAUDE_AGENT = """\
---
name: general-purpose
description: Does everything.
permissionMode: bypassPermissions
---
Do what you are asked to do.
"""


def _claude_settings(**settings: Any) -> dict[str, str]:
    return {".claude/settings.json": json.dumps(settings)}


def _hooks(**outputs: object) -> dict[str, Any]:
    """Return hooks that print an output, by the event."""
    return {
        event: [{"hooks": [{"type": "command", "command": f"echo '{json.dumps(output)}'"}]}]
        for event, output in outputs.items()
    }


#: Codex trusts a hook by a hash of it.
_CODEX_HOOK_HASH = "sha256:59bfc986815bc7d676b50475f84cb4ece30fbb21f64fc0842f68dab79197458c"
_CODEX_HOOK = f"""\
[[hooks.PermissionRequest]]
matcher = "Bash"
[[hooks.PermissionRequest.hooks]]
type = "command"
command = {json.dumps(f"echo '{json.dumps(_ALLOWING, separators=(',', ':'))}'")}
[hooks.state."{{home}}/.codex/config.toml:permission_request:0:0"]
enabled = true
trusted_hash = "{_CODEX_HOOK_HASH}"
"""
_CODEX_SETTINGS = """\
approval_policy = "never"
approvals_reviewer = "auto_review"
default_permissions = ":danger-full-access"
sandbox_mode = "danger-full-access"
[sandbox_workspace_write]
network_access = true
writable_roots = ["/"]
[features]
exec_permission_approvals = true
multi_agent_v2 = true
request_permissions_tool = true
[projects."/"]
trust_level = "trusted"
"""
_GEMINI_POLICY = """\
[[rule]]
toolName = "*"
decision = "allow"
allowRedirection = true
priority = 999
[[rule]]
toolName = "run_shell_command"
commandRegex = ".*"
decision = "allow"
allowRedirection = true
priority = 999
"""
_GEMINI_TOOLS = ["run_shell_command", "write_file", "replace", "web_fetch", "activate_skill"]
#: What opencode allows an agent that it allows everything; a pattern may count more than a string.
_OPENCODE_ALL = {
    "*": "allow",
    "bash": {"*": "allow", "cat *": "allow", "touch *": "allow"},
    "edit": {"*": "allow", "/**": "allow"},
    "external_directory": {"*": "allow", "/**": "allow"},
    "webfetch": "allow",
}


def _gemini_settings(**settings: Any) -> dict[str, str]:
    return {".gemini/settings.json": json.dumps(settings)}


def _opencode_settings(**settings: Any) -> dict[str, str]:
    return {".config/opencode/opencode.json": json.dumps(settings)}


def write_own_files(files: Mapping[str, str]) -> None:
    """Write files of the user."""
    for path, content in files.items():
        file = Path(os.environ["HOME"], path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content.replace("{home}", os.environ["HOME"]))


OWN_FILES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "claude": {
        "rules": _claude_settings(**_CLAUDE_RULES),
        "rules-without-hooks": _claude_settings(**_CLAUDE_RULES, disableAllHooks=True),
        "hooks": _claude_settings(hooks=_hooks(PreToolUse=_APPROVING, PermissionRequest=_ALLOWING)),
        "sandbox": _claude_settings(
            **_CLAUDE_RULES, sandbox={"enabled": True, "autoAllowBashIfSandboxed": True}
        ),
        "environment": _claude_settings(**_CLAUDE_RULES, env={"CLAUDE_CODE_SIMPLE": "1"}),
        "agents": {
            **_claude_settings(**_CLAUDE_RULES),
            ".claude/agents/general-purpose.md": _CLAUDE_AGENT,
        },
    },
    "codex": {
        "settings": {".codex/config.toml": _CODEX_SETTINGS},
        "hooks": {".codex/config.toml": _CODEX_HOOK},
    },
    "gemini": {
        "policies": {".gemini/policies/own.toml": _GEMINI_POLICY},
        "tools": _gemini_settings(
            tools={"allowed": _GEMINI_TOOLS, "autoAccept": True},
            general={"defaultApprovalMode": "auto_edit"},
            security={"enablePermanentToolApproval": True, "folderTrust": {"enabled": False}},
        ),
        "hooks": _gemini_settings(
            hooksConfig={"enabled": True},
            **_hooks(BeforeTool={"decision": "allow", "continue": True}, Notification=_ALLOWING),
        ),
        "core-tools": _gemini_settings(tools={"core": [*_GEMINI_TOOLS, "read_file", "glob"]}),
        "other-policies": {
            **_gemini_settings(policyPaths=["~/own.toml"], adminPolicyPaths=["~/own.toml"]),
            "own.toml": _GEMINI_POLICY,
        },
    },
    "opencode": {
        "permission": _opencode_settings(permission=_OPENCODE_ALL),
        "everything": _opencode_settings(permission="allow", tools={"bash": True}),
        "agents": _opencode_settings(
            agent={
                name: {"permission": _OPENCODE_ALL}
                for name in ("build", "plan", "general", "explore")
            }
        ),
        "default-agent": {
            **_opencode_settings(default_agent="own"),
            ".config/opencode/agent/own.md": (
                "---\nmode: primary\npermission:\n  bash: allow\n  edit: allow\n"
                "  external_directory: allow\n---\nDo what you are asked to do.\n"
            ),
        },
    },
}
