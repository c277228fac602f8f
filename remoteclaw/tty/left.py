"""The last screen of a terminal that has ended, which its host keeps for an hour."""

import base64
import binascii
import contextlib
from pathlib import Path

import orjson

from remoteclaw.holder.terminal_client import ENDED
from remoteclaw.tty.kept import Kept
from remoteclaw.tty.picture import PictureUnreadable
from remoteclaw.tty.screen import Screen


def last_screen(directory: Path) -> Screen | None:
    """Return the last screen of a terminal that kept its files there; None if nothing is left."""
    try:
        left = orjson.loads((directory / ENDED).read_bytes())
        cols, rows, end = left["cols"], left["rows"], left["offset"]
        picture, tail = (base64.b64decode(left[name]) for name in ("picture", "tail"))
        printed_since = end - left["pictureOffset"] if picture else end
    except (OSError, LookupError, TypeError, ValueError, binascii.Error):
        return None
    screen = None
    with contextlib.suppress(PictureUnreadable):
        kept = Kept.decode(picture)
        screen = Screen.restored(kept.picture, cols, rows) if kept.picture else None
    screen = screen or Screen(cols, rows)
    screen.feed(tail[-printed_since:] if printed_since else b"")
    return screen
