"""The screen of one terminal: frames for viewers, and answers to the program.

Only the emulator parses the program's output. Viewers receive rows of text and styles, and the
program receives only the answers that `emulator` allows.
"""

import itertools
import operator
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

from remoteclaw.tty import emulator
from remoteclaw.tty.emulator import CellKind, EmulatorEvents
from remoteclaw.tty.frames import (
    MAX_CLUSTER_POINTS,
    Frame,
    Frames,
    Modes,
    Run,
    Style,
    add_run,
    plain,
    row_text,
    safe_link,
)
from remoteclaw.tty.ghostty import check, library, new, type_of
from remoteclaw.tty.keys import modifies_other
from remoteclaw.tty.snapshot import restore_snapshot, take_snapshot

#: How long a program may delay the display of its output (synchronized output, mode 2026).
MAX_HOLD_S: Final = 0.5

_SHAPES = ("bar", "block", "underline", "block")

#: Styles by cell kind, whether the cell is a cluster, and link; with the blank that replaces
#: hidden text, '' for text that is shown.
Styles = dict[tuple[CellKind, bool, str], tuple[Style | None, str]]


class Screen:
    """The screen of one terminal. Not thread-safe."""

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
        self._is_read = False
        """Whether `_frames` has everything that the emulator shows."""
        self._events = EmulatorEvents()
        self._callbacks = emulator.configure(
            terminal, scrollback, self._events, is_restored=is_restored
        )
        state = new("GhosttyRenderState")
        check(lib.ghostty_render_state_new(ffi.NULL, state))
        rows = new("GhosttyRenderStateRowIterator")
        check(lib.ghostty_render_state_row_iterator_new(ffi.NULL, rows))
        self._state, self._iterator = state[0], rows
        self._styles: dict[int, Styles] = {}
        # Out parameters of frequent calls, allocated once.
        self._points, self._count = new("uint32_t[256]"), new("size_t")
        self._address = new("uint8_t[4000]")
        self._free = weakref.finalize(self, emulator.free, terminal, state[0], rows[0])
        self._frames = Frames(self._get("COLS"), self._get("ROWS"))

    def close(self) -> None:
        """Free the emulator's memory. The screen can't be used afterwards."""
        self._free()
        self._terminal = None

    def feed(self, data: bytes) -> bytes:
        """Process output of the program; return the answers to write to it."""
        self._is_read = False
        self._lib.ghostty_terminal_vt_write(self._terminal, data, len(data))
        return self._events.take_answers()

    def resize(self, cols: int, rows: int) -> bytes:
        """Change the size and wrap the lines again; return the answers to write to the program."""
        if (cols, rows) == (self._frames.cols, len(self._frames.rows)):
            return b""  # new, empty frames would stay empty, because no row is dirty
        check(self._lib.ghostty_terminal_resize(self._terminal, cols, rows, 8, 16))
        self._is_read = False
        self._frames.resize(cols, rows)
        return self._events.take_answers()

    def take_osc_events(self) -> list[tuple[int, str]]:
        """Return the OSC numbers and texts that the program sent since the last call.

        0 is a new title, 52 a text for the clipboard, 9 a notification or (`4;STATE;PERCENT`)
        progress. Other numbers, such as 7501, are sequences that the emulator does not interpret.
        """
        osc_events = list(self._events.osc_events)
        self._events.osc_events.clear()
        return osc_events

    @property
    def bell_count(self) -> int:
        """How often the bell has rung."""
        return self._events.bells

    @property
    def title(self) -> str:
        """The title on one line; empty if there is none."""
        return emulator.title_of(self._terminal)

    @property
    def modes(self) -> Modes:
        """The modes on which the encoding of input depends."""
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
        """A number that grows with each visible change and across restarts of the gateway."""
        self._refresh()
        return self._frames.revision

    def frame(self, since: int | None) -> Frame | None:
        """Return the changes since a revision, a full frame if it is None or unknown.

        None if nothing changed.
        """
        self._refresh()
        return self._frames.since(since)

    def text(self) -> str:
        """Return the text of all rows."""
        self._refresh()
        return "\n".join(row_text(runs) for runs in self._frames.rows)

    def history(self, start: int, count: int) -> dict[str, Any]:
        """Return up to `count` rows of the scrollback; row 0 is the oldest."""
        total = self._get("SCROLLBACK_ROWS", "size_t")
        start = max(0, min(start, total))
        self._styles.clear()
        rows = [
            self._row(self._reference(row, "HISTORY"))
            for row in range(start, min(start + count, total))
        ]
        return {"start": start, "total": total, "rows": rows}

    def search(self, text: str, *, max_rows: int) -> dict[str, Any]:
        """Return the newest `max_rows` rows of the scrollback and the screen that have a text.

        Upper and lower case are equal. Row 0 is the oldest of the scrollback. Concealed text is
        not found.
        """
        wanted = text.lower()
        scrollback = self._get("SCROLLBACK_ROWS", "size_t")
        lines = emulator.text_of(self._terminal).split("\n")
        numbers = [number for number, line in enumerate(lines) if wanted in line.lower()]
        self._styles.clear()
        rows = []
        for number in numbers[-max_rows:]:
            is_past = number < scrollback
            place = (number, "HISTORY") if is_past else (number - scrollback, "ACTIVE")
            shown = row_text(self._row(self._reference(*place)))
            if count := shown.lower().count(wanted):
                rows.append({"row": number, "count": count, "text": shown})
        return {"scrollback": scrollback, "rows": rows, "more": len(numbers) > max_rows}

    def _row(self, reference: Any) -> list[Run]:
        return self._runs(self._cells(reference), reference)

    def _refresh(self) -> None:
        """Copy changed rows into the frames, unless the program delays their display."""
        if self._is_read:
            return
        if self._mode(2026) and self._frames.other_fields:
            now = self._clock()
            self._held_since = self._held_since or now
            if now - self._held_since < MAX_HOLD_S:
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
        self._frames.update(rows, self._other_fields())
        self._is_read = True

    def _other_fields(self) -> Frame:
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
        """Return a row's runs: neighbouring cells of one style, and each cluster on its own."""
        cache, decode = emulator.DECODED_CELLS, emulator.decode_cell
        decoded = [cache.get(cell) or decode(cell) for cell in cells]
        styles = self._styles_of(reference)
        runs: list[Run] = []
        column = 0
        for kind, group in itertools.groupby(decoded, operator.itemgetter(1)):
            texts = [text for text, _ in group]
            if kind is None:
                add_run(runs, "".join(texts), None)
            elif kind.is_cluster or kind.has_link:
                for offset, text in enumerate(texts):
                    if text:  # empty for the second half of a wide character
                        reference.x = column + offset
                        add_run(runs, *self._single(reference, kind, text, styles))
            elif text := "".join(texts):
                reference.x = column
                add_run(runs, *self._styled(reference, kind, text, styles))
            column += len(texts)
        if runs and len(runs[-1]) == 1:
            runs[-1][0] = runs[-1][0].rstrip(" ")
            if not runs[-1][0]:
                runs.pop()
        return runs

    def _single(
        self, reference: Any, kind: CellKind, text: str, styles: Styles
    ) -> tuple[str, Style | None]:
        """Return the text and style of one cell that is a cluster or has a link."""
        address = self._link(reference) if kind.has_link else ""
        if kind.is_cluster:
            text = self._cluster(reference)
        return self._styled(reference, kind, text, styles, len(text) > 1, address)

    def _styled(
        self,
        reference: Any,
        kind: CellKind,
        text: str,
        styles: Styles,
        is_cluster: bool = False,
        address: str = "",
    ) -> tuple[str, Style | None]:
        """Return the text and style of cells of one kind; hidden text becomes blanks."""
        key = (kind, is_cluster, address)
        if key not in styles:
            styles[key] = self._style(reference, *key)
        style, blank = styles[key]
        return (blank * (1 if is_cluster else len(text)) if blank else text), style

    def _styles_of(self, reference: Any) -> Styles:
        """Return the cached styles of a row's page, because each page numbers its own styles."""
        page = int(self._ffi.cast(type_of("uintptr_t"), reference.node))
        return self._styles.setdefault(page, {})

    def _style(
        self, reference: Any, kind: CellKind, is_cluster: bool, address: str
    ) -> tuple[Style | None, str]:
        """Return a frame's style, and the blank that replaces hidden text ('' if it is shown)."""
        style: Style = {}
        blank = ""
        if kind.style:
            raw = new("GhosttyStyle")
            raw.size = self._ffi.sizeof(type_of("GhosttyStyle"))
            check(self._lib.ghostty_grid_ref_style(reference, raw))
            style = emulator.style_of(raw)
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
        """Return a cell's code points, at most `MAX_CLUSTER_POINTS`."""
        points, count = self._points, self._count
        if self._lib.ghostty_grid_ref_graphemes(reference, points, len(points), count):
            return "\ufffd"
        text = plain("".join(map(chr, points[0 : min(count[0], MAX_CLUSTER_POINTS)])))
        return text or " "

    def _link(self, reference: Any) -> str:
        address, count = self._address, self._count
        if self._lib.ghostty_grid_ref_hyperlink_uri(reference, address, len(address), count):
            return ""
        return safe_link(self._ffi.buffer(address, count[0])[:].decode(errors="replace"))

    def _reference(self, row: int, tag: str) -> Any:
        """Return a reference to the first cell of a row, valid until the next `feed()`."""
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

    def vt(self) -> bytes:
        """Return escape sequences that show this screen in another terminal of the same size."""
        return emulator.vt_of(self._terminal)

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of columns and rows."""
        return self._frames.cols, len(self._frames.rows)

    def snapshot(self) -> bytes:
        """Return the whole state, with as much scrollback as fits into `MAX_SNAPSHOT_BYTES`.

        Empty in the middle of a sequence that is too long to keep. The previous snapshot and the
        output since then still give the whole state.
        """
        return take_snapshot(self._terminal)

    @classmethod
    def restored(cls, snapshot: bytes, cols: int, rows: int, *, scrollback: int = 1000) -> Self:
        """Return the screen of a snapshot. Raises `SnapshotUnreadable`."""
        screen = cls.__new__(cls)
        screen._start(restore_snapshot(snapshot), scrollback, is_restored=True)
        screen.resize(cols, rows)
        return screen


def warm_up() -> None:
    """Load the emulator and use each of its parts once: 0.3 s. Raises `TerminalsOff`."""
    screen = Screen(20, 5)
    screen.feed("\x1b[31m漢e\u0301\x1b]8;;http://a\x07x\r\n".encode() * 9)
    screen.frame(None)
    screen.history(0, 1)
    Screen.restored(screen.snapshot(), 20, 5).close()
    screen.close()
