"""Files of a user's own by which a CLI would do more without asking, by CLI and kind of file.

Each file's path is relative to the home directory.
"""

import json
from collections.abc import Mapping
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
    """Return hooks of claude that print an output, by the event."""
    return {
        event: [{"hooks": [{"type": "command", "command": f"echo '{json.dumps(output)}'"}]}]
        for event, output in outputs.items()
    }


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
}
