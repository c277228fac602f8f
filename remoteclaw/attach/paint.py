"""Paints a terminal's screen, given as data, in the user's terminal.

All output to the user's terminal is generated here, so that no byte of a program reaches it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Control characters, and characters that change the direction of text.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_COLOUR = re.compile(r"#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})")
_LINK = re.compile(r"https?://[!-~]{1,1992}")
#: The SGR codes of a style's attributes.
_SGR_CODES = {"b": "1", "d": "2", "i": "3", "ul": "4", "v": "7", "s": "9"}
_SHAPES = {"block": 2, "underline": 4, "bar": 6}
#: The longest title, in characters.
MAX_TITLE_CHARS = 200

BEGIN, END = "\x1b[?2026h\x1b[?25l", "\x1b[?2026l"

Run = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Scene:
    """The content of the window: rows of runs, the status line, the cursor."""

    cols: int
    lines: Sequence[Sequence[Run]]
    """One per row of the window, except for the last row."""
    status: tuple[Run, ...]
    """The last row of the window."""
    cursor: tuple[int, int] | None = None
    """Row and column; None if the cursor is hidden."""
    shape: str = "block"
    title: str = ""


@dataclass(slots=True)
class ScreenPainter:
    """Generates the output that updates the window from the last scene to the next."""

    has_true_colour: bool = True
    """Whether the user's terminal shows 24-bit colours; else the nearest of 256 is used."""
    _shown: list[Sequence[Run]] = field(default_factory=list)
    _title: str | None = None
    _shape: str = ""

    def reset(self) -> None:
        """Paint everything the next time, because the content of the window is unknown."""
        self._shown = []

    def paint(self, scene: Scene) -> str:
        """Return the output that makes the window show `scene`."""
        parts = [] if self._shown else ["\x1b[0m\x1b[2J"]
        rows = [*scene.lines, scene.status]
        shown = self._shown or [()] * len(rows)
        for number, (row, before) in enumerate(zip(rows, shown, strict=True)):
            if row != before:
                parts.append(f"\x1b[{number + 1};1H{self._row(row, scene.cols)}")
        self._shown = rows
        if scene.title != self._title:
            self._title = scene.title
            parts.append(f"\x1b]2;{plain(scene.title)[:MAX_TITLE_CHARS]}\x07")
        if scene.shape != self._shape:
            self._shape = scene.shape
            parts.append(f"\x1b[{_SHAPES.get(scene.shape, 0)} q")
        cursor = ""
        if scene.cursor:
            cursor = f"\x1b[{scene.cursor[0] + 1};{scene.cursor[1] + 1}H\x1b[?25h"
        return f"{BEGIN}{''.join(parts)}{END}{cursor}"

    def _row(self, row: Sequence[Run], cols: int) -> str:
        """Return the output for one row, cut to the width.

        The column is set again after characters whose width may differ in the user's terminal.
        """
        parts, column, is_placed = [], 0, True
        for run in row:
            style: Mapping[str, Any] = run[1] if len(run) > 1 and run[1] else {}
            width = 2 if style.get("w") == 2 else 1
            pieces = _pieces(plain(run[0]), style, width, room=cols - column)
            if not pieces:
                continue
            sgr, link = self._sgr(style), _link(style)
            parts.append(f"\x1b[{sgr}m{link}")
            for text, cells in pieces:
                if not is_placed:
                    parts.append(f"\x1b[{column + 1}G")
                parts.append(text)
                column += cells
                is_placed = text.isascii()
            if link:
                parts.append("\x1b]8;;\x1b\\")
        if column < cols:
            parts.append(f"\x1b[{column + 1}G\x1b[0m\x1b[K")
        return "".join(parts)

    def _sgr(self, style: Mapping[str, Any]) -> str:
        codes = ["0", *(code for name, code in _SGR_CODES.items() if style.get(name))]
        for name, code in (("fg", 38), ("bg", 48)):
            codes += self._colour_codes(style.get(name), code)
        return ";".join(codes)

    def _colour_codes(self, colour: object, code: int) -> list[str]:
        if isinstance(colour, int) and 0 <= colour <= 255:
            return [f"{code};5;{colour}"]
        if not isinstance(colour, str) or not (match := _COLOUR.fullmatch(colour.lower())):
            return []
        red, green, blue = (int(part, 16) for part in match.groups())
        if self.has_true_colour:
            return [f"{code};2;{red};{green};{blue}"]
        return [f"{code};5;{_nearest(red, green, blue)}"]


def plain(text: str) -> str:
    """Return `text` with a blank for each character that could control a terminal."""
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(" ", text)


def shorten(text: str, cols: int) -> str:
    """Return `text` cut to `cols` characters, with an ellipsis if it is longer."""
    return text if len(text) <= cols else f"{text[: max(cols - 1, 0)]}…"[:cols]


def has_true_colour(environ: Mapping[str, str]) -> bool:
    """Return whether the environment says that the terminal shows 24-bit colours."""
    return environ.get("COLORTERM") in ("truecolor", "24bit") or environ.get("TERM", "").endswith(
        "-direct"
    )


def _pieces(text: str, style: Mapping[str, Any], width: int, *, room: int) -> list[tuple[str, int]]:
    """Return the part of a run that fits into `room` cells, as texts with their widths.

    Each wide character and each cluster of several code points is a piece of its own, because the
    user's terminal may draw it with another width.
    """
    if style.get("c"):
        return [(text, width)] if width <= room else []
    visible = text[: max(room, 0) // width]
    if width == 1:
        return [(visible, len(visible))] if visible else []
    return [(character, 2) for character in visible]


def _link(style: Mapping[str, Any]) -> str:
    address = style.get("l")
    if not isinstance(address, str) or not _LINK.fullmatch(address):
        return ""
    return f"\x1b]8;;{address}\x1b\\"


def _nearest(red: int, green: int, blue: int) -> int:
    """Return the nearest of the 256 colours: one of the 6 × 6 × 6 cube, or a grey."""
    if max(red, green, blue) - min(red, green, blue) < 12:
        grey = round((red - 8) / 10)
        return 16 if grey < 0 else 231 if grey > 23 else 232 + grey
    r, g, b = (
        0 if part < 48 else 1 if part < 115 else (part - 35) // 40 for part in (red, green, blue)
    )
    return 16 + 36 * r + 6 * g + b
