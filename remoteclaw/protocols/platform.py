"""The seam to chat platforms: an account with both sides, and what people write there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from remoteclaw.messages import ChatKind
from remoteclaw.protocols.channel import ChannelAdapter

__all__ = [
    "Batch",
    "Choice",
    "FileSource",
    "Identity",
    "Incoming",
    "IncomingFile",
    "PlatformAdapter",
    "PressedAdapter",
]


@dataclass(frozen=True, slots=True)
class Identity:
    """What an account is called on its platform."""

    name: str
    """The account's name on the platform, as people find it."""
    problem: str = ""
    """What is odd about the account, in a sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A file that a person has sent, still on the platform."""

    id: str
    """The platform's name for it."""
    name: str
    mime_type: str
    size: int | None = None
    """In bytes, where the platform says it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An answer to a request that a card shows, as the platform tells it: perhaps made up."""

    request: str
    """The request's id."""
    verdict: str
    words: str = ""
    """The reason, where the platform has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A message that a person has sent, as its platform tells it."""

    id: str
    """Unique within the chat, and the same when the platform repeats itself; an edit of a message
    has another one than the message."""
    chat: str
    thread: str | None = None
    is_group: bool = False
    sender: str
    """The platform's id of who wrote it."""
    sender_name: str | None = None
    is_bot: bool = False
    at_ms: int
    text: str = ""
    files: tuple[IncomingFile, ...] = ()
    reply_to: str | None = None
    """The message that it answers."""
    quoted: str = ""
    """The words of that message, for the agent's context."""
    replaces: str | None = None
    """The id of the message that this edit replaces."""
    is_for_us: bool = True
    """In a group: whether it mentions the account, answers it, or is a command to it."""
    reaction: str | None = None
    """In place of a message: the emoji with which its sender reacts by now to the message
    `reply_to`; empty if with none any more."""
    choice: Choice | None = None
    """In place of a message: what its sender has chosen on a card."""
    moved_to: str | None = None
    """The chat's new id, if it was given one: by both, the adapter sends to the same chat."""
    now_called: str = ""
    """The id that its chat has by now, where `chat` is the first that it had; the intake's own."""
    problem: str = ""
    """Why it can't be read: it is put aside, and holds nothing up."""

    @property
    def chat_kind(self) -> ChatKind:
        """The kind of chat that it was written in."""
        if self.thread is not None:
            return "thread"
        return "group" if self.is_group else "direct"


@dataclass(frozen=True, slots=True)
class Batch:
    """What one poll has found."""

    position: str
    """From where the next poll goes on, once all of this is accepted."""
    incoming: tuple[Incoming, ...] = ()


class FileSource(Protocol):
    """What has the files that people send."""

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the content of a file that a person has sent."""


class PlatformAdapter(ChannelAdapter, FileSource, Protocol):
    """One account on one chat platform, both sides. Its calls raise what `ChannelAdapter` says.

    It may be a `LiveAdapter`, an `OperatingAdapter` and a `PressedAdapter` as well. One that shows
    the choices of a card by itself says `has_buttons = True`.
    """

    async def connect(self) -> Identity:
        """Check the credentials."""

    async def poll(self, position: str | None) -> Batch:
        """Wait for what people write, for 30 s at most; without a position, from the oldest.

        A position is not asked for before all up to it is accepted. Asked for again, it gives at
        once what it gave, and what has come since.
        """

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Show commands, each with its description, in the platform's own menu."""

    async def aclose(self) -> None:
        """Close all connections."""


@runtime_checkable
class PressedAdapter(Protocol):
    """What can tell a person that has pressed a button what came of it, beside the chat."""

    async def tell_pressed(self, incoming: Incoming, text: str, *, is_refused: bool) -> None:
        """Tell it, if the platform still lets it be told."""
