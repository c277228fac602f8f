"""Paints a screen that is given as data: all that reaches the person's terminal is written here."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Controls, and what changes the direction of a text: a terminal would obey them.
_OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_COLOUR = re.compile(r"#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})")
_LINK = re.compile(r"https?://[!-~]{1,1992}")
#: What makes a text look so, by its name in a style.
_LOOKS = {"b": "1", "d": "2", "i": "3", "ul": "4", "v": "7", "s": "9"}
_SHAPES = {"block": 2, "underline": 4, "bar": 6}
#: The longest title, in characters.
MAX_TITLE = 200

BEGIN, END = "\x1b[?2026h\x1b[?25l", "\x1b[?2026l"

Run = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Scene:
    """What the person is to see: rows of runs from the top, a line of our own, the cursor."""

    cols: int
    lines: Sequence[Sequence[Run]]
    """As many as the window has, without the last one."""
    status: tuple[Run, ...]
    """The last line of the window."""
    cursor: tuple[int, int] | None = None
    """Row and column; None where it is not to be seen."""
    shape: str = "block"
    title: str = ""


@dataclass(slots=True)
class Painter:
    """Knows what the window shows, and writes what differs."""

    has_all_colours: bool = True
    """Whether the terminal shows colours other than the 256 that have a number."""
    _shown: list[Sequence[Run]] = field(default_factory=list)
    _title: str | None = None
    _shape: str = ""

    def forget(self) -> None:
        """Paint everything the next time: the window may show anything."""
        self._shown = []

    def paint(self, scene: Scene) -> str:
        """Return what makes the window show a scene."""
        parts = [] if self._shown else ["\x1b[0m\x1b[2J"]
        rows = [*scene.lines, scene.status]
        shown = self._shown or [()] * len(rows)
        for number, (row, before) in enumerate(zip(rows, shown, strict=True)):
            if row != before:
                parts.append(f"\x1b[{number + 1};1H{self._row(row, scene.cols)}")
        self._shown = rows
        if scene.title != self._title:
            self._title = scene.title
            parts.append(f"\x1b]2;{plain(scene.title)[:MAX_TITLE]}\x07")
        if scene.shape != self._shape:
            self._shape = scene.shape
            parts.append(f"\x1b[{_SHAPES.get(scene.shape, 0)} q")
        cursor = ""
        if scene.cursor:
            cursor = f"\x1b[{scene.cursor[0] + 1};{scene.cursor[1] + 1}H\x1b[?25h"
        return f"{BEGIN}{''.join(parts)}{END}{cursor}"

    def _row(self, row: Sequence[Run], cols: int) -> str:
        """Return one row, cut to the width; what may have another width there is placed again."""
        parts, column, is_placed = [], 0, True
        for run in row:
            style: Mapping[str, Any] = run[1] if len(run) > 1 and run[1] else {}
            width = 2 if style.get("w") == 2 else 1
            pieces = _pieces(plain(run[0]), style, width, room=cols - column)
            if not pieces:
                continue
            look, link = self._look(style), _link(style)
            parts.append(f"\x1b[{look}m{link}")
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

    def _look(self, style: Mapping[str, Any]) -> str:
        codes = ["0", *(code for name, code in _LOOKS.items() if style.get(name))]
        for name, code in (("fg", 38), ("bg", 48)):
            codes += self._colour(style.get(name), code)
        return ";".join(codes)

    def _colour(self, colour: object, code: int) -> list[str]:
        if isinstance(colour, int) and 0 <= colour <= 255:
            return [f"{code};5;{colour}"]
        if not isinstance(colour, str) or not (match := _COLOUR.fullmatch(colour.lower())):
            return []
        red, green, blue = (int(part, 16) for part in match.groups())
        if self.has_all_colours:
            return [f"{code};2;{red};{green};{blue}"]
        return [f"{code};5;{_nearest(red, green, blue)}"]


def plain(text: str) -> str:
    """Return a text of which a terminal obeys nothing, with a blank for what it would obey."""
    return text if text.isascii() and text.isprintable() else _OBEYED.sub(" ", text)


def in_cells(text: str, cols: int) -> str:
    """Return the beginning of a line of our own that fits."""
    return text if len(text) <= cols else f"{text[: max(cols - 1, 0)]}…"[:cols]


def colours_of(environ: Mapping[str, str]) -> bool:
    """Return whether a terminal says that it shows all colours."""
    return environ.get("COLORTERM") in ("truecolor", "24bit") or environ.get("TERM", "").endswith(
        "-direct"
    )


def _pieces(text: str, style: Mapping[str, Any], width: int, *, room: int) -> list[tuple[str, int]]:
    """Return a run as texts with their cells, as far as there is room.

    A terminal may have another opinion of how wide something is than ours: each wide character,
    and each cluster of several code points, is a piece of its own.
    """
    if style.get("c"):
        return [(text, width)] if width <= room else []
    fitting = text[: max(room, 0) // width]
    if width == 1:
        return [(fitting, len(fitting))] if fitting else []
    return [(character, 2) for character in fitting]


def _link(style: Mapping[str, Any]) -> str:
    address = style.get("l")
    if not isinstance(address, str) or not _LINK.fullmatch(address):
        return ""
    return f"\x1b]8;;{address}\x1b\\"


def _nearest(red: int, green: int, blue: int) -> int:
    """Return the colour of the 256 that is next: of the cube of 6 × 6 × 6, or a grey."""
    if max(red, green, blue) - min(red, green, blue) < 12:
        grey = round((red - 8) / 10)
        return 16 if grey < 0 else 231 if grey > 23 else 232 + grey
    r, g, b = (
        0 if part < 48 else 1 if part < 115 else (part - 35) // 40 for part in (red, green, blue)
    )
    return 16 + 36 * r + 6 * g + b
