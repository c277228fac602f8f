"""Files that people drop into a terminal: the agent can read them, and their paths are typed."""

import asyncio
import re
import secrets
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from remoteclaw.bridge.attachments import make_room
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.blobs import Blobs
from remoteclaw.host.files import write_new
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import Attachment
from remoteclaw.protocols import FILES

#: The longest name of a file, without its ending, in characters: the path stays readable.
MAX_NAME_CHARS = 60
#: The characters before which a path is typed with a backslash. All programs take such a path for a
#: dropped file; a quoted one, only some do.
_ESCAPED = re.compile(r"([^\w./@%+=:,-])")


class DroppedFiles:
    """Places the files that are dropped into one terminal."""

    def __init__(self, blobs: Blobs, sid: str, directory: Path) -> None:
        """`directory` has the files that outlive the terminal, such as its hooks' notes."""
        self._blobs = blobs
        self._sid = sid
        self._directory = directory / FILES

    async def place(self, files: Sequence[Attachment]) -> list[Path]:
        """Write uploaded files into a new directory, and return their paths.

        Raises `CallRefused`, before anything is typed.
        """
        target = self._directory / secrets.token_hex(4)
        paths = []
        for number, file in enumerate(files, start=1):
            content = await self._blobs.get(self._sid, file)
            name = one_line(file.name, max_chars=60)
            if content is None:
                raise CallRefused(
                    "NOT_FOUND", f"The file {name} is not kept any more: drop it again."
                )
            # The number keeps a file from having a name with a meaning for the CLI (CLAUDE.md).
            path = target / f"{number}-{safe_name(file.name)}"
            try:
                await asyncio.to_thread(self._write, path, content)
            except OSError as error:
                why = f"it can't be stored on the agent's computer ({error.strerror})"
                raise CallRefused("UNAVAILABLE", f"The file {name} was not taken: {why}.") from None
            paths.append(path)
        # The uploads expire by themselves: a waiting message may name one of them, too.
        return paths

    def _write(self, path: Path, content: bytes) -> None:
        make_room(self._directory, len(content), keep={path.parent.name})
        for directory in (self._directory, path.parent):
            directory.mkdir(mode=0o700, exist_ok=True)
        write_new(path, content)


def safe_name(name: str) -> str:
    """Return a file's name of letters, digits, dots, dashes and underscores, with its ending.

    So no program can take a part of it for a quote, a blank or an escape sequence.
    """
    stem, dot, ending = unicodedata.normalize("NFC", name).rpartition(".")
    if not stem:
        stem, dot, ending = ending, "", ""
    kept = re.sub(r"[^\w-]+", "-", stem).strip("-")[:MAX_NAME_CHARS]
    return f"{kept or 'file'}{dot}{re.sub(r'[^A-Za-z0-9]', '', ending)[:10]}".rstrip(".")


def typed_path(path: Path) -> str:
    """Return a path as terminals type the path of a file that was dropped on their window."""
    return _ESCAPED.sub(r"\\\1", str(path))
