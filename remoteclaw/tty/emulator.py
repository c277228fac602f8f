"""Calls into libghostty's C interface, and the callbacks through which it reports events."""

import functools
import re
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from remoteclaw.tty.frames import MAX_TITLE_CHARS, Style, plain
from remoteclaw.tty.ghostty import check, library, new, type_of

#: The longest text that a program can put on the clipboard, in bytes.
MAX_CLIPBOARD_BYTES: Final = 100_000
#: The longest notification, or sequence that the emulator does not interpret, in bytes.
MAX_UNKNOWN_BYTES: Final = 4096
#: How much of a sequence that has not ended yet is kept, in bytes.
MAX_PENDING_BYTES: Final = 128 * 1024
#: Answers to the program for one call of `Screen.feed()`, in bytes; more are dropped.
MAX_ANSWER_BYTES: Final = 65536
#: How many OSC events wait to be taken; older ones are dropped.
MAX_OSC_EVENTS: Final = 256
#: The colours (RGB) with which OSC 10 and 11 are answered. Each viewer draws with its own colours.
FOREGROUND, BACKGROUND = (0xE6, 0xE6, 0xE6), (0x12, 0x12, 0x12)
#: The answers that the terminal may send to its program: device attributes; status and cursor
#: position; name and version; modes; kitty's keyboard flags; the colours of text, background and
#: palette; capabilities. Each consists of digits and names that the emulator chooses and never
#: contains the program's text, because the program reads an answer as if it were typed.
_ALLOWED_ANSWERS = re.compile(
    rb"""(?:
      \x1b\[[?>][0-9;]{1,40}c
    | \x1bP!\|[0-9A-F]{8}\x1b\\
    | \x1b\[0n
    | \x1b\[\??[0-9]{1,5};[0-9]{1,5}(?:;[0-9])?R
    | \x1bP>\|libghostty[ -~]{0,30}\x1b\\
    | \x1b\[\??[0-9]{1,5};[0-4]\$y
    | \x1b\[\?[0-9]{1,3}u
    | \x1b\](?:1[01]|4;[0-9]{1,3});rgb:[0-9a-f]{4}(?:/[0-9a-f]{4}){2}(?:\x07|\x1b\\)
    | \x1bP[01]\+r[0-9A-Fa-f=;]{0,2000}\x1b\\
    )+""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class CellKind:
    """The attributes of a cell apart from its text; equal ones are the same object."""

    style: int
    """The number of its style in its page, 0 for none."""
    is_wide: bool
    is_cluster: bool
    """Whether it has more than one code point."""
    has_link: bool
    background: int | str | None
    """The colour of a cell without text."""


#: A cell's text, empty for the second half of a wide character, and its kind, None for a plain one.
DecodedCell = tuple[str, CellKind | None]
#: The cache of `decode_cell()`, by the library's value of a cell.
DECODED_CELLS: Final[dict[int, DecodedCell]] = {}
_KINDS: Final[dict[CellKind, CellKind]] = {}
_PLAIN = CellKind(0, False, False, False, None)
_MAX_DECODED_CELLS = 50_000


class EmulatorEvents:
    """The events that the emulator reports while it parses output.

    It has no reference to the screen, so that the callbacks do not keep the screen alive.
    """

    def __init__(self) -> None:
        self.osc_events: deque[tuple[int, str]] = deque(maxlen=MAX_OSC_EVENTS)
        """OSC numbers with their text."""
        self.bells = 0
        self._answers: list[bytes] = []
        self._answer_bytes = 0

    def add_answer(self, data: bytes) -> None:
        """Keep an answer to the program, if it is one of the allowed forms."""
        if self._answer_bytes + len(data) <= MAX_ANSWER_BYTES and _ALLOWED_ANSWERS.fullmatch(data):
            self._answers.append(data)
            self._answer_bytes += len(data)

    def take_answers(self) -> bytes:
        """Return the answers since the last call, and forget them."""
        answers = b"".join(self._answers)
        self._answers.clear()
        self._answer_bytes = 0
        return answers

    def add_unknown_osc(self, content: bytes) -> None:
        """Add an OSC sequence that the emulator does not interpret."""
        number, _, text = content.decode(errors="replace").partition(";")
        if number.isascii() and number.isdecimal() and len(number) < 7:
            self.osc_events.append((int(number), plain(text)))


def configure(
    terminal: Any, scrollback: int, events: EmulatorEvents, *, is_restored: bool
) -> list[Any]:
    """Set a terminal's limits and callbacks.

    Return the callbacks: the caller has to keep a reference to them as long as the terminal exists.
    """
    _, lib = library()

    def set_option(name: str, value: Any) -> None:
        option = getattr(lib, f"GHOSTTY_TERMINAL_OPT_{name}")
        check(lib.ghostty_terminal_set(terminal, option, value))

    # The library counts whole pages, which are mostly untouched, so the limit on lines is the one
    # that bounds memory.
    for name, limit in {
        "SCROLLBACK_MAX_LINES": scrollback,
        "SCROLLBACK_MAX_BYTES": 1 << 25,
        "CONTINUATION_MAX_BYTES": MAX_PENDING_BYTES,
        "UNKNOWN_MAX_BYTES": MAX_UNKNOWN_BYTES,
        "CLIPBOARD_WRITE_MAX_BYTES": MAX_CLIPBOARD_BYTES,
        "APC_MAX_BYTES": MAX_UNKNOWN_BYTES,
        "APC_MAX_BYTES_KITTY": MAX_UNKNOWN_BYTES,
    }.items():
        set_option(name, new("size_t", limit))
    set_option("KITTY_IMAGE_STORAGE_LIMIT", new("uint64_t", 0))
    for name, rgb in (("COLOR_FOREGROUND", FOREGROUND), ("COLOR_BACKGROUND", BACKGROUND)):
        set_option(name, new("GhosttyColorRgb", rgb))
    # As in ghostty, an emoji of several code points is one character, because programs count it
    # so.
    clusters = new("GhosttyTerminalModeConfig", {"mode": 2027, "value": True})
    set_option("MODE_DEFAULT", clusters)
    if not is_restored:
        set_option("MODE", clusters)
    callbacks = _callbacks(events)
    for name, callback in callbacks.items():
        set_option(name, callback)
    return list(callbacks.values())


def _callbacks(events: EmulatorEvents) -> dict[str, Any]:
    ffi, lib = library()

    def text(value: Any) -> bytes:
        raw: bytes = ffi.buffer(value.ptr, value.len)[:] if value.len else b""
        return raw

    def unknown(_terminal: Any, _data: Any, sequence: Any) -> None:
        if sequence.tag == lib.GHOSTTY_TERMINAL_UNKNOWN_SEQUENCE_OSC:
            events.add_unknown_osc(text(sequence.value.osc.content))

    def clipboard(_terminal: Any, _data: Any, write: Any) -> None:
        if write.contents_len:
            data = text(write.contents[0].data)
            events.osc_events.append((52, data[:MAX_CLIPBOARD_BYTES].decode(errors="replace")))

    def title(terminal: Any, _data: Any) -> None:
        events.osc_events.append((0, title_of(terminal)))

    def bell(_terminal: Any, _data: Any) -> None:
        events.bells += 1

    def notification(_terminal: Any, _data: Any, notice: Any) -> None:
        joined = b" ".join(part for part in (text(notice.title), text(notice.body)) if part)
        events.osc_events.append((9, plain(joined[:MAX_UNKNOWN_BYTES].decode(errors="replace"))))

    def progress(_terminal: Any, _data: Any, report: Any) -> None:
        events.osc_events.append((9, f"4;{report.state};{max(report.progress, 0)}"))

    def answer(_terminal: Any, _data: Any, data: Any, size: int) -> None:
        events.add_answer(ffi.buffer(data, size)[:])

    return {
        "WRITE_PTY": ffi.callback(type_of("GhosttyTerminalWritePtyFn"), answer),
        "UNKNOWN_SEQUENCE": ffi.callback(type_of("GhosttyTerminalUnknownSequenceFn"), unknown),
        "CLIPBOARD_WRITE": ffi.callback(type_of("GhosttyTerminalClipboardWriteFn"), clipboard),
        "TITLE_CHANGED": ffi.callback(type_of("GhosttyTerminalTitleChangedFn"), title),
        "BELL": ffi.callback(type_of("GhosttyTerminalBellFn"), bell),
        "DESKTOP_NOTIFICATION": ffi.callback(
            type_of("GhosttyTerminalDesktopNotificationFn"), notification
        ),
        "PROGRESS_REPORT": ffi.callback(type_of("GhosttyTerminalProgressReportFn"), progress),
    }


def title_of(terminal: Any) -> str:
    """Return a terminal's title on one line; empty if it has none."""
    ffi, lib = library()
    title = new("GhosttyString")
    if lib.ghostty_terminal_get(terminal, lib.GHOSTTY_TERMINAL_DATA_TITLE, title) or not title.len:
        return ""
    raw: bytes = ffi.buffer(title.ptr, title.len)[: 4 * MAX_TITLE_CHARS]
    return plain(raw.decode(errors="ignore"))[:MAX_TITLE_CHARS].strip()


def free(terminal: Any, state: Any, rows: Any) -> None:
    """Free the library's objects of a screen."""
    _, lib = library()
    lib.ghostty_render_state_row_iterator_free(rows)
    lib.ghostty_render_state_free(state)
    lib.ghostty_terminal_free(terminal)


@functools.cache
def grid_reference() -> Any:
    """Return the function that finds a cell, cast so that cffi can pass its union by value."""
    ffi, lib = library()
    form = "GhosttyResult(*)(GhosttyTerminal, GhosttyPointS, GhosttyGridRef*)"
    return ffi.cast(form, ffi.addressof(lib, "ghostty_terminal_grid_ref"))


def decode_cell(cell: int) -> DecodedCell:
    """Return the text and kind of a cell from the library's value, and cache them."""
    _, lib = library()

    def get(name: str, kind: str) -> Any:
        value = new(kind)
        check(lib.ghostty_cell_get(cell, getattr(lib, f"GHOSTTY_CELL_DATA_{name}"), value))
        return value[0]

    tag, wide = get("CONTENT_TAG", "GhosttyCellContentTag"), get("WIDE", "GhosttyCellWide")
    background: int | str | None = None
    if tag == lib.GHOSTTY_CELL_CONTENT_BG_COLOR_PALETTE:
        background = int(get("COLOR_PALETTE", "GhosttyColorPaletteIndex"))
    elif tag == lib.GHOSTTY_CELL_CONTENT_BG_COLOR_RGB:
        background = _hex(get("COLOR_RGB", "GhosttyColorRgb"))
    point = get("CODEPOINT", "uint32_t") if background is None else 0
    is_tail = wide == lib.GHOSTTY_CELL_WIDE_SPACER_TAIL
    text = "" if is_tail else plain(chr(point)) or " "
    kind = CellKind(
        style=int(get("STYLE_ID", "uint16_t")),
        is_wide=is_tail or wide == lib.GHOSTTY_CELL_WIDE_WIDE,
        is_cluster=tag == lib.GHOSTTY_CELL_CONTENT_CODEPOINT_GRAPHEME,
        has_link=bool(get("HAS_HYPERLINK", "bool")),
        background=background,
    )
    if len(DECODED_CELLS) >= _MAX_DECODED_CELLS:
        DECODED_CELLS.clear()
        _KINDS.clear()
    DECODED_CELLS[cell] = text, None if kind == _PLAIN else _KINDS.setdefault(kind, kind)
    return DECODED_CELLS[cell]


def style_of(raw: Any) -> Style:
    """Return a frame's style for the library's style `raw`."""
    _, lib = library()
    result: Style = {}
    for name, color in (("fg", raw.fg_color), ("bg", raw.bg_color)):
        if color.tag == lib.GHOSTTY_STYLE_COLOR_PALETTE:
            result[name] = int(color.value.palette)
        elif color.tag == lib.GHOSTTY_STYLE_COLOR_RGB:
            result[name] = _hex(color.value.rgb)
    if raw.underline:
        result["ul"] = int(raw.underline)
    for name, is_set in (
        ("b", raw.bold),
        ("d", raw.faint),
        ("i", raw.italic),
        ("v", raw.inverse),
        ("s", raw.strikethrough),
    ):
        if is_set:
            result[name] = 1
    return result


def _hex(color: Any) -> str:
    return f"#{color.r:02x}{color.g:02x}{color.b:02x}"


def encode_terminal(terminal: Any) -> bytes:
    """Return a terminal's state in the library's format.

    Empty while the terminal is in the middle of a sequence that is too long to keep.
    """
    ffi, lib = library()
    data, size = new("uint8_t*"), new("size_t")
    if lib.ghostty_snapshot_encode_alloc(terminal, ffi.NULL, data, size):
        return b""
    try:
        raw: bytes = ffi.buffer(data[0], size[0])[:]
    finally:
        lib.ghostty_free(ffi.NULL, data[0], size[0])
    return raw


def vt_of(terminal: Any) -> bytes:
    """Return escape sequences that give a new terminal of the same size this one's state.

    They have the scrollback, the screen, the cursor and the modes.
    """
    ffi, _ = library()
    options = _formatter_options("VT")
    options.extra.size = ffi.sizeof(type_of("GhosttyFormatterTerminalExtra"))
    options.extra.modes = options.extra.scrolling_region = options.extra.keyboard = True
    screen = options.extra.screen
    screen.size = ffi.sizeof(type_of("GhosttyFormatterScreenExtra"))
    screen.cursor = screen.style = screen.hyperlink = screen.charsets = True
    screen.kitty_keyboard = True
    return _formatted(terminal, options)


def text_of(terminal: Any) -> str:
    """Return the text of the scrollback and the screen, with one line for each row.

    It also has text that the program conceals, and no empty rows at the end.
    """
    return _formatted(terminal, _formatter_options("PLAIN")).decode(errors="replace")


def _formatter_options(form: str) -> Any:
    ffi, lib = library()
    options = new("GhosttyFormatterTerminalOptions")
    options.size = ffi.sizeof(type_of("GhosttyFormatterTerminalOptions"))
    options.emit = getattr(lib, f"GHOSTTY_FORMATTER_FORMAT_{form}")
    return options


def _formatted(terminal: Any, options: Any) -> bytes:
    ffi, lib = library()
    formatter = new("GhosttyFormatter")
    check(lib.ghostty_formatter_terminal_new(ffi.NULL, formatter, terminal, options[0]))
    data, size = new("uint8_t*"), new("size_t")
    try:
        check(lib.ghostty_formatter_format_alloc(formatter[0], ffi.NULL, data, size))
        formatted: bytes = ffi.buffer(data[0], size[0])[:]
        lib.ghostty_free(ffi.NULL, data[0], size[0])
    finally:
        lib.ghostty_formatter_free(formatter[0])
    return formatted


def decode_terminal(raw: bytes) -> Any:
    """Return a new terminal from the bytes of `encode_terminal()`. Raises `ValueError`."""
    ffi, lib = library()
    decoder, terminal = new("GhosttySnapshotDecoder"), new("GhosttyTerminal")
    check(lib.ghostty_snapshot_decoder_new_buf(ffi.NULL, decoder, raw, len(raw)))
    try:
        for name, value in (
            ("MAX_CONTINUATION_BYTES", new("size_t", MAX_PENDING_BYTES)),
            ("RETAIN_CONTINUATION", new("bool", True)),
        ):
            option = getattr(lib, f"GHOSTTY_SNAPSHOT_DECODER_OPT_{name}")
            check(lib.ghostty_snapshot_decoder_set(decoder[0], option, value))
        if lib.ghostty_snapshot_decoder_decode(decoder[0], terminal):
            raise ValueError("unknown format")
    finally:
        lib.ghostty_snapshot_decoder_free(decoder[0])
    return terminal[0]


def limit_scrollback(terminal: Any, lines: int) -> None:
    """Drop all rows of the scrollback except the newest `lines`."""
    _, lib = library()
    option = lib.GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_LINES
    check(lib.ghostty_terminal_set(terminal, option, new("size_t", lines)))


def clear(terminal: Any) -> None:
    """Clear the screen and its scrollback; modes, title and cursor stay."""
    _, lib = library()
    lib.ghostty_terminal_vt_write(terminal, b"\x18\x1b[2J\x1b[3J", 9)
