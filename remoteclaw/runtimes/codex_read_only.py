"""Commands of codex that only read: it asks for a permission even to look around."""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from remoteclaw.runtimes.jsonrpc import RpcMessage
from remoteclaw.runtimes.wire import text

#: Programs that only read, with the options that they may have, each as a pattern.
_READERS = {
    "cat": r"-n",
    "head": r"-n\d*|-\d+",
    "ls": r"-[1aAhlRrSt]+",
    "pwd": r"(?!)",
    "tail": r"-n\d*|-\d+",
    "wc": r"-[lwc]+",
}
#: The longest command that is read, in characters: splitting takes a second for a MB.
MAX_READ = 10_000
#: The shells to which codex gives commands: the model may name another program as its shell.
_SHELLS = frozenset(
    f"{directory}/{name}" for directory in ("/bin", "/usr/bin") for name in ("bash", "sh", "zsh")
)
#: Characters with a meaning to a shell.
_SHELL = frozenset("|&;<>()$`\\\"'*?[]{}~#!=%\n\r")


def only_looks(message: RpcMessage, readable: Sequence[Path]) -> bool:
    """Whether a command does no more than read in some directories, the first of which it is in.

    Codex asks for that as well. Its own summary of a command (`commandActions`) leaves out what
    comes behind a pipe, so the command itself has to be one of a few, of plain words.
    """
    if message.method != "item/commandExecution/requestApproval" or not readable:
        return False
    here, command = readable[0], command_of(message)
    if text(message.params.get("cwd")) != str(here) or not command or _SHELL & set(command):
        return False
    # To a shell no other space parts words, and a file may have one in its name.
    if not command.isprintable():
        return False
    program, *arguments = command.split(" ")
    options = _READERS.get(program)
    if options is None:
        return False
    for argument in arguments:
        if re.fullmatch(options, argument):
            continue
        where = Path(os.path.realpath(here / argument))
        is_inside = any(where.is_relative_to(root.resolve()) for root in readable)
        if argument.startswith("-") or not is_inside:
            return False
    return True


def command_of(message: RpcMessage) -> str:
    """Return the command that codex asks to give to a shell; nothing if it isn't only that."""
    command = text(message.params.get("command"))
    if len(command) > MAX_READ:
        return ""
    try:
        shell = shlex.split(command)
    except ValueError:
        return ""
    is_shell = len(shell) == 3 and shell[0] in _SHELLS and shell[1] in ("-lc", "-c")
    return shell[2] if is_shell else ""
