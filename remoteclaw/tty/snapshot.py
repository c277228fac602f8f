"""Snapshots: the whole state of an emulated terminal in few bytes, for the next gateway."""

import zlib
from typing import Any, Final

from remoteclaw.errors import RemoteClawError
from remoteclaw.tty import emulator
from remoteclaw.tty.ghostty import library

#: The largest snapshot, in bytes: the holder keeps 256 KB, which also contain the other fields of
#: `SavedState`.
MAX_SNAPSHOT_BYTES: Final = 208 * 1024
#: The lengths of scrollback that are tried, in rows, if a snapshot with all of it is too large.
_SCROLLBACK_ROWS = (500, 250, 100, 30, 0)
_MAGIC: Final = b"RCP1"


class SnapshotUnreadable(RemoteClawError):
    """Raised when a snapshot can't be restored, for example one of another emulator version."""


def take_snapshot(terminal: Any) -> bytes:
    """Return a terminal's snapshot of at most `MAX_SNAPSHOT_BYTES`.

    It has less scrollback, and finally an empty screen, if it would be larger. Empty bytes in the
    middle of a sequence that is too long to keep.
    """
    raw = emulator.encode_terminal(terminal)
    if not raw:
        return b""
    snapshot = _compressed(raw)
    if len(snapshot) <= MAX_SNAPSHOT_BYTES:
        return snapshot
    copy = emulator.decode_terminal(raw)
    try:
        for lines in _SCROLLBACK_ROWS:
            emulator.limit_scrollback(copy, lines)
            snapshot = _compressed(emulator.encode_terminal(copy))
            if len(snapshot) <= MAX_SNAPSHOT_BYTES:
                return snapshot
        emulator.clear(copy)
        return _compressed(emulator.encode_terminal(copy))
    finally:
        library()[1].ghostty_terminal_free(copy)


def restore_snapshot(snapshot: bytes) -> Any:
    """Return the terminal of a snapshot. Raises `SnapshotUnreadable`."""
    try:
        if not snapshot.startswith(_MAGIC):
            raise ValueError
        return emulator.decode_terminal(zlib.decompress(snapshot[len(_MAGIC) :]))
    except (ValueError, zlib.error) as error:
        raise SnapshotUnreadable("This snapshot of a terminal can't be read.") from error


def _compressed(raw: bytes) -> bytes:
    return _MAGIC + zlib.compress(raw, 1)
