"""Files of one turn: from people to the agent, and from the agent to people.

The agent gets a path that it may read; a picture that its runtime takes is shown to it as well.
People are told which file did not arrive, and why.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from remoteclaw.bridge.outgoing import Outgoing
from remoteclaw.bridge.untrusted import as_data
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import RedisRefused
from remoteclaw.host.files import UnfitFile, mime_type_of, size_in_words, write_new
from remoteclaw.messages import (
    MAX_ATTACHMENTS,
    MAX_ATTACHMENTS_BYTES,
    Attachment,
    Entry,
    Image,
    file_name,
)
from remoteclaw.protocols import AttachmentStore

#: The largest picture that is shown to an agent with its prompt, in bytes; a larger one it can read
#: as a file.
MAX_IMAGE = 10 * 1024 * 1024
#: How much one agent's directory for files may have, in bytes: beyond that the oldest go.
MAX_KEPT = 200 * 1024 * 1024

#: How large the pictures may be together that are shown to an agent in one turn, in bytes: what is
#: shown is in memory several times.
MAX_IMAGES = 20 * 1024 * 1024
#: How much of a file's name is said, in characters.
NAME = 60

NOT_GIVEN = "(Your file {name} did not reach the agent: {why}.)"
NOT_SENT = "(The file {name} could not be sent: {why}.)"
NOT_LOOKED_AT = "({count} more files were named; {most} are the most for one answer.)"


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file from a person, as the agent gets it."""

    attachment: Attachment
    path: Path | None = None
    """The path where the agent can read it; None if it can't."""
    problem: str = ""
    """The reason why it can't."""

    @property
    def words(self) -> str:
        """The sentence about a problem, for the person."""
        return NOT_GIVEN.format(name=_quoted(self.attachment.name), why=self.problem)


class TurnFiles:
    """Gives an agent the files of its turn, and takes those that it sends."""

    def __init__(
        self,
        store: AttachmentStore | None,
        channel: ChannelConfig,
        *,
        files_dir: Path,
        outgoing: Outgoing,
        image_types: frozenset[str],
    ) -> None:
        """Without a `store` there are no files."""
        self._store = store
        self._channel = channel
        self._files_dir = files_dir
        self._outgoing = outgoing
        self._image_types = image_types
        self._placed = 0
        """How much of this turn's files the agent has, in bytes."""
        self._shown = 0
        """The size of the pictures that the agent was shown, in bytes."""
        self._entries: set[str] = set()
        """The entries whose files it has."""

    async def give(self, entry: Entry) -> tuple[list[GivenFile], list[Image]]:
        """Put an entry's files where the agent can read them; return also the pictures to show.

        Raises `RedisUnavailable` and `LeaseLost`; any other problem stands with its file.
        """
        self._entries.add(entry.id)
        given, images = [], []
        if entry.message.attachments:
            await asyncio.to_thread(self._clear, entry.id)
        for number, attachment in enumerate(entry.message.attachments, start=1):
            # A number before it: no name makes it one of those that a CLI obeys (CLAUDE.md).
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
            may_show = len(content) <= min(MAX_IMAGE, MAX_IMAGES - self._shown)
            if attachment.mime_type in self._image_types and may_show:
                self._shown += len(content)
                images.append(Image(attachment.mime_type, content))
        return given, images

    async def _load(self, attachment: Attachment) -> bytes:
        """Return a file's content; raises `UnfitFile` if it can't be given to the agent."""
        if self._store is None:
            raise UnfitFile("files can't be taken here")
        if problem := unwanted(self._channel, attachment.mime_type, attachment.size):
            raise UnfitFile(problem)
        if self._placed + attachment.size > MAX_KEPT:
            raise UnfitFile(f"more than {size_in_words(MAX_KEPT)} came at once")
        content = await self._store.load(attachment)
        if content is None:
            raise UnfitFile("it is not kept any more; send it again")
        return content

    def _clear(self, entry_id: str) -> None:
        shutil.rmtree(self._files_dir / entry_id, ignore_errors=True)

    def _place(self, path: Path, content: bytes) -> None:
        _make_room(self._files_dir, len(content), keep=self._entries)
        # Without its parents: a run directory that is gone was removed with its agent.
        for directory in (self._files_dir, path.parent):
            directory.mkdir(mode=0o700, exist_ok=True)
        write_new(path, content)
        self._placed += len(content)

    async def take(self, paths: Sequence[str]) -> tuple[list[Attachment], list[str]]:
        """Keep the files that the agent sends; return them, and words about those that can't be.

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
            problems.append(NOT_LOOKED_AT.format(count=more, most=MAX_ATTACHMENTS))
        return taken, problems

    async def _take(self, file: Path, room: int) -> Attachment:
        if self._store is None:
            raise UnfitFile("files can't be sent from here")
        content = await asyncio.to_thread(self._outgoing.read, file)
        if len(content) > room:
            most = size_in_words(MAX_ATTACHMENTS_BYTES)
            raise UnfitFile(f"the files of an answer have {most} together at most")
        if problem := unwanted(self._channel, mime_type_of(file.name, content), len(content)):
            raise UnfitFile(problem)
        try:
            return await self._store.store(file.name, content)
        except RedisRefused:
            raise UnfitFile("there is no room to keep it right now") from None


def unwanted(channel: ChannelConfig, mime_type: str, size: int) -> str:
    """Return why a channel takes no such file; nothing if it does."""
    most = channel.attachment_mb * 1024 * 1024
    if most == 0:
        return "this chat takes no files"
    if size > most:
        return f"this chat takes files of {size_in_words(most)} at most"
    if not any(fnmatchcase(mime_type, kind) for kind in channel.attachment_types):
        return f"this chat takes no files of its kind ({mime_type})"
    return ""


def left_out(entry: Entry) -> list[GivenFile]:
    """Return the files of a message that the agent is not shown."""
    why = "its message was left out, because too many waited"
    return [GivenFile(attachment, problem=why) for attachment in entry.message.attachments]


def _make_room(directory: Path, needed: int, *, keep: Collection[str]) -> None:
    """Remove the oldest files, so that an agent that is kept warm does not fill the disk.

    Those of the entries in `keep` stay.
    """
    kept: list[tuple[float, int, Path]] = []
    for entry in [*directory.iterdir()] if directory.is_dir() else []:
        with contextlib.suppress(FileNotFoundError):  # the agent may tidy up
            size = sum(file.lstat().st_size for file in entry.rglob("*"))
            kept.append((entry.lstat().st_mtime, size, entry))
    total = sum(size for _, size, _ in kept)
    for _, size, entry in sorted(kept):
        if total + needed <= MAX_KEPT:
            break
        if entry.name not in keep:
            shutil.rmtree(entry, ignore_errors=True)
            total -= size


def _normal(path: str) -> str:
    """Return a path as it is written without detours: one file is looked at once."""
    return os.path.normpath(path)


def _quoted(name: str) -> str:
    """Return a file's name as data, for a sentence of ours."""
    return as_data(name, longest=NAME)
