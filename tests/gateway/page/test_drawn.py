"""The page draws a terminal as the emulator has it, cell by cell."""

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from playwright.async_api import Browser

from remoteclaw.tty.screen import Screen
from tests.support.browser import logged_in
from tests.support.panes import Pane, pane_opened, terminal_shown
from tests.support.recorded import COLS, RECORDINGS, ROWS, pieces
from tests.support.stack import Stack

pytest.importorskip("pyghostty")

#: The colours of the page by name: the 16 numbered ones, background and foreground.
_COLOURS = """() => {
  const style = getComputedStyle(document.querySelector(".terminal"));
  const names = [...Array(16).keys()].map((number) => `c${number}`).concat("tty-paper", "tty-ink");
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`)]));
}"""
#: Each row as characters: column, width in cells, text, and its look as `look_of` returns it.
_DRAWN = """async () => {
  await new Promise(requestAnimationFrame);
  const box = document.querySelector(".tty-lines");
  const probe = box.firstChild.cloneNode();
  probe.append("0".repeat(100));
  box.append(probe);
  const range = document.createRange();
  range.selectNodeContents(probe);
  const cell = range.getBoundingClientRect().width / 100;
  probe.remove();

  const { color } = getComputedStyle(box), looks = new Map();
  const bare = { paper: "", opacity: 1, link: "", lines: "", kind: "" };
  const plain = JSON.stringify([color, "", false, false, false, "", "", ""]);
  /** Return the visible look of an element's text; outer lines don't reach into boxes. */
  function lookOf(element) {
    if (element.className === "tty-row") return bare;
    if (looks.has(element)) return looks.get(element);
    const style = getComputedStyle(element), around = lookOf(element.parentElement);
    const hasLines = style.textDecorationLine !== "none", isBox = style.display === "inline-block";
    const look = {
      paper: style.backgroundColor === "rgba(0, 0, 0, 0)" ? around.paper : style.backgroundColor,
      opacity: around.opacity * style.opacity,
      link: element.href ?? around.link,
      lines: hasLines ? style.textDecorationLine : isBox ? "" : around.lines,
      kind: hasLines ? style.textDecorationStyle : isBox ? "" : around.kind,
    };
    look.text = JSON.stringify([style.color, look.paper, style.fontWeight >= 600, look.opacity < 1,
      style.fontStyle === "italic", look.lines, look.kind, look.link]);
    looks.set(element, look);
    return look;
  }

  /** Round a number of cells that is almost whole. */
  function whole(count) {
    return Math.abs(count - Math.round(count)) > 0.1 ? count : Math.round(count);
  }

  function* charactersOf(row) {
    const left = row.getBoundingClientRect().left;
    const nodes = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
    while (nodes.nextNode()) {
      const node = nodes.currentNode, look = lookOf(node.parentElement).text ?? plain;
      const isBox = node.parentElement.matches(".tty-wide, .tty-narrow");
      let at = 0;
      for (const character of isBox ? [node.data] : node.data) {
        range.setStart(node, at);
        range.setEnd(node, at += character.length);
        const rect = (isBox ? node.parentElement : range).getBoundingClientRect();
        const column = (rect.left - left) / cell, width = rect.width / cell;
        yield [...[column, width].map(whole), character, look];
      }
    }
  }
  return [...box.children].map((row) => [...charactersOf(row)]);
}"""
_IS_TITLE = "(title) => document.querySelector('.tty-title').textContent === title"
#: Looks that no recording has: all underlines, strike-throughs, also of wide letters, and links.
LINES = (
    b"".join(
        b"\x1b[%s;32;48;5;%dmab\xe2\x94\x80 \xe6\xbc\xa2 e\xcc\x81\x1b[m\r\n" % (style, 17 + number)
        for number, style in enumerate(b"4 4:2 4:3 4:4 4:5 9 4;9 2;7 1;3 8 7;2;9".split())
    )
    + b"\x1b]8;;https://example.org/a?b\x1b\\\xe6\xbc\xa2link\x1b]8;;\x1b\\"
)
_UNDERLINES = {1: "solid", 2: "double", 3: "wavy", 4: "dotted", 5: "dashed"}


def rgb(colour: Any, colours: Mapping[str, str]) -> str:
    """Return a colour of a frame as a browser computes it."""
    if isinstance(colour, int) and colour >= 16:
        levels = (0, 95, 135, 175, 215, 255)
        cube, grey = colour - 16, 8 + 10 * (colour - 232)
        parts = [levels[cube // 36 % 6], levels[cube // 6 % 6], levels[cube % 6]]
        return f"rgb({', '.join(map(str, [grey] * 3 if colour >= 232 else parts))})"
    code = colours[f"c{colour}"] if isinstance(colour, int) else colours.get(colour, colour)
    code = "".join(digit * 2 for digit in code[1:]) if len(code) == 4 else code[1:]
    return f"rgb({', '.join(map(str, bytes.fromhex(code)))})"


def look_of(style: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    """Return the visible look of a style: colours, bold, dim, italic, lines, link."""
    fore, back = style.get("fg"), style.get("bg")
    if style.get("v"):
        fore, back = (
            "tty-paper" if back is None else back,
            "tty-ink" if fore is None else fore,
        )
    underline = style.get("ul", 0)
    link = style.get("l", "")  # links are underlined
    lines = ["underline"] * bool(underline or link) + ["line-through"] * bool(style.get("s"))
    look = [
        rgb("tty-ink" if fore is None else fore, colours),
        "" if back is None else rgb(back, colours),
        *(bool(style.get(name)) for name in "bdi"),
        " ".join(lines),
        _UNDERLINES.get(underline, "solid") if lines else "",
        link,
    ]
    return json.dumps(look, separators=(",", ":"))


def cells(runs: list[Any], colours: Mapping[str, str]) -> list[list[Any]]:
    """Return a row of a frame as characters, in the form of `_DRAWN`."""
    found, column = [], 0
    for run in runs:
        style = run[1] if len(run) > 1 else {}
        look, width = look_of(style, colours), 2 if style.get("w") == 2 else 1
        for character in [run[0]] if style.get("c") else run[0]:
            found.append([column, width, character, look])
            column += width
    return found


async def test_the_page_draws_every_recording_as_the_emulator_has_it(
    browser: Browser, stack: Stack
) -> None:
    """However the output is split, each character has its cell, colours and lines."""
    pane = Pane()
    pane.live()
    chance = random.Random(22)
    async with pane_opened(stack, pane) as door, logged_in(browser, stack, door) as page:
        await terminal_shown(page)
        colours = await page.evaluate(_COLOURS)
        programs = [(each.stem, pieces(each.read_bytes(), chance, 2)) for each in RECORDINGS]
        for name, printed in (*programs, ("lines", [LINES])):
            screen, drawn_revision = Screen(COLS, ROWS), None
            for number, piece in enumerate(printed):
                screen.feed(piece)
                frame, whole = screen.frame(drawn_revision), screen.frame(None)
                assert whole is not None
                if frame is None:
                    continue
                drawn_revision = frame["revision"]
                pane.show(**{**frame, "title": f"{name} {number}"})
                await page.wait_for_function(_IS_TITLE, arg=f"{name} {number}")
                drawn = await page.evaluate(_DRAWN)
                for row in range(ROWS):
                    wanted = cells(whole["lines"].get(str(row), []), colours)
                    assert drawn[row] == wanted, (name, number, row)
            screen.close()
