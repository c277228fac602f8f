"""Chat commands such as `/status` and `/new`, which run without waiting in the session's queue."""

from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.commands.message import MessageOutcome, handle_message, run_command
from remoteclaw.commands.parse import is_plain_command, parse, unescaped
from remoteclaw.commands.table import COMMANDS

__all__ = [
    "COMMANDS",
    "CommandCall",
    "CommandReply",
    "MessageOutcome",
    "handle_message",
    "is_plain_command",
    "parse",
    "run_command",
    "unescaped",
]
