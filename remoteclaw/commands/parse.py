"""Parses chat commands: messages whose first word is, for example, `/status` or `/new@its_bot`.

Case doesn't matter. A message that begins with two slashes is no command; the agent gets it with
one slash. `!status` is `/status`, because some platforms keep the slash for themselves; an unknown
word after `!` is text.
"""

import re
from dataclasses import dataclass

from remoteclaw.commands.table import ALIASES, COMMANDS

#: A first word that can be a command. Platforms allow a command 32 characters.
_COMMAND = re.compile(r"\s*([/!])([A-Za-z][A-Za-z0-9_-]{0,31})(@[A-Za-z0-9_]{1,64})?(?!\S)")
#: A message that stops the agent without a slash, because people in a hurry write just "stop".
_STOP = re.compile(r"\s*stop[.!]*\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A command as a person wrote it."""

    name: str
    """The command's name, in lower case and without the slash."""
    arguments: str = ""
    """The text after the name."""

    @property
    def known(self) -> str | None:
        """The name in the table of commands; None if it is not there."""
        name = ALIASES.get(self.name, self.name)
        return name if name in COMMANDS else None


def parse(text: str) -> ParsedCommand | None:
    """Return the command in a message; None if the message is text for the agent."""
    if _STOP.fullmatch(text):
        return ParsedCommand("stop")
    if (match := _COMMAND.match(text)) is None:
        return None
    command = ParsedCommand(match[2].lower(), text[match.end() :].strip())
    return command if match[1] == "/" or command.known else None


def is_plain_command(text: str) -> bool:
    """Whether a message is a known command with its sign, and names no bot.

    In a thread that the agent follows, such a message is for the agent.
    """
    match, command = _COMMAND.match(text), parse(text)
    return bool(match and match[3] is None and command and command.known)


def unescaped(text: str) -> str:
    """Return a message's text for the agent: two slashes at its beginning become one."""
    blank = len(text) - len(text.lstrip())
    return text[:blank] + text[blank + 1 :] if text.startswith("//", blank) else text
