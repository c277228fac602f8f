"""The files of a turn: from people to the agent, and from the agent to people.

The agent gets a path that it may read; a picture of a type that its runtime accepts is also a part
of the prompt. A notice tells people which file did not arrive, and why.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from remoteclaw.bridge.outgoing import OutgoingFiles
from remoteclaw.bridge.untrusted import as_data
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import RedisRefused
from remoteclaw.host.files import UnfitFile, format_size, mime_type_of, write_new
from remoteclaw.messages import (
    MAX_ATTACHMENTS,
    MAX_ATTACHMENTS_BYTES,
    Attachment,
    Entry,
    Image,
    file_name,
)
from remoteclaw.protocols import AttachmentStore

#: The maximum size of a picture in the prompt, in bytes; the agent can read a larger one as a file.
MAX_IMAGE_BYTES = 10 * 1024 * 1024
#: The maximum size of one agent's directory for files, in bytes; the oldest files are removed.
MAX_KEPT_BYTES = 200 * 1024 * 1024

#: The maximum total size of the pictures in one turn's prompts, in bytes: each is in memory several
#: times.
MAX_IMAGES_BYTES = 20 * 1024 * 1024
#: The maximum length of a file's name in a notice, in characters.
MAX_NAME_CHARS = 60

NOT_GIVEN = "(Your file {name} did not reach the agent: {why}.)"
NOT_SENT = "(The file {name} could not be sent: {why}.)"
#: The name of the file that has the whole of an answer that is too long for the chat.
ANSWER_NAME = "answer.md"
TOO_MANY = "({count} more files were named; an answer can have at most {most}.)"


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file from a person, as the agent receives it."""

    attachment: Attachment
    path: Path | None = None
    """The path where the agent can read it; None if there is a `problem`."""
    problem: str = ""
    """The reason why the agent can't read the file; empty if it can."""

    @property
    def notice(self) -> str:
        """The notice about the `problem`, for the person."""
        return NOT_GIVEN.format(name=_quoted(self.attachment.name), why=self.problem)


class TurnFiles:
    """Gives an agent the files of its turn, and stores the files that it sends."""

    def __init__(
        self,
        store: AttachmentStore | None,
        channel: ChannelConfig,
        *,
        files_dir: Path,
        outgoing: OutgoingFiles,
        image_types: frozenset[str],
    ) -> None:
        """The agent can read files in `files_dir`. Without a `store`, no file is passed on."""
        self._store = store
        self._channel = channel
        self._files_dir = files_dir
        self._outgoing = outgoing
        self._image_types = image_types
        self._placed_bytes = 0
        """The size of this turn's files in `files_dir`."""
        self._shown_bytes = 0
        """The size of the pictures in this turn's prompts."""
        self._entries: set[str] = set()
        """The entries whose files are in `files_dir`."""

    async def give(self, entry: Entry) -> tuple[list[GivenFile], list[Image]]:
        """Put an entry's files where the agent can read them; return them, and pictures to show.

        Raises `RedisUnavailable` and `LeaseLost`; any other problem is in its `GivenFile`.
        """
        self._entries.add(entry.id)
        given, images = [], []
        if entry.message.attachments:
            await asyncio.to_thread(self._clear, entry.id)
        for number, attachment in enumerate(entry.message.attachments, start=1):
            # The number keeps a file from having a name with a meaning for the CLI (CLAUDE.md).
            path = self._files_dir / entry.id / f"{number}-{attachment.name}"
            try:
                content = await self._load(attachment)
                await asyncio.to_thread(self._place, path, content)
            except UnfitFile as problem:
                given.append(GivenFile(attachment, problem=str(problem)))
                continue
            except OSError as error:
                why = f"it can't be stored on the agent's computer ({error.strerror})"
                given.append(GivenFile(attachment, problem=why))
                continue
            given.append(GivenFile(attachment, path))
            may_show = len(content) <= min(MAX_IMAGE_BYTES, MAX_IMAGES_BYTES - self._shown_bytes)
            if attachment.mime_type in self._image_types and may_show:
                self._shown_bytes += len(content)
                images.append(Image(attachment.mime_type, content))
        return given, images

    async def _load(self, attachment: Attachment) -> bytes:
        """Return a file's content; raises `UnfitFile` if it can't be given to the agent."""
        if self._store is None:
            raise UnfitFile("files can't be taken here")
        if problem := refusal_of(self._channel, attachment.mime_type, attachment.size):
            raise UnfitFile(problem)
        if self._placed_bytes + attachment.size > MAX_KEPT_BYTES:
            raise UnfitFile(f"more than {format_size(MAX_KEPT_BYTES)} came at once")
        content = await self._store.load(attachment)
        if content is None:
            raise UnfitFile("it is not kept any more; send it again")
        return content

    def _clear(self, entry_id: str) -> None:
        shutil.rmtree(self._files_dir / entry_id, ignore_errors=True)

    def _place(self, path: Path, content: bytes) -> None:
        make_room(self._files_dir, len(content), keep=self._entries)
        # Parents are not made: a missing run directory was removed together with its agent.
        for directory in (self._files_dir, path.parent):
            directory.mkdir(mode=0o700, exist_ok=True)
        write_new(path, content)
        self._placed_bytes += len(content)

    async def take(self, paths: Sequence[str]) -> tuple[list[Attachment], list[str]]:
        """Store the files that the agent sends; return them, and notices about files it can't send.

        Raises `RedisUnavailable` and `LeaseLost`.
        """
        taken: list[Attachment] = []
        problems: list[str] = []
        wanted = [*dict.fromkeys(map(_normal, paths))]
        for path in wanted[:MAX_ATTACHMENTS]:
            file = self._outgoing.workspace / path
            size = sum(attachment.size for attachment in taken)
            try:
                taken.append(await self._take(file, MAX_ATTACHMENTS_BYTES - size))
            except UnfitFile as problem:
                problems.append(NOT_SENT.format(name=_quoted(file_name(path)), why=problem))
        if (more := len(wanted) - MAX_ATTACHMENTS) > 0:
            problems.append(TOO_MANY.format(count=more, most=MAX_ATTACHMENTS))
        return taken, problems

    async def keep_answer(self, answer: str) -> Attachment | None:
        """Store a whole answer as a file; None if the chat or Redis takes no such file.

        Raises `RedisUnavailable` and `LeaseLost`.
        """
        content = answer.encode(errors="replace")
        mime_type = mime_type_of(ANSWER_NAME, content)
        if self._store is None or refusal_of(self._channel, mime_type, len(content)):
            return None
        with contextlib.suppress(RedisRefused):
            return await self._store.store(ANSWER_NAME, content)
        return None

    async def _take(self, file: Path, room: int) -> Attachment:
        if self._store is None:
            raise UnfitFile("files can't be sent from here")
        content = await asyncio.to_thread(self._outgoing.read, file)
        if len(content) > room:
            max_size = format_size(MAX_ATTACHMENTS_BYTES)
            raise UnfitFile(f"the files of an answer have {max_size} together at most")
        if problem := refusal_of(self._channel, mime_type_of(file.name, content), len(content)):
            raise UnfitFile(problem)
        try:
            return await self._store.store(file.name, content)
        except RedisRefused:
            raise UnfitFile("there is no room to keep it right now") from None


def refusal_of(channel: ChannelConfig, mime_type: str, size: int) -> str:
    """Return why a channel does not accept such a file; empty if it does."""
    max_bytes = channel.attachment_mb * 1024 * 1024
    if max_bytes == 0:
        return "this chat takes no files"
    if size > max_bytes:
        return f"this chat takes files of {format_size(max_bytes)} at most"
    if not any(fnmatchcase(mime_type, kind) for kind in channel.attachment_types):
        return f"this chat takes no files of its kind ({mime_type})"
    return ""


def left_out_files(entry: Entry) -> list[GivenFile]:
    """Return the files of a message that was left out of the turn, each with its problem."""
    why = "its message was left out, because too many waited"
    return [GivenFile(attachment, problem=why) for attachment in entry.message.attachments]


def make_room(directory: Path, needed: int, *, keep: Collection[str]) -> None:
    """Remove the oldest files, so that a warm agent's directory does not grow without limit.

    The files of the entries in `keep` stay.
    """
    kept: list[tuple[float, int, Path]] = []
    for entry in [*directory.iterdir()] if directory.is_dir() else []:
        with contextlib.suppress(FileNotFoundError):  # the agent may tidy up
            size = sum(file.lstat().st_size for file in entry.rglob("*"))
            kept.append((entry.lstat().st_mtime, size, entry))
    total = sum(size for _, size, _ in kept)
    for _, size, entry in sorted(kept):
        if total + needed <= MAX_KEPT_BYTES:
            break
        if entry.name not in keep:
            shutil.rmtree(entry, ignore_errors=True)
            total -= size


def _normal(path: str) -> str:
    """Return a normalized path, so that a file that is named twice is sent once."""
    return os.path.normpath(path)


def _quoted(name: str) -> str:
    """Return a file's name as a JSON string, for a notice."""
    return as_data(name, max_chars=MAX_NAME_CHARS)
