"""The state that a gateway saves with a holder for the next gateway, and the last screen.

A snapshot of the screen shows its content. A JSON object before it holds what the snapshot lacks:
what the program reported about itself, and whether there is unsent text.
"""

import base64
import binascii
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import orjson

from remoteclaw.holder.terminal_client import ENDED_FILE
from remoteclaw.tty.composer import Composer
from remoteclaw.tty.screen import Screen
from remoteclaw.tty.snapshot import SnapshotUnreadable

_MARK = b"RCK1 "


@dataclass(frozen=True, slots=True)
class SavedState:
    """The state of a terminal at one offset of its output."""

    snapshot: bytes = b""
    """The screen, as of `Screen.snapshot()`; empty if there is none."""
    osc_texts: dict[int, str] = field(default_factory=dict)
    """The last text of each OSC number that the program sent. 0 is its title."""
    has_draft: bool = True
    """Whether there may be typed text that was not sent; True if that is unknown."""
    wait_count: int = 0
    """How often the program has begun to wait for a person."""
    is_waiting: bool = False
    """Whether the last of these waits is not over."""
    empty: Composer | None = None
    """The composer when it was last known to be empty."""
    processes: frozenset[int] | None = None
    """The processes below the holder at that time; None if unknown."""

    def encode(self) -> bytes:
        """Return the bytes that the holder keeps."""
        texts = {str(number): text for number, text in self.osc_texts.items()}
        waits = [self.wait_count, self.is_waiting]
        head = orjson.dumps(
            {
                "said": texts,
                "draft": self.has_draft,
                "waits": waits,
                "empty": self.empty,
                "processes": None if self.processes is None else [*self.processes],
            }
        )
        return b"%b%d\n%b%b" % (_MARK, len(head), head, self.snapshot)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the state from the bytes of `encode()`; the default state if they are invalid.

        Bytes without our mark are a snapshot.
        """
        if not data.startswith(_MARK):
            return cls(snapshot=data)
        try:
            size, _, rest = data[len(_MARK) :].partition(b"\n")
            head = orjson.loads(rest[: int(size)])
            texts = {int(number): str(text) for number, text in head["said"].items()}
            waits, is_waiting = head["waits"]
            return cls(
                rest[int(size) :],
                texts,
                bool(head["draft"]),
                int(waits),
                bool(is_waiting),
                Composer(**head["empty"]) if head["empty"] else None,
                None if head["processes"] is None else frozenset(map(int, head["processes"])),
            )
        except (ValueError, KeyError, AttributeError, TypeError):
            return cls()


def last_screen(directory: Path) -> Screen | None:
    """Return the last screen of a terminal that has ended, from the files in `directory`.

    None if they are gone: the host keeps them for an hour.
    """
    try:
        ended = orjson.loads((directory / ENDED_FILE).read_bytes())
        cols, rows, end = ended["cols"], ended["rows"], ended["offset"]
        saved, tail = (base64.b64decode(ended[name]) for name in ("picture", "tail"))
        newer_bytes = end - ended["pictureOffset"] if saved else end
    except (OSError, LookupError, TypeError, ValueError, binascii.Error):
        return None
    screen = None
    with contextlib.suppress(SnapshotUnreadable):
        snapshot = SavedState.decode(saved).snapshot
        screen = Screen.restored(snapshot, cols, rows) if snapshot else None
    screen = screen or Screen(cols, rows)
    screen.feed(tail[-newer_bytes:] if newer_bytes else b"")
    return screen
