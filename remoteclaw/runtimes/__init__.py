"""The agent CLIs: the launch line, the handshake and the translation of messages of each.

They are given a running CLI's pipes; they start nothing and know neither Redis nor chats.
"""

import shutil
from collections.abc import Callable, Mapping

from remoteclaw.protocols import Runtime
from remoteclaw.runtimes.acp import AcpRuntime
from remoteclaw.runtimes.claude import ClaudeRuntime
from remoteclaw.runtimes.codex import CodexRuntime
from remoteclaw.runtimes.demo import DemoRuntime
from remoteclaw.runtimes.gemini import GeminiRuntime
from remoteclaw.runtimes.opencode import OpencodeRuntime

__all__ = ["CLIS", "RUNTIMES", "create_cli_runtime", "detect_runtime"]

#: Every runtime by the name it has in the configuration, in the order in which they are looked for.
RUNTIMES: Mapping[str, Callable[[], Runtime]] = {
    "claude": ClaudeRuntime,
    "codex": CodexRuntime,
    "gemini": GeminiRuntime,
    "opencode": OpencodeRuntime,
    "acp": AcpRuntime,
    "demo": DemoRuntime,
}
#: Those of them that are agent CLIs with a program of their own.
CLIS = tuple(name for name in RUNTIMES if name not in ("acp", "demo"))


def create_cli_runtime(name: str) -> Runtime:
    """Return the runtime of that name; the configuration allows no other names."""
    return RUNTIMES[name]()


def detect_runtime() -> tuple[str, str]:
    """Return the name of the first agent CLI that is installed, and why it was chosen."""
    for name in CLIS:
        if found := shutil.which(create_cli_runtime(name).command[0]):
            return name, f"the first agent CLI found: {found}"
    return "demo", f"no agent CLI was found on PATH (looked for {', '.join(CLIS)})"
