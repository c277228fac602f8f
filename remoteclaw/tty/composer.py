"""The composer of a program in a terminal: whether it is empty again, and what is typed in it.

No program reports what was typed into it. But its composer looks the same whenever it is empty,
wherever it is on the screen: the prompt before the cursor, nothing behind it, and the rows around
it. A menu or a dialog takes its place, or its cursor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Self

from remoteclaw.tty.frames import Frame, Style

#: The right edge of a composer that is a box.
_EDGES: Final = "│┃║|▌▐█"
#: The maximum number of rows above and below the cursor that are searched for the draft's ends.
MAX_ROWS: Final = 50


@dataclass(frozen=True, slots=True)
class Composer:
    """The look of the rows around the cursor, which is the same while the composer is empty.

    Only characters are compared, without repetitions: the size of the window may change, and some
    programs change the colours while they work.
    """

    is_cursor_visible: bool
    """Whether the terminal's cursor is shown; some programs hide it, and draw their own."""
    prompt: str
    """The row before the cursor."""
    above: str
    below: str
    edge: str
    """The second row above, as far as the prompt is wide: a draft of several lines changes it."""
    typed: str
    """The text from the cursor on, except for a hint."""

    @classmethod
    def of(cls, frame: Frame) -> Self:
        """Return the composer of a full frame."""
        at, column = frame["cursor"]["row"], frame["cursor"]["col"]
        row, above, below, edge = (_row(frame, at + by) for by in (0, -1, 1, -2))
        return cls(
            is_cursor_visible=frame["cursor"]["visible"],
            prompt=_look(row[:column]),
            above=_look(above),
            below=_look(below),
            edge=_look(edge[:column]),
            typed=_without_hint(row[column:]),
        )

    @property
    def is_bare(self) -> bool:
        """Whether this looks like an empty composer: a bare prompt, between rows without text."""
        signs = {*self.prompt} - {" "}
        is_blank = not any(map(str.isalnum, self.prompt + self.above + self.below))
        return bool(signs) and is_blank and not signs & {*self.edge} and not self.typed


def is_composing(frame: Frame, empty: Composer) -> bool:
    """Whether the cursor of a full frame is behind the prompt of the composer, and in no menu."""
    return _first_row(frame, empty) is not None


def draft_of(frame: Frame, empty: Composer | None) -> str:
    """Return what is typed in the composer of a full frame, as it is on the screen.

    Without `empty`, the program's empty composer, or in a menu, it is the text of the cursor's row.
    """
    if Composer.of(frame) == empty:
        return ""
    first = last = at = frame["cursor"]["row"]
    width = 0
    if empty is not None and (begin := _first_row(frame, empty)) is not None:
        first, width = begin
        below = range(at, min(at + MAX_ROWS, frame["rows"] - 1))
        last = next((row for row in below if _look(_row(frame, row + 1)) == empty.below), at)
    rows = (_row(frame, row)[width:] for row in range(first, last + 1))
    texts = ("".join(character for character, _ in row) for row in rows)
    return "\n".join(text.rstrip(" " + _EDGES) for text in texts).strip()


def _first_row(frame: Frame, empty: Composer) -> tuple[int, int] | None:
    """Return the first row of the composer in which the cursor is, and the width of its prompt.

    None if the cursor is in no composer.
    """
    at = frame["cursor"]["row"]
    begins: dict[int, int] = {}
    for row in range(at, max(at - MAX_ROWS, -1), -1):
        cells = _row(frame, row)
        if empty.below and _look(cells) == empty.below:
            break  # the end of something above
        widths = range(1, len(cells) + 1)
        width = next((each for each in widths if _look(cells[:each]) == empty.prompt), None)
        if width is not None:
            begins[row] = width + 1  # with a blank
    # Some programs repeat the prompt, an edge, in each row.
    return next((each for each in begins.items() if each[0] - 1 not in begins), None)


#: One character and its style.
_Cell = tuple[str, Style]


def _row(frame: Frame, row: int) -> Sequence[_Cell]:
    """Return a row's cells; a wide character has a blank after it."""
    cells: list[_Cell] = []
    for text, *styles in frame["lines"].get(str(row), ()):
        style: Style = styles[0] if styles else {}
        for character in [text] if style.get("c") else text:
            cells.append((" " if character == "\xa0" else character, style))
            cells += [(" ", style)] * (style.get("w") == 2)
    return cells


def _look(cells: Sequence[_Cell]) -> str:
    """Return the characters, those that are repeated once, without blanks at the end."""
    return "".join(each for each, _ in groupby(character for character, _ in cells)).rstrip()


def _without_hint(cells: Sequence[_Cell]) -> str:
    """Return the text from the cursor on, unless it is a hint: faint or grey.

    A program that draws its own cursor gives the hint's first character another style.
    """
    text = "".join(character for character, _ in cells).strip(" " + _EDGES)
    drawn = [style for character, style in cells if character not in " " + _EDGES]
    is_first = len(drawn) > 1 and cells[0][0] != " "
    return "" if all(map(_is_faint, drawn[is_first:])) else text


def _is_faint(style: Style) -> bool:
    colour: Any = style.get("fg")
    is_grey = isinstance(colour, str) and len({colour[1:3], colour[3:5], colour[5:7]}) == 1
    return bool(style.get("d")) or (is_grey and "#40" < colour < "#b8")
