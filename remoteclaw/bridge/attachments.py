"""The files of one turn: those that people sent, on their way to the agent, and those it sends.

A file reaches the agent as a path that it may read; a picture that its runtime takes is shown to it
as well. What can't be given or sent is said, in the words of this module.
"""

import asyncio
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from remoteclaw.config import ChannelConfig
from remoteclaw.errors import RedisRefused
from remoteclaw.files import UnfitFile, mime_type_of, read_file, size_in_words, write_new
from remoteclaw.messages import MAX_ATTACHMENTS, Attachment, Entry, Image, file_name
from remoteclaw.protocols import AttachmentStore

__all__ = ["GivenFile", "TurnFiles", "left_out"]

#: The largest picture that is shown to an agent with its prompt, in bytes; a larger one it can read
#: as a file.
MOST_IMAGE = 10 * 1024 * 1024
#: How much one agent's directory for files may have, in bytes: beyond that the oldest go.
MOST_KEPT = 200 * 1024 * 1024

NOT_GIVEN = "(Your file “{name}” did not reach the agent: {why}.)"
NOT_SENT = "(The file “{name}” could not be sent: {why}.)"


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file of somebody's, as the agent gets it."""

    attachment: Attachment
    path: Path | None = None
    """Where the agent can read it; None if it can't."""
    problem: str = ""
    """Why it can't."""

    @property
    def words(self) -> str:
        """What the person is told of a problem."""
        return NOT_GIVEN.format(name=self.attachment.name, why=self.problem)


class TurnFiles:
    """Gives an agent the files of its turn, and takes those that it sends."""

    def __init__(
        self,
        store: AttachmentStore | None,
        facts: ChannelConfig,
        *,
        files_dir: Path,
        workspace: str,
        image_types: frozenset[str],
    ) -> None:
        """Without a `store`, there are no files, and who expects some is told so."""
        self._store = store
        self._facts = facts
        self._files_dir = files_dir
        self._workspace = workspace
        self._image_types = image_types
        self._placed = 0
        """How much of this turn's files the agent has, in bytes."""
        self._entries: set[str] = set()
        """The entries whose files it has."""

    async def give(self, entry: Entry) -> tuple[list[GivenFile], list[Image]]:
        """Put an entry's files where the agent can read them; return also the pictures to show.

        Raises `RedisUnavailable` and `LeaseLost`; any other problem stands with its file.
        """
        self._entries.add(entry.id)
        given, images = [], []
        for number, attachment in enumerate(entry.message.attachments, start=1):
            # A number before it: no name makes it one of those that a CLI obeys (CLAUDE.md).
            path = self._files_dir / entry.id / f"{number}-{attachment.name}"
            try:
                content = await self._load(attachment)
                await asyncio.to_thread(self._place, path, content, is_first=number == 1)
            except UnfitFile as problem:
                given.append(GivenFile(attachment, problem=str(problem)))
                continue
            except OSError as error:
                why = f"it can't be stored on the agent's computer ({error.strerror})"
                given.append(GivenFile(attachment, problem=why))
                continue
            given.append(GivenFile(attachment, path))
            if attachment.mime_type in self._image_types and len(content) <= MOST_IMAGE:
                images.append(Image(attachment.mime_type, content))
        return given, images

    async def _load(self, attachment: Attachment) -> bytes:
        """Return a file's content; raises `UnfitFile` if it can't be given to the agent."""
        if self._store is None:
            raise UnfitFile("files can't be taken here")
        if problem := self._unwanted(attachment.mime_type, attachment.size):
            raise UnfitFile(problem)
        if self._placed + attachment.size > MOST_KEPT:
            raise UnfitFile(f"more than {size_in_words(MOST_KEPT)} came at once")
        content = await self._store.load(attachment)
        if content is None:
            raise UnfitFile("it is not kept any more; send it again")
        return content

    def _place(self, path: Path, content: bytes, *, is_first: bool) -> None:
        if is_first:
            shutil.rmtree(path.parent, ignore_errors=True)  # of an attempt before
        _make_room(self._files_dir, len(content), keep=self._entries)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_new(path, content)
        self._placed += len(content)

    async def take(self, paths: Sequence[str]) -> tuple[list[Attachment], list[str]]:
        """Keep the files that the agent sends; return them, and words about those that can't be.

        Raises `RedisUnavailable` and `LeaseLost`.
        """
        taken: list[Attachment] = []
        problems: list[str] = []
        for path in dict.fromkeys(paths):
            file = Path(self._workspace, path)
            try:
                if len(taken) == MAX_ATTACHMENTS:
                    raise UnfitFile(f"{MAX_ATTACHMENTS} files are the most for one answer")
                taken.append(await self._take(file))
            except UnfitFile as problem:
                problems.append(NOT_SENT.format(name=file_name(path), why=problem))
        return taken, problems

    async def _take(self, file: Path) -> Attachment:
        if self._store is None:
            raise UnfitFile("files can't be sent from here")
        inside = (Path(self._workspace), self._files_dir)
        content = await asyncio.to_thread(read_file, file, inside=inside)
        if problem := self._unwanted(mime_type_of(file.name, content), len(content)):
            raise UnfitFile(problem)
        try:
            return await self._store.store(file.name, content)
        except RedisRefused:
            raise UnfitFile("there is no room to keep it right now") from None

    def _unwanted(self, mime_type: str, size: int) -> str:
        """Return why the channel takes no such file; nothing if it does."""
        most = self._facts.attachment_mb * 1024 * 1024
        if most == 0:
            return "this chat takes no files"
        if size > most:
            return f"this chat takes files of {size_in_words(most)} at most"
        if not any(fnmatchcase(mime_type, kind) for kind in self._facts.attachment_types):
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
    entries = [*directory.iterdir()] if directory.is_dir() else []
    sizes = {entry: sum(file.lstat().st_size for file in entry.rglob("*")) for entry in entries}
    for entry in sorted(entries, key=lambda entry: entry.lstat().st_mtime):
        if sum(sizes.values()) + needed <= MOST_KEPT:
            break
        if entry.name not in keep:
            shutil.rmtree(entry, ignore_errors=True)
            del sizes[entry]
