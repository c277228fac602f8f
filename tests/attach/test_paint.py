"""Painting in the person's terminal: the content of the frame, and no sequences from it."""

import random
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import pyte

from remoteclaw.attach.paint import Scene, ScreenPainter, plain
from remoteclaw.tty.frames import apply_frame
from remoteclaw.tty.screen import Screen
from tests.support.hostile import HOSTILE
from tests.support.remote import OURS

COLS, ROWS = 60, 12
#: Pieces of a program's output, which the tests combine at random.
STROKES = (
    "plain text ",
    "\x1b[1;31mred\x1b[0m",
    "\x1b[38;2;1;200;30;48;5;17mcolours\x1b[m ",
    "\x1b[7;3;9;4:3minverse\x1b[m",
    "你好 wide",
    "e\u0301 cluster",
    "── │ └",
    "\x1b]8;;https://example.org/a?b\x1b\\link\x1b]8;;\x1b\\",
    "\r\n",
    "\x1b[5;10H",
    "\x1b[K",
    "\x1b[2J",
    "\x1b[L\x1b[3P",
    "x" * 70,
    "\x1b]2;a title\x07",
    "\x1b[?25l",
    "\x1b[?25h\x1b[5 q",
)


class Window:
    """The person's terminal."""

    def __init__(self) -> None:
        self.screen = pyte.Screen(COLS, ROWS + 1)
        self.stream = pyte.Stream(self.screen)
        self.painter = ScreenPainter()

    def paint(self, frame: dict[str, Any], status: str = "status") -> str:
        at = frame["cursor"]
        written = self.painter.paint(
            Scene(
                cols=COLS,
                lines=[frame["lines"].get(str(row), []) for row in range(ROWS)],
                status=([status],),
                cursor=(at["row"], at["col"]) if at["visible"] else None,
                shape=at["shape"],
                title=frame["title"],
            )
        )
        self.stream.feed(written)
        return written

    def cells(self) -> list[list[tuple[Any, ...]]]:
        """Return the text and the style of every cell."""
        return [
            [tuple(self.screen.buffer[row][column]) for column in range(COLS)]
            for row in range(ROWS + 1)
        ]


def texts(lines: dict[str, Sequence[Any]]) -> list[str]:
    """Return the rows' text as pyte keeps it."""
    rows = []
    for row in range(ROWS):
        text = ""
        for run in lines.get(str(row), []):
            text += run[0]
        rows.append(unicodedata.normalize("NFC", text).rstrip())
    return rows


def test_incremental_painting_has_the_same_result_as_a_complete_one() -> None:
    for seed in range(15):
        chance = random.Random(seed)
        program, window, state = Screen(COLS, ROWS), Window(), None
        for _ in range(12):
            program.feed("".join(chance.choices(STROKES, k=6)).encode())
            frame = program.frame(state["revision"] if state else None)
            if frame is None:
                continue
            state = apply_frame(state, frame)
            assert state is not None
            written = window.paint(state)

            assert re.findall("[\x00-\x1f\x7f-\x9f]", OURS.sub("", written)) == []
            shown = [line.rstrip() for line in window.screen.display]
            assert shown == [*texts(state["lines"]), "status"], seed
            fresh = Window()
            fresh.paint(state)
            assert window.cells() == fresh.cells(), seed
            if state["cursor"]["visible"]:
                position = state["cursor"]["row"], state["cursor"]["col"]
                assert (window.screen.cursor.y, window.screen.cursor.x) == position
        program.close()


def test_only_changed_rows_are_painted() -> None:
    window = Window()
    cursor = {"row": 0, "col": 0, "visible": True, "shape": "block"}
    frame = {"lines": {"0": [["one"]], "1": [["two"]]}, "title": "t", "cursor": cursor}
    window.paint(frame)

    written = window.paint({**frame, "lines": {"0": [["one"]], "1": [["2", {"b": 1}]]}})
    assert "\x1b[0;1m2" in written
    assert not any(same in written for same in ("one", "status", "\x1b]2;"))
    window.painter.reset()
    assert "one" in window.paint(frame)


def test_hostile_text_in_a_frame_is_not_obeyed() -> None:
    for text in (
        *HOSTILE,
        "\x1b[2J\x9b2J\x1b]52;c;eA==\x07",
        "\x1b\\\x07\x18\x90q\x9c",
        "\r\n\t\b",
    ):
        window = Window()
        style = {
            "fg": "#12;3m\x1b[",
            "bg": 999,
            "l": f"https://x.y/{text}",
            "ul": "4;5m",
            "b": text,
        }
        cursor = {"row": 1, "col": 1, "visible": True, "shape": "\x1b[2J"}
        lines = {"0": [[text, style], ["ok"]], "1": [[text[:9]], ["after"]]}
        written = window.paint({"lines": lines, "title": text, "cursor": cursor}, status=text)

        rest = OURS.sub("", written)
        assert rest == plain(rest), text
        assert window.screen.display[1].rstrip().endswith("after")


def test_a_row_is_cut_at_the_window_and_a_wide_character_is_never_halved() -> None:
    window = Window()
    lines = {"0": [["x" * (COLS - 1)], ["好", {"w": 2}]], "1": [["好" * 40, {"w": 2}]]}
    cursor = {"row": 0, "col": 0, "visible": False, "shape": "block"}
    window.paint({"lines": lines, "title": "", "cursor": cursor})

    assert window.screen.display[0].rstrip() == "x" * (COLS - 1)
    assert window.screen.display[1].rstrip() == "好" * (COLS // 2)


def test_colours_are_reduced_to_256_for_terminals_without_true_colour() -> None:
    painter = ScreenPainter(has_true_colour=False)
    scene = Scene(cols=20, lines=[[["x", {"fg": "#ff8800", "bg": "#808080"}]]], status=())

    assert "\x1b[0;38;5;208;48;5;244m" in painter.paint(scene)
