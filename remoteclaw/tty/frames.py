"""Frames: a terminal's screen as data, and what differs between two states of it."""

import re
import time
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: A style's fields; see docs/terminals.md.
Style = dict[str, Any]
#: `[text]` or `[text, style]`.
Run = list[Any]
#: The JSON of a frame.
Frame = dict[str, Any]

#: Longest title, link and cluster of code points that a frame holds.
TITLE: Final = 200
LINK: Final = 2000
CLUSTER: Final = 16

#: Format characters that belong to a character: the joiner of emoji.
_JOINER = "\u200d"
_LINK = re.compile(r"https?://[!-~]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Modes:
    """The modes of a terminal that decide what is sent to its program."""

    paste: bool = False
    """Pasted text is framed (2004)."""
    app_cursor: bool = False
    app_keypad: bool = False
    kitty: int = 0
    """Flags of the kitty keyboard protocol."""
    modify_other: int = 0
    """xterm's modifyOtherKeys: 0 or 2."""
    mouse: int = 0
    """0, 9, 1000, 1002 or 1003."""
    sgr_mouse: bool = False
    focus: bool = False
    alternate: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the modes of a frame."""
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
    """The rows of a screen with the revision in which each changed last."""

    def __init__(self, cols: int, rows: int, *, now_us: int | None = None) -> None:
        # Later than any revision of a gateway before: its viewers' revisions are too old here.
        self.revision = now_us or time.time_ns() // 1000
        self.resize(cols, rows)

    def resize(self, cols: int, rows: int) -> None:
        """Begin with empty rows; viewers get all of them."""
        self.revision += 1
        self.cols = cols
        self.rest: Frame = {}
        self._oldest = self.revision
        self.rows: list[list[Run]] = [[] for _ in range(rows)]
        self._changed = [self.revision] * rows

    def change(self, rows: Mapping[int, list[Run]], rest: Frame) -> None:
        """Take rows that may have changed, and all that is no row."""
        changed = [row for row, runs in rows.items() if runs != self.rows[row]]
        if not changed and rest == self.rest:
            return
        self.revision += 1
        self.rest = rest
        for row in changed:
            self.rows[row] = rows[row]
            self._changed[row] = self.revision

    def since(self, revision: int | None) -> Frame | None:
        """Return what changed since a revision, everything if it is none of ours."""
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
            **self.rest,
        }


def applied(state: Frame | None, frame: Frame) -> Frame | None:
    """Return a viewer's state behind a frame; None if it has to ask for a full one.

    The state has the form of a full frame.
    """
    if frame["since"] is None:
        return frame
    if state is None or frame["since"] != state["revision"]:
        return None
    return {**frame, "since": None, "lines": {**state["lines"], **frame["lines"]}}


def add_run(runs: list[Run], text: str, style: Style | None) -> None:
    """Add text to a row, to the run before if it has the same style; clusters stay alone."""
    before = runs[-1][1] if runs and len(runs[-1]) > 1 else None
    if runs and before is style and not (style and "c" in style):
        runs[-1][0] += text
    else:
        runs.append([text, style] if style else [text])


def row_text(runs: Sequence[Run]) -> str:
    """Return a row without its styles."""
    return "".join(run[0] for run in runs).rstrip(" ")


def plain(text: str) -> str:
    """Return a text without control and invisible format characters, on one line."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        "\ufffd" if category in {"Cs", "Cn"} else character
        for character in text
        if (category := unicodedata.category(character)) not in {"Cc", "Cf", "Zl", "Zp"}
        or character == _JOINER
    )


def link(address: str) -> str:
    """Return the address of a hyperlink; empty if it is none that viewers may follow."""
    return address if len(address) <= LINK and _LINK.fullmatch(address) else ""
