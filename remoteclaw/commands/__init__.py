"""Chat commands such as `/status` and `/new`, which run without waiting in the session's queue."""

from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.commands.parse import parse, unescaped
from remoteclaw.commands.table import COMMANDS, MessageOutcome, handle_message, run_command

__all__ = [
    "COMMANDS",
    "CommandCall",
    "CommandReply",
    "MessageOutcome",
    "handle_message",
    "parse",
    "run_command",
    "unescaped",
]
