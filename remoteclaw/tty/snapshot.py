"""Pictures: the whole state of an emulated terminal in few bytes, for a gateway that comes next."""

import zlib
from typing import Any, Final

from remoteclaw.errors import RemoteClawError
from remoteclaw.tty import emulator
from remoteclaw.tty.ghostty import library

#: Most bytes of a picture: the holder keeps 256 KB, with what else is known of the terminal.
PICTURE: Final = 208 * 1024
#: Rows of the past that a picture has if it is too large with all.
_LINES = (500, 250, 100, 30, 0)
_MAGIC: Final = b"RCP1"


class PictureUnreadable(RemoteClawError):
    """Raised when a picture can't be restored, as of another version of the emulator."""


def packed(terminal: Any) -> bytes:
    """Return a terminal's picture; without rows of the past, or of all, if it is too large.

    Empty in the middle of a sequence that is too long to keep.
    """
    raw = emulator.encoded(terminal)
    if not raw:
        return b""
    picture = _compressed(raw)
    if len(picture) <= PICTURE:
        return picture
    copy = emulator.decoded(raw)
    try:
        for lines in _LINES:
            emulator.keep_lines(copy, lines)
            picture = _compressed(emulator.encoded(copy))
            if len(picture) <= PICTURE:
                return picture
        emulator.clear(copy)
        return _compressed(emulator.encoded(copy))
    finally:
        library()[1].ghostty_terminal_free(copy)


def unpacked(picture: bytes) -> Any:
    """Return the terminal of a picture. Raises `PictureUnreadable`."""
    try:
        if not picture.startswith(_MAGIC):
            raise ValueError
        return emulator.decoded(zlib.decompress(picture[len(_MAGIC) :]))
    except (ValueError, zlib.error) as error:
        raise PictureUnreadable("This picture of a terminal can't be read.") from error


def _compressed(raw: bytes) -> bytes:
    return _MAGIC + zlib.compress(raw, 1)
