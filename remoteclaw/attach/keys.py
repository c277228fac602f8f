"""Parses the input of the user's terminal into keys, text and pastes.

No input is passed on unparsed. Everything that is neither a key nor text is dropped: answers to
queries, reports of focus and of the mouse, and unknown sequences.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: How long to wait for the rest of a sequence after an Esc, and after more than an Esc, in seconds.
#: A terminal with a keyboard protocol never sends an Esc alone.
ESC_S, INCOMPLETE_S = 0.05, 1.0
#: The largest paste, in bytes: 100,000 characters of up to four bytes.
MAX_PASTE_BYTES = 400_000

_PASTE_END = b"\x1b[201~"
_CSI = re.compile(rb"\x1b\[(?P<parameters>[0-?]*)(?P<intermediate>[ -/]*)(?P<final>[@-~])")
_CSI_START = re.compile(rb"\x1b\[[0-?]*[ -/]*")
_SS3 = re.compile(rb"\x1bO(?P<parameters>[0-9;]*)(?P<final>[ -:<-~])")
_SS3_START = re.compile(rb"\x1bO[0-9;]*")
#: The second byte of the control strings DCS, SOS, OSC, PM and APC. They end with ST, BEL, CAN or
#: SUB.
_STRINGS = b"PX]^_"
_STRING_END = re.compile(rb"\x1b\\|[\x07\x18\x1a]")
_ALT = re.compile(rb"\x1b(?:[\xc0-\xff][\x80-\xbf]{0,3}|[ -\xff])", re.DOTALL)
_TEXT = re.compile(rb"[^\x00-\x1f\x7f]+")
_C1 = re.compile("[\x80-\x9f]")

_LETTERS = {
    **{b"A": "up", b"B": "down", b"C": "right", b"D": "left", b"F": "end", b"H": "home"},
    **{b"P": "f1", b"Q": "f2", b"R": "f3", b"S": "f4"},
}
_NUMBERS = {
    **{1: "home", 2: "insert", 3: "delete", 4: "end", 5: "pageup", 6: "pagedown"},
    **{7: "home", 8: "end", 11: "f1", 12: "f2", 13: "f3", 14: "f4", 15: "f5"},
    **{17: "f6", 18: "f7", 19: "f8", 20: "f9", 21: "f10", 23: "f11", 24: "f12"},
}
#: The keypad's operators and digits in application mode.
_KEYPAD = {b"X": "=", **{bytes([0x6A + at]): char for at, char in enumerate("*+,-./0123456789")}}
#: Keys by their code in the kitty keyboard protocol.
_CODES = {
    **{9: "tab", 13: "enter", 27: "esc", 32: "space", 127: "backspace"},
    **dict(
        zip(
            range(57417, 57427),
            "left right up down pageup pagedown home end insert delete".split(),
            strict=True,
        )
    ),
}
_KEYPAD_CODES = dict(zip(range(57399, 57417), "0123456789./*-+\r=,", strict=True))
#: Codes of keys that exist only in the kitty protocol, such as Caps Lock.
_KITTY_ONLY = range(0xE000, 0xF900)
_CONTROLS = {0: "ctrl+space", 9: "tab", 13: "enter", 27: "esc", 127: "backspace"} | {
    code: f"ctrl+{chr(code + 64).lower()}" for code in (*range(1, 9), 10, 11, 12, *range(14, 27))
}
_CONTROLS |= {28: "ctrl+\\", 29: "ctrl+]", 30: "ctrl+^", 31: "ctrl+_"}

SHIFT, ALT, CTRL = 1, 2, 4
#: Caps Lock and Num Lock, which are ignored.
_LOCKS = 64 | 128


@dataclass(frozen=True, slots=True)
class Key:
    """A key, by its name in `terminals.type`."""

    name: str


@dataclass(frozen=True, slots=True)
class TypedText:
    """Typed text, without control characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Paste:
    """A paste."""

    text: str | None
    """The text, unchanged; None if it is too large."""


UserInput = Key | TypedText | Paste


class KeyReader:
    """Parses the bytes of the user's terminal, in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = b""
        self._is_pasting = False
        self._is_too_large = False
        self._is_skipping = False
        """Whether the input is inside of a control string, which is dropped."""

    @property
    def timeout_s(self) -> float | None:
        """The seconds without input after which to call `expire()`; None if input is complete."""
        if self._is_pasting or not (self._is_skipping or self._buffer):
            return None
        return ESC_S if self._buffer == b"\x1b" and not self._is_skipping else INCOMPLETE_S

    def feed(self, data: bytes) -> list[UserInput]:
        """Add bytes, and return the input that is complete."""
        self._buffer += data
        return list(self._read())

    def expire(self) -> list[UserInput]:
        """Resolve incomplete input: a single Esc is the key, anything else is dropped."""
        if self._is_pasting:
            return []
        is_esc = self._buffer == b"\x1b" and not self._is_skipping
        self._buffer, self._is_skipping = b"", False
        return [Key("esc")] if is_esc else []

    def _read(self) -> Iterator[UserInput]:
        while self._buffer:
            if self._is_pasting:
                end = self._buffer.find(_PASTE_END)
                if end < 0:
                    self._limit_paste()
                    return
                pasted = self._take(end + len(_PASTE_END))[:end]
                is_too_large = self._is_too_large or len(pasted) > MAX_PASTE_BYTES
                self._is_pasting = self._is_too_large = False
                yield Paste(None if is_too_large else pasted.decode(errors="replace"))
                continue
            if self._is_skipping:
                if not self._skip_string():
                    return
                continue
            before = len(self._buffer)
            yield from self._parse_next()
            if len(self._buffer) == before and not (self._is_pasting or self._is_skipping):
                return  # incomplete

    def _take(self, count: int) -> bytes:
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _limit_paste(self) -> None:
        """Drop a paste that is too large, except for bytes that may begin its end marker."""
        if self._is_too_large or len(self._buffer) > MAX_PASTE_BYTES:
            self._is_too_large = True
            self._buffer = self._buffer[-len(_PASTE_END) :]

    def _skip_string(self) -> bool:
        """Drop a control string up to its end; return whether the end has been received."""
        if end := _STRING_END.search(self._buffer):
            self._take(end.end())
            self._is_skipping = False
            return True
        # The Esc may be the first byte of the end.
        self._buffer = b"\x1b" if self._buffer.endswith(b"\x1b") else b""
        return False

    def _parse_next(self) -> Iterator[UserInput]:
        """Parse one key, text or sequence; consume nothing if it is incomplete."""
        first = self._buffer[0]
        if first == 0x1B:
            yield from self._parse_escape()
        elif match := _TEXT.match(self._buffer):
            yield from self._parse_text(match[0])
        else:
            self._take(1)
            yield Key(_CONTROLS[first])

    def _parse_text(self, data: bytes) -> Iterator[UserInput]:
        is_last = len(data) == len(self._buffer)
        complete = data[: len(data) - _incomplete_bytes(data)] if is_last else data
        self._take(len(complete))
        if text := _C1.sub("", complete.decode(errors="ignore")):
            yield TypedText(text)

    def _parse_escape(self) -> Iterator[UserInput]:
        data = self._buffer
        if len(data) == 1:
            return
        if data[1:2] == b"[":
            yield from self._parse_csi()
        elif data[1:2] == b"O":
            if match := _SS3.match(data):
                self._take(match.end())
                yield from _ss3_key(match)
            else:
                self._drop_malformed(_SS3_START)
        elif data[1] in _STRINGS:
            self._take(2)
            self._is_skipping = True
        elif data[1] == 0x1B:
            self._take(1)
            yield Key("esc")
        elif data[1] < 0x20 or data[1] == 0x7F:
            self._take(2)
            yield Key(_modified(_CONTROLS[data[1]], ALT))
        else:
            match = _ALT.match(data)
            assert match is not None, "the pattern matches any second byte that is left"
            if match.end() == len(data) <= _utf8_size(data[1]):
                return
            character = self._take(match.end())[1:].decode(errors="ignore")
            if character and not _C1.match(character):
                yield Key(f"alt+{character}")

    def _parse_csi(self) -> Iterator[UserInput]:
        data = self._buffer
        match = _CSI.match(data)
        if not match:
            self._drop_malformed(_CSI_START)
            return
        # Two sequences have bytes after their final byte: the X10 mouse report, and F1 to F5 of the
        # Linux console.
        extra_bytes = {b"\x1b[M": 3, b"\x1b[[": 1}.get(match[0], 0)
        if len(data) < match.end() + extra_bytes:
            return
        extra = self._take(match.end() + extra_bytes)[match.end() :]
        if match[0] == b"\x1b[[" and b"A" <= extra <= b"E":
            yield Key(f"f{extra[0] - 0x40}")
        elif match["parameters"] == b"200" and match["final"] == b"~":
            self._is_pasting = True
        elif not extra_bytes and not match["intermediate"]:
            yield from _csi_key(match["parameters"], match["final"])

    def _drop_malformed(self, start: re.Pattern[bytes]) -> None:
        """Drop a sequence up to the first invalid byte; do nothing if it may be incomplete."""
        match = start.match(self._buffer)
        if match and match.end() < len(self._buffer):
            self._take(match.end())


def _ss3_key(match: re.Match[bytes]) -> Iterator[UserInput]:
    final, modifiers = match["final"], _number(match["parameters"].rpartition(b";")[2], 1) - 1
    if name := "enter" if final == b"M" else _LETTERS.get(final):
        yield from _key(name, modifiers)
    elif text := _KEYPAD.get(final):
        yield TypedText(text)


def _csi_key(parameters: bytes, final: bytes) -> Iterator[UserInput]:
    """Yield the key of a CSI sequence, if it is one."""
    if parameters[:1] in (b"<", b"=", b">", b"?"):
        return  # a mouse report or an answer to a query
    fields = [field.split(b":") for field in parameters.split(b";")]
    number = _number(fields[0][0], 1)
    modifier_field = fields[1] if len(fields) > 1 else [b"1"]
    modifiers = _number(modifier_field[0], 1) - 1
    if len(modifier_field) > 1 and modifier_field[1] == b"3":
        return  # a key release
    if final == b"u":
        yield from _key_of_code(number, fields[0], modifiers)
    elif final == b"~" and number == 27 and len(fields) == 3:
        yield from _key_of_code(_number(fields[2][0], 0), [], modifiers)
    elif final == b"~" and number in _NUMBERS:
        yield from _key(_NUMBERS[number], modifiers)
    elif final == b"Z":
        yield from _key("tab", modifiers | SHIFT)
    elif final in _LETTERS and number == 1 and (final != b"R" or not parameters):
        # `CSI 1;5R` could be F3 or a cursor position report, so F3 counts only without parameters.
        yield from _key(_LETTERS[final], modifiers)


def _key_of_code(code: int, alternatives: list[bytes], modifiers: int) -> Iterator[UserInput]:
    """Yield the key with a code of the kitty protocol or of modifyOtherKeys.

    `alternatives` are the fields of the code; the second one is the shifted character.
    """
    modifiers &= ~_LOCKS
    code = ord(_KEYPAD_CODES.get(code, chr(code))) if 0 < code < 0x110000 else 0
    character = chr(code)
    if name := _CODES.get(code):
        if name == "space" and modifiers in (0, SHIFT):
            yield TypedText(" ")
        else:
            yield from _key(name, modifiers)
    elif code < 0x20 or not character.isprintable() or code in _KITTY_ONLY:
        return
    elif modifiers in (0, SHIFT):
        shifted = _number(alternatives[1], 0) if len(alternatives) > 1 and modifiers else 0
        if 0x20 < shifted < 0x110000 and chr(shifted).isprintable():
            yield TypedText(chr(shifted))
        else:
            yield TypedText(character.upper() if modifiers else character)
    else:
        yield from _key(character.lower() if modifiers & CTRL else character, modifiers)


def _key(name: str, modifiers: int) -> Iterator[UserInput]:
    modifiers &= ~_LOCKS
    if (
        0 <= modifiers <= SHIFT | ALT | CTRL
    ):  # otherwise Super, Hyper or Meta is held, which `terminals.type` does not have
        yield Key(_modified(name, modifiers))


def _modified(name: str, modifiers: int) -> str:
    modifier_names = [(CTRL, "ctrl+"), (ALT, "alt+"), (SHIFT, "shift+")]
    prefix = "".join(
        word for bit, word in modifier_names if modifiers & bit and not name.startswith(word)
    )
    if name.startswith("ctrl+") and prefix:
        return f"ctrl+{prefix}{name.removeprefix('ctrl+')}"
    return f"{prefix}{name}"


def _number(digits: bytes, default: int) -> int:
    return int(digits[:9]) if digits[:9].isdigit() else default


def _utf8_size(first: int) -> int:
    """Return the length in bytes of the UTF-8 character whose first byte is `first`."""
    return 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1


def _incomplete_bytes(data: bytes) -> int:
    """Return how many bytes at the end of `data` begin an incomplete UTF-8 character."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            return back if _utf8_size(byte) > back else 0
        if byte < 0x80:
            return 0
    return 0
