"""Commands that go through the queue: `/new` and `/stop`, as people write them.

All others are answered before it, in `remoteclaw/commands/`.

A command is a message whose first word is one of the words that stand for it, alone or before more
text: `/new`, `/new fix the tests`, and as Telegram writes it in groups `/new@its_bot`. Case doesn't
matter. `/stop` is one only if it stands alone, and takes effect when the message is accepted,
because it must not wait behind what it stops.
Everything else is for the agent: a word that only looks like a command, one in a quote or a block
of code, and what another session's agent or the clock has written.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from remoteclaw.host.terminal import one_line
from remoteclaw.messages import ChannelMessage, Entry

Name = Literal["reset", "stop"]
#: What each word does: begin a new conversation, or stop what the session does and has waiting.
WORDS: Mapping[str, Name] = {"/new": "reset", "/reset": "reset", "/stop": "stop"}

#: A message's first word, if it is short enough for a command: that has 32 characters at most, and
#: so have the names of Telegram's bots.
_FIRST = re.compile(r"\s*(\S{1,65})(?!\S)")
_BOT = re.compile(r"[A-Za-z0-9_]+")
#: The longest title, in characters: what a list has room for.
MAX_TITLE = 48


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a chat."""

    name: Name
    word: str
    """The word that stood for it."""
    rest: str = ""
    """The text behind it."""
    has_files: bool = False
    """Whether files came with it."""

    @property
    def is_alone(self) -> bool:
        """Whether it is all that the person said."""
        return not self.rest and not self.has_files


def command_of(entry: Entry) -> Command | None:
    """Return the command that an entry is; None if it is for the agent."""
    if entry.origin == "operator":
        return Command("reset", entry.message.text)
    if entry.origin != "chat" or entry.is_command is not None:
        return None
    return _command(entry.message)


def at_once(message: ChannelMessage) -> Literal["stop", "wake", ""]:
    """Return what a person's message does the moment it is accepted.

    It stops all before it, or has a postponed session look at it.
    """
    command = _command(message)
    if command is None:
        return ""
    return "stop" if command.name == "stop" else "wake"


def title_of(message: ChannelMessage, *, has_commands: bool) -> tuple[str | None, bool]:
    """Return the title for a conversation that begins with a message; and whether one does for
    certain, because a person asks for it.

    It is its first words. A command has none, and `has_commands` tells whether it can be one of
    ours.
    """
    command = _command(message) if has_commands else None
    is_new = command is not None and command.name == "reset"
    text = command.rest if command else message.text
    if text.lstrip().startswith("/"):
        return None, is_new
    return one_line(text[: 4 * MAX_TITLE], most=MAX_TITLE) or None, is_new


def _command(message: ChannelMessage) -> Command | None:
    first = _FIRST.match(message.text)
    word, at, bot = first[1].partition("@") if first else ("", "", "")
    word = word.casefold()
    if first is None or word not in WORDS or (at and not _BOT.fullmatch(bot)):
        return None
    behind = message.text[first.end() :].strip()
    command = Command(WORDS[word], word, behind, has_files=bool(message.attachments))
    return command if command.is_alone or command.name != "stop" else None
