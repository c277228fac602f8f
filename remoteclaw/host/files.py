"""Files that people and agents send: their types, and safe reading and writing."""

import errno
import json
import mimetypes
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from remoteclaw.host.locks import locked
from remoteclaw.limits import MAX_ATTACHMENT_BYTES

if TYPE_CHECKING:  # at run time, importing it would make `remoteclaw send` load pydantic
    from remoteclaw.messages import Attachment

#: The first bytes of file types that are recognized only by their content.
_SIGNATURES = (
    ("image/png", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", re.compile(rb"\xff\xd8\xff")),
    ("image/gif", re.compile(rb"GIF8[79]a")),
    ("image/webp", re.compile(rb"RIFF....WEBP", re.DOTALL)),
    ("application/pdf", re.compile(rb"%PDF-")),
)
_SIGNED_TYPES = frozenset(mime_type for mime_type, _ in _SIGNATURES)
#: The type of all other files.
_UNKNOWN = "application/octet-stream"

#: Only Python's own table of types, so that a file has the same type on every host.
_BY_NAME = mimetypes.MimeTypes()


class UnfitFile(Exception):
    """Raised for a file that can't be sent; its text completes "the file NAME can't be sent: …"."""


def mime_type_of(name: str, content: bytes) -> str:
    """Return the MIME type of a file, by its first bytes, else by the extension of its name."""
    for mime_type, signature in _SIGNATURES:
        if signature.match(content):
            return mime_type
    guessed, encoding = _BY_NAME.guess_type(name)
    if guessed is None or encoding is not None or guessed in _SIGNED_TYPES:
        return _UNKNOWN
    return guessed


def read_file(
    path: Path, *, check: Callable[[Path, os.stat_result], None] = lambda _path, _status: None
) -> bytes:
    """Return the content of a regular file; raises `UnfitFile` if it can't or must not be sent.

    `check` is called with the real path and the status of the open file; it may raise `UnfitFile`.
    """
    try:
        # The file can be of any type: opening a fifo must not block, and a terminal must not become
        # this process's own.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError:
        raise UnfitFile("its name has a NUL in it") from None
    except OSError as error:
        raise UnfitFile(_reason(error)) from None
    try:
        # The open file is checked, because the path may lead to another one by now.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnfitFile("it is no regular file")
        check(Path(os.readlink(f"/proc/self/fd/{descriptor}")), status)
        content = b""
        if status.st_size <= MAX_ATTACHMENT_BYTES:
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(MAX_ATTACHMENT_BYTES + 1)
    except OSError as error:
        raise UnfitFile(_reason(error)) from None
    finally:
        os.close(descriptor)
    if max(len(content), status.st_size) > MAX_ATTACHMENT_BYTES:
        raise UnfitFile(f"it is larger than {format_size(MAX_ATTACHMENT_BYTES)}")
    return content


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "it is not there"
    return (error.strerror or type(error).__name__).lower()


def save_file(directory: Path, name: str, content: bytes) -> Path:
    """Write a file that only this user can read; return its path. Raises OSError.

    If there is a file of that name, the new file's name gets a number.
    """
    stem, dot, ending = name.rpartition(".")
    for number in range(1, 10_000):
        numbered = f"{stem or ending}-{number}{dot}{ending if stem else ''}"
        path = directory / (name if number == 1 else numbered)
        try:
            write_new(path, content, is_durable=True)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(errno.EEXIST, "there are too many files of this name")


def open_new(path: Path) -> BinaryIO:
    """Open a new file for writing that only its user can read. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def write_new(path: Path, content: bytes, *, is_durable: bool = False) -> None:
    """Write a new file that only this user can read.

    If `is_durable`, it is on the disk when this returns. Raises FileExistsError, or another OSError
    after which no part of the file is left.
    """
    opened = open_new(path)
    try:
        with opened as file:
            file.write(content)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def describe_file(
    file: "Attachment", *, saved: str | None = None, problem: str | None = None, hint: str = ""
) -> str:
    """Return the line about a file from an agent that a person reads in a terminal.

    It says that the file is `saved` at a path, or why it can't be saved, or else ends with `hint`.
    """
    about = f"{json.dumps(file.name, ensure_ascii=False)}, {format_size(file.size)}"
    if saved:
        return f"(A file: {about}, saved as {saved}.)"
    return f"(A file: {about}. {f'It can’t be saved: {problem}.' if problem else hint})"


def format_size(size: int) -> str:
    """Return a number of bytes in the form that people read, such as 12 KB or 3.4 MB."""
    if size < 1024:
        return f"{size} bytes"
    if size < 1024 * 1024:
        return f"{size / 1024:.0f} KB"
    return f"{size / 1024 / 1024:.1f} MB".replace(".0 MB", " MB")


def share_text(path: Path, text: bytes, link: Path) -> None:
    """Store a text at `path` for as long as the hard link `link` to it exists.

    Callers derive `path` from the text, so callers with the same text share the file. Files in that
    directory whose links are all gone are removed.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with locked(path.parent / "lock"):
        if path.exists() and path.read_bytes() == text:
            os.link(path, link)
        else:
            path.unlink(missing_ok=True)
            write_new(link, text)
            os.link(link, path)
        for other in path.parent.glob(f"*{path.suffix}"):
            if other.stat().st_nlink == 1:
                other.unlink()
