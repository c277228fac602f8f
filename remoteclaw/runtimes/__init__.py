"""The agent CLIs: the command line, handshake and message translation of each.

A runtime works on the pipes of a running CLI. It starts no process, and knows neither Redis nor
chats.
"""

import shutil
from collections.abc import Callable, Mapping

from remoteclaw.errors import ConfigError
from remoteclaw.extensions import load_runtime
from remoteclaw.protocols import Runtime
from remoteclaw.runtimes.acp.runtime import AcpRuntime
from remoteclaw.runtimes.agent import COMPACT
from remoteclaw.runtimes.claude.runtime import ClaudeRuntime
from remoteclaw.runtimes.codex.runtime import CodexRuntime
from remoteclaw.runtimes.demo.runtime import DemoRuntime
from remoteclaw.runtimes.gemini.runtime import GeminiRuntime
from remoteclaw.runtimes.opencode.runtime import OpencodeRuntime

__all__ = [
    "CLIS",
    "COMPACT",
    "RUNTIMES",
    "create_cli_runtime",
    "detect_runtime",
    "terminal_problem",
]

#: All runtimes by their name in the configuration. `CLIS` keeps this order, in which
#: `detect_runtime()` tries them.
RUNTIMES: Mapping[str, Callable[[], Runtime]] = {
    "claude": ClaudeRuntime,
    "codex": CodexRuntime,
    "gemini": GeminiRuntime,
    "opencode": OpencodeRuntime,
    "acp": AcpRuntime,
    "demo": DemoRuntime,
}
#: The names of the runtimes that are installable agent CLIs.
CLIS = tuple(name for name in RUNTIMES if name not in ("acp", "demo"))


def create_cli_runtime(name: str) -> Runtime:
    """Return a new runtime, one of ours or of another package.

    Raises `ConfigError` if there is none, which the configuration excludes on its host.
    """
    make = RUNTIMES.get(name) or load_runtime(name)
    if make is None:
        raise ConfigError(f"The runtime {name!r} is not installed on this host.")
    return make()


def detect_runtime() -> tuple[str, str]:
    """Return the name of the first installed agent CLI, and the reason for the choice."""
    for name in CLIS:
        if program := shutil.which(create_cli_runtime(name).command[0]):
            return name, f"the first agent CLI found: {program}"
    return "demo", f"no agent CLI was found on PATH (looked for {', '.join(CLIS)})"


def terminal_problem(name: str) -> str:
    """Return that a runtime has no program for terminals; empty if it has one."""
    if create_cli_runtime(name).terminal:
        return ""
    able = ", ".join(each for each in CLIS if create_cli_runtime(each).terminal)
    return f"{name} has no program for terminals; these agents have one: {able}."
