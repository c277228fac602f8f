"""The commands that go through a session's queue: `/new` and `/stop`.

All other commands are answered before the queue, in `remoteclaw/commands/`.

A command is a message whose first word is a command word, alone or before more text: `/new`,
`/new fix the tests`, and `/new@its_bot`, as Telegram writes it in groups. Case doesn't matter.
`/stop` is a command only if nothing follows it. It takes effect when the message is accepted,
because it must not wait for the work that it stops.
Everything else is for the agent: words that only look like a command, commands in a quote or a code
block, and all messages of other sessions' agents and cron jobs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from remoteclaw.host.terminal import one_line
from remoteclaw.messages import ChannelMessage, Entry

Name = Literal["reset", "stop"]
#: The commands by their words: `reset` begins a new conversation, and `stop` stops the running turn
#: and everything that waits.
WORDS: Mapping[str, Name] = {"/new": "reset", "/reset": "reset", "/stop": "stop"}

#: The first word of a message, if it is short enough for a command: in Telegram, a command and the
#: name of a bot have at most 32 characters each.
_FIRST_WORD = re.compile(r"\s*(\S{1,65})(?!\S)")
_BOT_NAME = re.compile(r"[A-Za-z0-9_]+")
#: The maximum length of a title, in characters: lists of sessions have room for this.
MAX_TITLE_CHARS = 48


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a person wrote in a chat, or an operator's reset."""

    name: Name
    word: str
    """The command word as it was written, in lower case; the text of an operator's reset."""
    rest: str = ""
    """The text after the command word."""
    has_files: bool = False
    """Whether the message has attachments."""

    @property
    def is_alone(self) -> bool:
        """Whether the message has neither text after the command word nor attachments."""
        return not self.rest and not self.has_files


def command_of(entry: Entry) -> Command | None:
    """Return the command in an entry; None if the entry is for the agent."""
    if entry.origin == "operator":
        return Command("reset", entry.message.text)
    if entry.origin != "chat" or entry.is_command is not None:
        return None
    return _command(entry.message)


def immediate_effect(message: ChannelMessage) -> Literal["stop", "wake", ""]:
    """Return the effect that a person's message has as soon as it is accepted.

    `stop` stops everything that the session accepted before; `wake` ends the wait of a postponed
    session, so that it handles the message now; empty is no effect.
    """
    command = _command(message)
    if command is None:
        return ""
    return "stop" if command.name == "stop" else "wake"


def title_of(message: ChannelMessage, *, has_commands: bool) -> tuple[str | None, bool]:
    """Return the title for a conversation, and whether `message` requests a new conversation.

    The title is the beginning of the message's text; None if the text is a command or empty.
    `has_commands` is whether the message can be one of the commands in `WORDS`.
    """
    command = _command(message) if has_commands else None
    is_new = command is not None and command.name == "reset"
    text = command.rest if command else message.text
    if text.lstrip().startswith("/"):
        return None, is_new
    return one_line(text[: 4 * MAX_TITLE_CHARS], max_chars=MAX_TITLE_CHARS) or None, is_new


def _command(message: ChannelMessage) -> Command | None:
    first = _FIRST_WORD.match(message.text)
    word, at, bot = first[1].partition("@") if first else ("", "", "")
    word = word.casefold()
    if first is None or word not in WORDS or (at and not _BOT_NAME.fullmatch(bot)):
        return None
    rest = message.text[first.end() :].strip()
    command = Command(WORDS[word], word, rest, has_files=bool(message.attachments))
    return command if command.is_alone or command.name != "stop" else None
