"""Commands of chats: `/status`, `/new` and their like, answered before the queue."""

from remoteclaw.commands.call import Answer, Asked
from remoteclaw.commands.parse import parse
from remoteclaw.commands.table import COMMANDS, Taken, take

__all__ = ["COMMANDS", "Answer", "Asked", "Taken", "parse", "take"]
