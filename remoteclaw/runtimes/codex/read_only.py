"""Codex's read-only commands, which are allowed without asking a person."""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from remoteclaw.runtimes.jsonrpc import RpcMessage
from remoteclaw.runtimes.wire import text

#: Programs that only read, each with a pattern of its allowed options.
_READERS = {
    "cat": r"-n",
    "head": r"-n\d*|-\d+",
    "ls": r"-[1aAhlRrSt]+",
    "pwd": r"(?!)",
    "tail": r"-n\d*|-\d+",
    "wc": r"-[lwc]+",
}
#: The longest command that is parsed, in characters: splitting one of a megabyte takes a second.
MAX_COMMAND_CHARS = 10_000
#: The shells to which codex gives commands: the model may name another program as its shell.
_SHELLS = frozenset(
    f"{directory}/{name}" for directory in ("/bin", "/usr/bin") for name in ("bash", "sh", "zsh")
)
#: The characters that have a meaning to a shell.
_SHELL_CHARACTERS = frozenset("|&;<>()$`\\\"'*?[]{}~#!=%\n\r")


def is_read_only_request(message: RpcMessage, readable: Sequence[Path]) -> bool:
    """Whether a request is for a command that runs in `readable[0]` and only reads in `readable`.

    Codex asks for permission even for these. Its own summary of a command (`commandActions`) omits
    what follows a pipe, so the command itself is checked: a known program with plain arguments.
    """
    if message.method != "item/commandExecution/requestApproval" or not readable:
        return False
    workspace, command = readable[0], command_of(message)
    if (
        text(message.params.get("cwd")) != str(workspace)
        or not command
        or _SHELL_CHARACTERS & set(command)
    ):
        return False
    # A shell splits at no other white space, and a file name may contain some.
    if not command.isprintable():
        return False
    program, *arguments = command.split(" ")
    options = _READERS.get(program)
    if options is None:
        return False
    for argument in arguments:
        if re.fullmatch(options, argument):
            continue
        path = Path(os.path.realpath(workspace / argument))
        is_inside = any(path.is_relative_to(root.resolve()) for root in readable)
        if argument.startswith("-") or not is_inside:
            return False
    return True


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
