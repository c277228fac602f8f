"""The shell command of codex's request for a permission."""

import shlex

from remoteclaw.runtimes.jsonrpc import RpcMessage
from remoteclaw.runtimes.wire import text

#: The longest command that is parsed, in characters: splitting one of a megabyte takes a second.
MAX_COMMAND_CHARS = 10_000
#: The shells to which codex gives commands: the model may name another program as its shell.
_SHELLS = frozenset(
    f"{directory}/{name}" for directory in ("/bin", "/usr/bin") for name in ("bash", "sh", "zsh")
)


def command_of(message: RpcMessage) -> str:
    """Return the shell command of a request; empty if the program is not a known shell."""
    command = text(message.params.get("command"))
    if len(command) > MAX_COMMAND_CHARS:
        return ""
    try:
        shell = shlex.split(command)
    except ValueError:
        return ""
    is_shell = len(shell) == 3 and shell[0] in _SHELLS and shell[1] in ("-lc", "-c")
    return shell[2] if is_shell else ""
