"""Frames: a terminal's screen, or the difference between two of its states, as JSON."""

import re
import time
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: The fields of a style; see docs/terminals.md.
Style = dict[str, Any]
#: `[text]` or `[text, style]`.
Run = list[Any]
#: A frame's JSON.
Frame = dict[str, Any]

#: The longest title and link in a frame, in characters, and the most code points of one cell.
MAX_TITLE_CHARS: Final = 200
MAX_LINK_CHARS: Final = 2000
MAX_CLUSTER_POINTS: Final = 16

#: The zero-width joiner of emoji: the only format character that frames contain.
_JOINER = "\u200d"
_LINK = re.compile(r"https?://[!-~]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Modes:
    """The modes of a terminal on which the encoding of its input depends."""

    paste: bool = False
    """Whether pasted text is bracketed (mode 2004)."""
    app_cursor: bool = False
    app_keypad: bool = False
    kitty: int = 0
    """The flags of the kitty keyboard protocol."""
    modify_other: int = 0
    """xterm's modifyOtherKeys: 0 or 2."""
    mouse: int = 0
    """The mouse mode: 0 (off), 9, 1000, 1002 or 1003."""
    sgr_mouse: bool = False
    focus: bool = False
    alternate: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the modes as in a frame."""
        return {
            "paste": self.paste,
            "appCursor": self.app_cursor,
            "appKeypad": self.app_keypad,
            "kitty": self.kitty,
            "modifyOther": self.modify_other,
            "mouse": self.mouse,
            "sgrMouse": self.sgr_mouse,
            "focus": self.focus,
            "alternate": self.alternate,
        }


class Frames:
    """The rows of a screen, each with the revision of its last change."""

    def __init__(self, cols: int, rows: int, *, now_us: int | None = None) -> None:
        # Higher than any revision of an earlier gateway, so that its viewers get the whole screen.
        self.revision = now_us or time.time_ns() // 1000
        self.resize(cols, rows)

    def resize(self, cols: int, rows: int) -> None:
        """Replace all rows by empty ones; viewers get a full frame next."""
        self.revision += 1
        self.cols = cols
        self.other_fields: Frame = {}
        """The fields of a frame that are not rows: cursor, title, modes, size of the scrollback."""
        self._oldest = self.revision
        self.rows: list[list[Run]] = [[] for _ in range(rows)]
        self._changed = [self.revision] * rows

    def update(self, rows: Mapping[int, list[Run]], other_fields: Frame) -> None:
        """Store rows and the other fields; increase the revision if any of them has changed."""
        changed = [row for row, runs in rows.items() if runs != self.rows[row]]
        if not changed and other_fields == self.other_fields:
            return
        self.revision += 1
        self.other_fields = other_fields
        for row in changed:
            self.rows[row] = rows[row]
            self._changed[row] = self.revision

    def since(self, revision: int | None) -> Frame | None:
        """Return the changes since `revision`, None if nothing changed.

        A full frame if `revision` is None or unknown.
        """
        if revision == self.revision:
            return None
        if revision is not None and not self._oldest <= revision < self.revision:
            revision = None
        return {
            "revision": self.revision,
            "since": revision,
            "cols": self.cols,
            "rows": len(self.rows),
            "lines": {
                str(row): runs
                for row, runs in enumerate(self.rows)
                if revision is None or self._changed[row] > revision
            },
            **self.other_fields,
        }


def apply_frame(state: Frame | None, frame: Frame) -> Frame | None:
    """Return a viewer's state after `frame`, in the form of a full frame.

    None if `frame` does not follow `state`: the viewer then has to request a full frame.
    """
    if frame["since"] is None:
        return frame
    if state is None or frame["since"] != state["revision"]:
        return None
    return {**frame, "since": None, "lines": {**state["lines"], **frame["lines"]}}


def add_run(runs: list[Run], text: str, style: Style | None) -> None:
    """Append text to a row, extending the last run if it has the same style object.

    A cluster always gets a run of its own.
    """
    before = runs[-1][1] if runs and len(runs[-1]) > 1 else None
    if runs and before is style and not (style and "c" in style):
        runs[-1][0] += text
    else:
        runs.append([text, style] if style else [text])


def row_text(runs: Sequence[Run]) -> str:
    """Return the text of a row."""
    return "".join(run[0] for run in runs).rstrip(" ")


def plain(text: str) -> str:
    """Return `text` on one line, without control characters and invisible format characters."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        "\ufffd" if category in {"Cs", "Cn"} else character
        for character in text
        if (category := unicodedata.category(character)) not in {"Cc", "Cf", "Zl", "Zp"}
        or character == _JOINER
    )


def safe_link(address: str) -> str:
    """Return a hyperlink's address if it is an http(s) address of moderate length, else ''."""
    return address if len(address) <= MAX_LINK_CHARS and _LINK.fullmatch(address) else ""
