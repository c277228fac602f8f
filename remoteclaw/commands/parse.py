"""Parses chat commands: messages whose first word is, for example, `/status` or `/new@its_bot`.

Case doesn't matter. A message that begins with two slashes is no command; the agent gets it with
one slash.
"""

import re
from dataclasses import dataclass

#: A first word that can be a command. Platforms allow a command 32 characters.
_COMMAND = re.compile(r"\s*/([A-Za-z][A-Za-z0-9_-]{0,31})(?:@[A-Za-z0-9_]{1,64})?(?!\S)")
#: A message that stops the agent without a slash, because people in a hurry write just "stop".
_STOP = re.compile(r"\s*stop[.!]*\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A command as a person wrote it."""

    name: str
    """The command's name, in lower case and without the slash."""
    arguments: str = ""
    """The text after the name."""


def parse(text: str) -> ParsedCommand | None:
    """Return the command in a message; None if the message is text for the agent."""
    if _STOP.fullmatch(text):
        return ParsedCommand("stop")
    match = _COMMAND.match(text)
    return ParsedCommand(match[1].lower(), text[match.end() :].strip()) if match else None


def unescaped(text: str) -> str:
    """Return a message's text for the agent: two slashes at its beginning become one."""
    blank = len(text) - len(text.lstrip())
    return text[:blank] + text[blank + 1 :] if text.startswith("//", blank) else text
