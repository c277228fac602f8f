"""The state that a gateway leaves with a holder for the next gateway, and the last screen of all.

The picture of the screen tells how it looks. What the program has said of itself, and whether
something was typed and not sent, come before it.
"""

import base64
import binascii
import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from remoteclaw.holder.terminal_client import ENDED
from remoteclaw.tty.screen import Screen
from remoteclaw.tty.snapshot import PictureUnreadable

_MARK = b"RCK1 "


@dataclass(frozen=True, slots=True)
class Kept:
    """What is known of a terminal at one place of its output."""

    picture: bytes = b""
    """The screen, as `Screen.picture()` writes one."""
    said: dict[int, str] = field(default_factory=dict)
    """The last of each kind of what the program has said of itself; its title has the number 0."""
    has_draft: bool = True
    """Whether something may have been typed that was not sent; True where it is unknown."""
    waits: int = 0
    """How often it has begun to wait for a person."""
    is_waiting: bool = False
    """Whether the last of those times was not over yet."""

    def encode(self) -> bytes:
        """Return it as the holder keeps it."""
        said = {str(number): text for number, text in self.said.items()}
        waits = [self.waits, self.is_waiting]
        head = orjson.dumps({"said": said, "draft": self.has_draft, "waits": waits})
        return b"%b%d\n%b%b" % (_MARK, len(head), head, self.picture)

    @classmethod
    def decode(cls, data: bytes) -> "Kept":
        """Return what was kept; of what makes no sense, nothing is known."""
        if not data.startswith(_MARK):
            return cls(picture=data)
        try:
            size, _, rest = data[len(_MARK) :].partition(b"\n")
            head = orjson.loads(rest[: int(size)])
            said = {int(number): str(text) for number, text in head["said"].items()}
            waits, is_waiting = head["waits"]
            return cls(rest[int(size) :], said, bool(head["draft"]), int(waits), bool(is_waiting))
        except (ValueError, KeyError, AttributeError, TypeError):
            return cls()


def last_screen(directory: Path) -> Screen | None:
    """Return the last screen of a terminal that has ended; None if nothing is left.

    Its host keeps it for an hour.
    """
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
