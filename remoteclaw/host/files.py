"""Files that people and agents send: types, names, and safe reading."""

import errno
import json
import mimetypes
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from remoteclaw.host.locks import locked
from remoteclaw.limits import MAX_ATTACHMENT_BYTES

if TYPE_CHECKING:  # else `send` would load pydantic
    from remoteclaw.messages import Attachment

#: First bytes of the kinds of file that are recognised by their content alone.
_SIGNATURES = (
    ("image/png", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", re.compile(rb"\xff\xd8\xff")),
    ("image/gif", re.compile(rb"GIF8[79]a")),
    ("image/webp", re.compile(rb"RIFF....WEBP", re.DOTALL)),
    ("application/pdf", re.compile(rb"%PDF-")),
)
_TOLD_BY_CONTENT = frozenset(kind for kind, _ in _SIGNATURES)
#: What nothing is known of.
_UNKNOWN = "application/octet-stream"

#: Python's own table alone, so that a file is called the same on every host.
_BY_NAME = mimetypes.MimeTypes()


class UnfitFile(Exception):
    """Raised for a file that can't be sent; its text completes "the file NAME can't be sent: …"."""


def mime_type_of(name: str, content: bytes) -> str:
    """Return what a file is: by its first bytes, else by the ending of its name."""
    for kind, signature in _SIGNATURES:
        if signature.match(content):
            return kind
    guessed, encoding = _BY_NAME.guess_type(name)
    if guessed is None or encoding is not None or guessed in _TOLD_BY_CONTENT:
        return _UNKNOWN
    return guessed


def read_file(
    path: Path, *, check: Callable[[Path, os.stat_result], None] = lambda _path, _found: None
) -> bytes:
    """Return what is in a regular file; raises `UnfitFile` if it must not or can't be sent.

    `check` is told of the open file where it is, whatever links lead to it; it may raise as well.
    """
    try:
        # Whatever it is, opening it must neither wait (a fifo) nor have an effect (a terminal).
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError:
        raise UnfitFile("its name has a NUL in it") from None
    except OSError as error:
        raise UnfitFile(_reason(error)) from None
    try:
        # Asked of the open file, which can't be exchanged in between.
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UnfitFile("it is no regular file")
        check(Path(os.readlink(f"/proc/self/fd/{descriptor}")), found)
        content = b""
        if found.st_size <= MAX_ATTACHMENT_BYTES:
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(MAX_ATTACHMENT_BYTES + 1)
    except OSError as error:
        raise UnfitFile(_reason(error)) from None
    finally:
        os.close(descriptor)
    if max(len(content), found.st_size) > MAX_ATTACHMENT_BYTES:
        most = size_in_words(MAX_ATTACHMENT_BYTES)
        raise UnfitFile(f"it is larger than {most}")
    return content


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "it is not there"
    return (error.strerror or type(error).__name__).lower()


def save_file(directory: Path, name: str, content: bytes) -> Path:
    """Write a file that is the user's alone; return where it is.

    A file that is there already is kept: then the new one has a number. Raises OSError.
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


def write_new(path: Path, content: bytes, *, is_durable: bool = False) -> None:
    """Write a file that was not there and is the user's alone; raises OSError, leaving no half.

    A durable one is on the disk when this returns.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if is_durable:
                file.flush()
                os.fsync(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def about_file(
    file: "Attachment", *, saved: str | None = None, problem: str | None = None, hint: str = ""
) -> str:
    """Return what a person reads at a terminal of a file that an agent has sent."""
    about = f"{json.dumps(file.name, ensure_ascii=False)}, {size_in_words(file.size)}"
    if saved:
        return f"(A file: {about}, saved as {saved}.)"
    return f"(A file: {about}. {f'It can’t be saved: {problem}.' if problem else hint})"


def size_in_words(size: int) -> str:
    """Return a number of bytes as people read it: 12 KB, 3.4 MB."""
    if size < 1024:
        return f"{size} bytes"
    if size < 1024 * 1024:
        return f"{size / 1024:.0f} KB"
    return f"{size / 1024 / 1024:.1f} MB".replace(".0 MB", " MB")


def share_text(path: Path, text: bytes, link: Path) -> None:
    """Keep a text at a path that its content decides, for as long as `link` is there.

    Callers that need the same text at the same time share it. Texts of that directory without a
    link are removed.
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
