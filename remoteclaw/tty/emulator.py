"""The emulated terminal: what the library is asked and told, in the C that it speaks."""

import functools
import re
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from remoteclaw.tty.frames import TITLE, Style, plain
from remoteclaw.tty.ghostty import check, library, new, type_of

#: Most bytes of a text for the clipboard, of a sequence that is not known, of one that is being
#: received, of answers to one feed; most things said that wait to be taken.
CLIPBOARD: Final = 100_000
UNKNOWN: Final = 4096
PENDING: Final = 128 * 1024
ANSWERS: Final = 65536
SAID: Final = 256
#: What OSC 10 and 11 are answered with. Viewers have colours of their own.
FOREGROUND, BACKGROUND = (0xE6, 0xE6, 0xE6), (0x12, 0x12, 0x12)
#: The answers that a terminal may give its program.
#: Device attributes; status and cursor position; name and version; modes; kitty's keyboard flags;
#: the colours of text, background and palette; capabilities. Each holds digits and names that the
#: emulator has chosen, never text of the program: what is answered is as good as typed.
_ALLOWED = re.compile(
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
class Kind:
    """What a cell's value says beside its text; equal ones are the same object."""

    style: int
    """The number of its style in its page, 0 for none."""
    is_wide: bool
    is_cluster: bool
    """It has more than one code point."""
    has_link: bool
    background: int | str | None
    """The colour of a cell without text."""


#: A cell's text, empty for the second half of a wide character, and its kind, None for a plain one.
Look = tuple[str, Kind | None]
LOOKS: Final[dict[int, Look]] = {}
_KINDS: Final[dict[Kind, Kind]] = {}
_PLAIN = Kind(0, False, False, False, None)
#: Most that are remembered.
_MAX_LOOKS = 50_000


class Heard:
    """What the emulator reports while it is fed. It has no reference to the screen."""

    def __init__(self) -> None:
        self.said: deque[tuple[int, str]] = deque(maxlen=SAID)
        self.bells = 0
        self._answers: list[bytes] = []
        self._size = 0

    def answer(self, data: bytes) -> None:
        """Keep what the program is to be answered, if it may be."""
        if self._size + len(data) <= ANSWERS and _ALLOWED.fullmatch(data):
            self._answers.append(data)
            self._size += len(data)

    def take(self) -> bytes:
        """Take the answers."""
        answers = b"".join(self._answers)
        self._answers.clear()
        self._size = 0
        return answers

    def osc(self, content: bytes) -> None:
        """Take a sequence that no terminal knows."""
        number, _, text = content.decode(errors="replace").partition(";")
        if number.isascii() and number.isdecimal() and len(number) < 7:
            self.said.append((int(number), plain(text)))


def configure(terminal: Any, scrollback: int, heard: Heard, *, is_restored: bool) -> list[Any]:
    """Set a terminal's limits and callbacks; return what has to live as long as it does."""
    _, lib = library()

    def set_option(name: str, value: Any) -> None:
        option = getattr(lib, f"GHOSTTY_TERMINAL_OPT_{name}")
        check(lib.ghostty_terminal_set(terminal, option, value))

    # The bytes are those of pages, most of them untouched: lines are what limits memory.
    for name, limit in {
        "SCROLLBACK_MAX_LINES": scrollback,
        "SCROLLBACK_MAX_BYTES": 1 << 25,
        "CONTINUATION_MAX_BYTES": PENDING,
        "UNKNOWN_MAX_BYTES": UNKNOWN,
        "CLIPBOARD_WRITE_MAX_BYTES": CLIPBOARD,
        "APC_MAX_BYTES": UNKNOWN,
        "APC_MAX_BYTES_KITTY": UNKNOWN,
    }.items():
        set_option(name, new("size_t", limit))
    set_option("KITTY_IMAGE_STORAGE_LIMIT", new("uint64_t", 0))
    for name, rgb in (("COLOR_FOREGROUND", FOREGROUND), ("COLOR_BACKGROUND", BACKGROUND)):
        set_option(name, new("GhosttyColorRgb", rgb))
    # As ghostty has it: an emoji of several code points is one character, as programs count it.
    clusters = new("GhosttyTerminalModeConfig", {"mode": 2027, "value": True})
    set_option("MODE_DEFAULT", clusters)
    if not is_restored:
        set_option("MODE", clusters)
    callbacks = _callbacks(heard)
    for name, callback in callbacks.items():
        set_option(name, callback)
    return list(callbacks.values())


def _callbacks(heard: Heard) -> dict[str, Any]:
    ffi, lib = library()

    def text(value: Any) -> bytes:
        raw: bytes = ffi.buffer(value.ptr, value.len)[:] if value.len else b""
        return raw

    def unknown(_terminal: Any, _data: Any, sequence: Any) -> None:
        if sequence.tag == lib.GHOSTTY_TERMINAL_UNKNOWN_SEQUENCE_OSC:
            heard.osc(text(sequence.value.osc.content))

    def clipboard(_terminal: Any, _data: Any, write: Any) -> None:
        if write.contents_len:
            data = text(write.contents[0].data)
            heard.said.append((52, data[:CLIPBOARD].decode(errors="replace")))

    def title(terminal: Any, _data: Any) -> None:
        heard.said.append((0, title_of(terminal)))

    def bell(_terminal: Any, _data: Any) -> None:
        heard.bells += 1

    def notification(_terminal: Any, _data: Any, said: Any) -> None:
        words = b" ".join(part for part in (text(said.title), text(said.body)) if part)
        heard.said.append((9, plain(words[:UNKNOWN].decode(errors="replace"))))

    def progress(_terminal: Any, _data: Any, report: Any) -> None:
        heard.said.append((9, f"4;{report.state};{max(report.progress, 0)}"))

    def answer(_terminal: Any, _data: Any, data: Any, size: int) -> None:
        heard.answer(ffi.buffer(data, size)[:])

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
    """Return a terminal's title, one line."""
    ffi, lib = library()
    title = new("GhosttyString")
    if lib.ghostty_terminal_get(terminal, lib.GHOSTTY_TERMINAL_DATA_TITLE, title) or not title.len:
        return ""
    raw: bytes = ffi.buffer(title.ptr, title.len)[: 4 * TITLE]
    return plain(raw.decode(errors="ignore"))[:TITLE].strip()


def free(terminal: Any, state: Any, rows: Any) -> None:
    """Free all that a screen has of the library."""
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


def look(cell: int) -> Look:
    """Return what a cell's value says, and remember it."""
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
    kind = Kind(
        style=int(get("STYLE_ID", "uint16_t")),
        is_wide=is_tail or wide == lib.GHOSTTY_CELL_WIDE_WIDE,
        is_cluster=tag == lib.GHOSTTY_CELL_CONTENT_CODEPOINT_GRAPHEME,
        has_link=bool(get("HAS_HYPERLINK", "bool")),
        background=background,
    )
    if len(LOOKS) >= _MAX_LOOKS:
        LOOKS.clear()
        _KINDS.clear()
    LOOKS[cell] = text, None if kind == _PLAIN else _KINDS.setdefault(kind, kind)
    return LOOKS[cell]


def style(raw: Any) -> Style:
    """Return a style of the library as a frame has it."""
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


def encoded(terminal: Any) -> bytes:
    """Return the library's own form of a terminal; empty if it can't be had just now."""
    ffi, lib = library()
    data, size = new("uint8_t*"), new("size_t")
    if lib.ghostty_snapshot_encode_alloc(terminal, ffi.NULL, data, size):
        return b""
    try:
        raw: bytes = ffi.buffer(data[0], size[0])[:]
    finally:
        lib.ghostty_free(ffi.NULL, data[0], size[0])
    return raw


def decoded(raw: bytes) -> Any:
    """Return the terminal of `encoded()`. Raises `ValueError`."""
    ffi, lib = library()
    decoder, terminal = new("GhosttySnapshotDecoder"), new("GhosttyTerminal")
    check(lib.ghostty_snapshot_decoder_new_buf(ffi.NULL, decoder, raw, len(raw)))
    try:
        for name, value in (
            ("MAX_CONTINUATION_BYTES", new("size_t", PENDING)),
            ("RETAIN_CONTINUATION", new("bool", True)),
        ):
            option = getattr(lib, f"GHOSTTY_SNAPSHOT_DECODER_OPT_{name}")
            check(lib.ghostty_snapshot_decoder_set(decoder[0], option, value))
        if lib.ghostty_snapshot_decoder_decode(decoder[0], terminal):
            raise ValueError("unknown form")
    finally:
        lib.ghostty_snapshot_decoder_free(decoder[0])
    return terminal[0]


def keep_lines(terminal: Any, lines: int) -> None:
    """Drop rows of the past."""
    _, lib = library()
    option = lib.GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_LINES
    check(lib.ghostty_terminal_set(terminal, option, new("size_t", lines)))


def clear(terminal: Any) -> None:
    """Empty the screen; modes, title and cursor stay."""
    _, lib = library()
    lib.ghostty_terminal_vt_write(terminal, b"\x18\x1b[2J\x1b[3J", 9)
