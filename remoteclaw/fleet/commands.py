"""Chat commands: `/new`, `/stop` and their like, as people write them.

A command is a message whose first word is one of the words that stand for it, alone or before more
text: `/new`, `/new fix the tests`, and as Telegram writes it in groups `/new@its_bot`. Case doesn't
matter. `/stop` is one only if it stands alone, and takes effect when the message is accepted,
because it must not wait behind what it stops.
Everything else is for the agent: a word that only looks like a command, one in a quote or a block
of code, and what another session's agent or the clock has written.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from remoteclaw.messages import ChannelMessage, Entry

__all__ = ["STOP", "Command", "CommandOf", "Name", "at_once", "command_in", "words_for"]

Name = Literal["reset", "stop"]
#: The word that stops what the session does and has waiting.
STOP = "/stop"
#: Returns the command that an entry is; None if it is for the agent.
CommandOf = Callable[[Entry], "Command | None"]

#: A message's first word, if it is short enough for a command: that has 32 characters at most, and
#: so have the names of Telegram's bots.
_FIRST = re.compile(r"\s*(\S{1,65})(?!\S)")
_BOT = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a chat."""

    name: Name
    word: str
    """The word that stood for it, as it is configured."""
    rest: str = ""
    """The text behind it."""
    has_files: bool = False
    """Whether files came with it."""

    @property
    def is_alone(self) -> bool:
        """Whether it is all that the person said."""
        return not self.rest and not self.has_files


def words_for(name: Name, words: Iterable[str]) -> dict[str, tuple[Name, str]]:
    """Return some words for a command, as `command_in()` looks for them."""
    return {word.casefold(): (name, word) for word in words}


def command_in(entry: Entry, words: Mapping[str, tuple[Name, str]]) -> Command | None:
    """Return the command that an entry is; None if it is for the agent."""
    if entry.origin == "operator":
        return Command("reset", entry.message.text)
    if entry.origin != "chat":
        return None
    return _command(entry.message, words)


def at_once(message: ChannelMessage) -> Literal["stop", "wake", ""]:
    """Return what a person's message does the moment it is accepted.

    It stops all before it, or has a postponed session look at it: all commands begin with / or !,
    and which there are is known where the session is served.
    """
    if _command(message, _STOPS):
        return "stop"
    return "wake" if message.text.lstrip()[:1] in ("/", "!") else ""


def _command(message: ChannelMessage, words: Mapping[str, tuple[Name, str]]) -> Command | None:
    first = _FIRST.match(message.text)
    word, at, bot = first[1].partition("@") if first else ("", "", "")
    meant = words.get(word.casefold())
    if first is None or meant is None or (at and not _BOT.fullmatch(bot)):
        return None
    behind = message.text[first.end() :].strip()
    command = Command(*meant, behind, has_files=bool(message.attachments))
    return command if command.is_alone or command.name != "stop" else None


_STOPS = words_for("stop", (STOP,))
