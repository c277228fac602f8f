"""The screen of one terminal: its state for viewers, its answers to the program.

The emulator alone reads what the program prints. Viewers get rows of text and styles, and the
program gets those answers that `replies` allows.
"""

import itertools
import operator
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

from remoteclaw.tty import emulator
from remoteclaw.tty.emulator import Heard, Kind
from remoteclaw.tty.frames import (
    CLUSTER,
    Frame,
    Frames,
    Modes,
    Run,
    Style,
    add_run,
    link,
    plain,
    row_text,
)
from remoteclaw.tty.ghostty import check, library, new, type_of
from remoteclaw.tty.keys import modifies_other
from remoteclaw.tty.snapshot import packed, unpacked

#: How long a program may hold its screen back (mode 2026), in seconds.
HOLD: Final = 0.5

_SHAPES = ("bar", "block", "underline", "block")

#: Styles by what they depend on, with what is shown instead of hidden text.
Styles = dict[tuple[Kind, bool, str], tuple[Style | None, str]]


class Screen:
    """The state of one terminal. Not for more than one thread at a time."""

    def __init__(self, cols: int, rows: int, *, scrollback: int = 1000) -> None:
        ffi, lib = library()
        terminal = new("GhosttyTerminal")
        check(lib.ghostty_terminal_new(ffi.NULL, terminal, cols, rows))
        self._start(terminal[0], scrollback, is_restored=False)

    def _start(self, terminal: Any, scrollback: int, *, is_restored: bool) -> None:
        ffi, lib = library()
        self._ffi, self._lib, self._terminal = ffi, lib, terminal
        self._clock: Callable[[], float] = time.monotonic
        self._held_since = 0.0
        self._is_read = False  # else all that is seen stands in the frames
        self._heard = Heard()
        self._callbacks = emulator.configure(
            terminal, scrollback, self._heard, is_restored=is_restored
        )
        state = new("GhosttyRenderState")
        check(lib.ghostty_render_state_new(ffi.NULL, state))
        rows = new("GhosttyRenderStateRowIterator")
        check(lib.ghostty_render_state_row_iterator_new(ffi.NULL, rows))
        self._state, self._iterator = state[0], rows
        self._styles: dict[int, Styles] = {}
        # Places for answers that are asked for often.
        self._points, self._count = new("uint32_t[256]"), new("size_t")
        self._address = new("uint8_t[4000]")
        self._free = weakref.finalize(self, emulator.free, terminal, state[0], rows[0])
        self._frames = Frames(self._get("COLS"), self._get("ROWS"))

    def close(self) -> None:
        """Free the emulator's memory. The screen can't be used any more."""
        self._free()
        self._terminal = None

    def feed(self, data: bytes) -> bytes:
        """Take what the program has printed; return what it has to be answered."""
        self._is_read = False
        self._lib.ghostty_terminal_vt_write(self._terminal, data, len(data))
        return self._heard.take()

    def resize(self, cols: int, rows: int) -> bytes:
        """Change the size; lines are wrapped again. Returns what the program has to be answered."""
        if (cols, rows) == (self._frames.cols, len(self._frames.rows)):
            return b""  # the emulator would have no row to read again
        check(self._lib.ghostty_terminal_resize(self._terminal, cols, rows, 8, 16))
        self._is_read = False
        self._frames.resize(cols, rows)
        return self._heard.take()

    def take_said(self) -> list[tuple[int, str]]:
        """Take what the program has said since: OSC numbers with their text.

        0 is a new title, 52 a text for the clipboard, 9 a notification or (`4;STATE;PERCENT`)
        progress; others are sequences that no terminal knows, such as 7501.
        """
        said = list(self._heard.said)
        self._heard.said.clear()
        return said

    @property
    def said(self) -> list[tuple[int, str]]:
        """What `take_said()` would take."""
        return list(self._heard.said)

    @property
    def bell(self) -> int:
        """How often the bell rang."""
        return self._heard.bells

    @property
    def title(self) -> str:
        """The title, one line."""
        return emulator.title_of(self._terminal)

    @property
    def modes(self) -> Modes:
        """The modes that decide what is sent to the program."""
        return Modes(
            paste=self._mode(2004),
            app_cursor=self._mode(1),
            app_keypad=self._mode(66),
            kitty=self._get("KITTY_KEYBOARD_FLAGS", "uint8_t"),
            modify_other=2 if modifies_other(self._terminal) else 0,
            mouse=next((mode for mode in (1003, 1002, 1000, 9) if self._mode(mode)), 0),
            sgr_mouse=self._mode(1006),
            focus=self._mode(1004),
            alternate=self._get("ACTIVE_SCREEN", "GhosttyTerminalScreen") == 1,
        )

    @property
    def revision(self) -> int:
        """A number that grows with each visible change, also over restarts of the gateway."""
        self._refresh()
        return self._frames.revision

    def frame(self, since: int | None) -> Frame | None:
        """Return what differs from a revision; all of it for None or one that is not known."""
        self._refresh()
        return self._frames.since(since)

    def text(self) -> str:
        """Return the rows as text."""
        self._refresh()
        return "\n".join(row_text(runs) for runs in self._frames.rows)

    def history(self, start: int, count: int) -> dict[str, Any]:
        """Return rows that have left the screen; 0 is the oldest that is kept."""
        total = self._get("SCROLLBACK_ROWS", "size_t")
        start = max(0, min(start, total))
        self._styles.clear()
        rows = []
        for row in range(start, min(start + count, total)):
            reference = self._reference(row, "HISTORY")
            rows.append(self._runs(self._cells(reference), reference))
        return {"start": start, "total": total, "rows": rows}

    def _refresh(self) -> None:
        """Read the rows that have changed, unless the program holds them back."""
        if self._is_read:
            return
        if self._mode(2026) and self._frames.rest:
            now = self._clock()
            self._held_since = self._held_since or now
            if now - self._held_since < HOLD:
                return
        self._held_since = 0.0
        lib, ffi = self._lib, self._ffi
        check(lib.ghostty_render_state_update(self._state, self._terminal))
        key = lib.GHOSTTY_RENDER_STATE_DATA_ROW_ITERATOR
        check(lib.ghostty_render_state_get(self._state, key, self._iterator))
        rows: dict[int, list[Run]] = {}
        self._styles.clear()
        row, cells = new("uint16_t"), new("GhosttyCellsView")
        while lib.ghostty_render_state_row_iterator_next_dirty(self._iterator[0], row):
            raw = lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS_RAW
            check(lib.ghostty_render_state_row_get(self._iterator[0], raw, cells))
            values = memoryview(ffi.buffer(cells.ptr, 8 * cells.len)).cast("Q")
            rows[row[0]] = self._runs(values, self._reference(row[0], "ACTIVE"))
        check(lib.ghostty_render_state_clean(self._state))
        self._frames.change(rows, self._rest())
        self._is_read = True

    def _rest(self) -> Frame:
        cursor = new("GhosttyRenderStateCursor")
        cursor.size = self._ffi.sizeof(type_of("GhosttyRenderStateCursor"))
        key = self._lib.GHOSTTY_RENDER_STATE_DATA_CURSOR
        check(self._lib.ghostty_render_state_get(self._state, key, cursor))
        return {
            "cursor": {
                "row": cursor.viewport_y,
                "col": cursor.viewport_x,
                "visible": bool(cursor.visible and cursor.viewport_has_value),
                "shape": _SHAPES[cursor.visual_style],
            },
            "title": self.title,
            "modes": self.modes.as_json(),
            "history": self._get("SCROLLBACK_ROWS", "size_t"),
        }

    def _runs(self, cells: Iterable[int], reference: Any) -> list[Run]:
        """Join a row's cells of one style; a cluster of code points is a run of its own."""
        looks, look = emulator.LOOKS, emulator.look
        known = [looks.get(cell) or look(cell) for cell in cells]
        styles = self._styles_of(reference)
        runs: list[Run] = []
        column = 0
        for kind, group in itertools.groupby(known, operator.itemgetter(1)):
            parts = [part for part, _ in group]
            if kind is None:
                add_run(runs, "".join(parts), None)
            elif kind.is_cluster or kind.has_link:
                for offset, part in enumerate(parts):
                    if part:  # else it is the second half of the one before
                        reference.x = column + offset
                        add_run(runs, *self._single(reference, kind, part, styles))
            elif text := "".join(parts):
                reference.x = column
                add_run(runs, *self._styled(reference, kind, text, styles))
            column += len(parts)
        if runs and len(runs[-1]) == 1:
            runs[-1][0] = runs[-1][0].rstrip(" ")
            if not runs[-1][0]:
                runs.pop()
        return runs

    def _single(
        self, reference: Any, kind: Kind, text: str, styles: Styles
    ) -> tuple[str, Style | None]:
        """Return the text and style of a cell that may not be like its neighbours."""
        address = self._link(reference) if kind.has_link else ""
        if kind.is_cluster:
            text = self._cluster(reference)
        return self._styled(reference, kind, text, styles, len(text) > 1, address)

    def _styled(
        self,
        reference: Any,
        kind: Kind,
        text: str,
        styles: Styles,
        is_cluster: bool = False,
        address: str = "",
    ) -> tuple[str, Style | None]:
        """Return the text and style of cells of one kind; hidden text is blank."""
        key = (kind, is_cluster, address)
        if key not in styles:
            styles[key] = self._style(reference, *key)
        style, blank = styles[key]
        return (blank * (1 if is_cluster else len(text)) if blank else text), style

    def _styles_of(self, reference: Any) -> Styles:
        """Return the styles that are known of the page of a row, which numbers its own."""
        page = int(self._ffi.cast(type_of("uintptr_t"), reference.node))
        return self._styles.setdefault(page, {})

    def _style(
        self, reference: Any, kind: Kind, is_cluster: bool, address: str
    ) -> tuple[Style | None, str]:
        """Return a style as a frame has it, and what is shown instead of hidden text."""
        style: Style = {}
        blank = ""
        if kind.style:
            raw = new("GhosttyStyle")
            raw.size = self._ffi.sizeof(type_of("GhosttyStyle"))
            check(self._lib.ghostty_grid_ref_style(reference, raw))
            style = emulator.style(raw)
            if raw.invisible:
                blank = "\u3000" if kind.is_wide else " "
        if kind.background is not None:
            style["bg"] = kind.background
        if address:
            style["l"] = address
        if kind.is_wide:
            style["w"] = 2
        if is_cluster and not blank:
            style["c"] = 1
        return style or None, blank

    def _cluster(self, reference: Any) -> str:
        """Return a cell's code points, as many as a character may have."""
        points, count = self._points, self._count
        if self._lib.ghostty_grid_ref_graphemes(reference, points, len(points), count):
            return "\ufffd"
        text = plain("".join(map(chr, points[0 : min(count[0], CLUSTER)])))
        return text or " "

    def _link(self, reference: Any) -> str:
        address, count = self._address, self._count
        if self._lib.ghostty_grid_ref_hyperlink_uri(reference, address, len(address), count):
            return ""
        return link(self._ffi.buffer(address, count[0])[:].decode(errors="replace"))

    def _reference(self, row: int, tag: str) -> Any:
        """Return a reference to the first cell of a row; it holds until something is fed."""
        point = new("GhosttyPointS")
        point.tag = getattr(self._lib, f"GHOSTTY_POINT_TAG_{tag}")
        point.value.x, point.value.y = 0, row
        reference = new("GhosttyGridRef")
        reference.size = self._ffi.sizeof(type_of("GhosttyGridRef"))
        check(emulator.grid_reference()(self._terminal, point[0], reference))
        return reference

    def _cells(self, reference: Any) -> Iterable[int]:
        cell = new("GhosttyCell")
        for column in range(self._frames.cols):
            reference.x = column
            if self._lib.ghostty_grid_ref_cell(reference, cell):
                return
            yield cell[0]

    def _get(self, name: str, kind: str = "uint16_t") -> int:
        value = new(kind)
        key = getattr(self._lib, f"GHOSTTY_TERMINAL_DATA_{name}")
        check(self._lib.ghostty_terminal_get(self._terminal, key, value))
        return int(value[0])

    def _mode(self, number: int) -> bool:
        config = new("GhosttyTerminalModeConfig")
        config.mode = number
        key = self._lib.GHOSTTY_TERMINAL_DATA_MODE
        check(self._lib.ghostty_terminal_get(self._terminal, key, config))
        return bool(config.value)

    def picture(self) -> bytes:
        """Return the whole state, with as many rows of the past as 208 KB hold.

        Empty in the middle of a sequence that is too long to keep: the picture before stays good.
        """
        return packed(self._terminal)

    @classmethod
    def restored(cls, picture: bytes, cols: int, rows: int, *, scrollback: int = 1000) -> Self:
        """Return the screen of a picture. Raises `PictureUnreadable`."""
        screen = cls.__new__(cls)
        screen._start(unpacked(picture), scrollback, is_restored=True)
        screen.resize(cols, rows)
        return screen


def warm_up() -> None:
    """Load the emulator and use each of its parts once; 0.3 s, for a thread. `TerminalsOff`."""
    screen = Screen(20, 5)
    screen.feed("\x1b[31m漢e\u0301\x1b]8;;http://a\x07x\r\n".encode() * 9)
    screen.frame(None)
    screen.history(0, 1)
    Screen.restored(screen.picture(), 20, 5).close()
    screen.close()
