"""Reads commands: the first word of a message, such as `/status` or `/new@its_bot`.

Case doesn't matter. A message that begins with two slashes is text for the agent, with one.
"""

import re
from dataclasses import dataclass

#: A first word that can be a command: platforms allow 32 characters, and as many for a bot's name.
_FIRST = re.compile(r"\s*/([A-Za-z][A-Za-z0-9_-]{0,31})(?:@[A-Za-z0-9_]{1,64})?(?!\S)")
#: What stops an agent though it is no command: what people write who want it to stop.
_STOP = re.compile(r"\s*stop[.!]*\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Command:
    """A command as a person wrote it."""

    name: str
    """Its name, in small letters, without the slash."""
    rest: str = ""
    """The text behind it."""

    @property
    def words(self) -> list[str]:
        """The words behind it."""
        return self.rest.split()


def parse(text: str) -> Command | None:
    """Return the command that a message is; None if it is for the agent."""
    if _STOP.fullmatch(text):
        return Command("stop")
    first = _FIRST.match(text)
    return Command(first[1].lower(), text[first.end() :].strip()) if first else None


def unescaped(text: str) -> str:
    """Return a message without the second slash that kept it from being a command."""
    blank = len(text) - len(text.lstrip())
    return text[:blank] + text[blank + 1 :] if text.startswith("//", blank) else text
