"""Input from the person's terminal, as keys, text and pastes.

Nothing is passed on as it came. What is neither a key nor text is dropped: answers to questions
that nobody has asked, reports of focus and of the mouse, and all sequences that aren't known.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: How long an Esc may be the beginning of something, and how long something may lack its end, in
#: seconds. Terminals that tell keys apart send no Esc alone.
ESC_S, HALF_S = 0.05, 1.0
#: What a paste may have, in bytes: 100,000 characters of any kind.
MAX_PASTED = 400_000

_PASTE_END = b"\x1b[201~"
_CSI = re.compile(rb"\x1b\[(?P<parameters>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~])")
_CSI_BEGUN = re.compile(rb"\x1b\[[0-?]*[ -/]*")
_SS3 = re.compile(rb"\x1bO(?P<parameters>[0-9;]*)(?P<final>[ -:<-~])")
_SS3_BEGUN = re.compile(rb"\x1bO[0-9;]*")
#: DCS, SOS, OSC, PM and APC: strings that end with ST, BEL, CAN or SUB.
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
#: Keys by their number in the kitty keyboard protocol.
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
#: The kitty protocol's own keys, such as Caps Lock alone.
_PRIVATE = range(0xE000, 0xF900)
_CONTROLS = {0: "ctrl+space", 9: "tab", 13: "enter", 27: "esc", 127: "backspace"} | {
    code: f"ctrl+{chr(code + 64).lower()}" for code in (*range(1, 9), 10, 11, 12, *range(14, 27))
}
_CONTROLS |= {28: "ctrl+\\", 29: "ctrl+]", 30: "ctrl+^", 31: "ctrl+_"}

SHIFT, ALT, CTRL = 1, 2, 4
#: Caps Lock and Num Lock, which change nothing here.
_LOCKS = 64 | 128


@dataclass(frozen=True, slots=True)
class Key:
    """A key by its name, as `terminals.type` takes it."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """What was typed, without control characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Paste:
    """The pasted text as it came; None if it is too large."""

    text: str | None


Typed = Key | Text | Paste


class Keyboard:
    """Reads the bytes of the person's terminal, however they are cut."""

    def __init__(self) -> None:
        self._waiting = b""
        self._is_pasting = False
        self._is_too_large = False
        self._is_skipping = False
        """Whether we are inside of a string that is dropped."""

    @property
    def doubt_s(self) -> float | None:
        """How long a pause decides what this is: an Esc alone, or half of a sequence; else None."""
        if self._is_pasting or not (self._is_skipping or self._waiting):
            return None
        return ESC_S if self._waiting == b"\x1b" and not self._is_skipping else HALF_S

    def feed(self, data: bytes) -> list[Typed]:
        """Return what is complete with these bytes."""
        self._waiting += data
        return list(self._read())

    def pause(self) -> list[Typed]:
        """Return what it is if nothing more comes: an Esc alone is one, the rest is dropped."""
        if self._is_pasting:
            return []
        is_esc = self._waiting == b"\x1b" and not self._is_skipping
        self._waiting, self._is_skipping = b"", False
        return [Key("esc")] if is_esc else []

    def _read(self) -> Iterator[Typed]:
        while self._waiting:
            if self._is_pasting:
                if not (end := self._waiting.find(_PASTE_END) + 1):
                    self._keep_some_of_the_paste()
                    return
                pasted = self._take(end - 1 + len(_PASTE_END))[: end - 1]
                is_too_large = self._is_too_large or len(pasted) > MAX_PASTED
                self._is_pasting = self._is_too_large = False
                yield Paste(None if is_too_large else pasted.decode(errors="replace"))
                continue
            if self._is_skipping:
                if not self._skipped():
                    return
                continue
            before = len(self._waiting)
            yield from self._next()
            if len(self._waiting) == before and not (self._is_pasting or self._is_skipping):
                return  # it needs more

    def _take(self, count: int) -> bytes:
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def _keep_some_of_the_paste(self) -> None:
        if self._is_too_large or len(self._waiting) > MAX_PASTED:
            self._is_too_large = True
            self._waiting = self._waiting[-len(_PASTE_END) :]  # half of its end may be there

    def _skipped(self) -> bool:
        """Drop a string up to its end; return whether its end is there."""
        if end := _STRING_END.search(self._waiting):
            self._take(end.end())
            self._is_skipping = False
            return True
        # Half of its end may be there.
        self._waiting = b"\x1b" if self._waiting.endswith(b"\x1b") else b""
        return False

    def _next(self) -> Iterator[Typed]:
        """Read one thing; take nothing if it needs more."""
        first = self._waiting[0]
        if first == 0x1B:
            yield from self._escape()
        elif match := _TEXT.match(self._waiting):
            yield from self._text(match[0])
        else:
            self._take(1)
            yield Key(_CONTROLS[first])

    def _text(self, data: bytes) -> Iterator[Typed]:
        is_last = len(data) == len(self._waiting)
        whole = data[: len(data) - _unfinished(data)] if is_last else data
        self._take(len(whole))
        if text := _C1.sub("", whole.decode(errors="ignore")):
            yield Text(text)

    def _escape(self) -> Iterator[Typed]:
        data = self._waiting
        if len(data) == 1:
            return
        if data[1:2] == b"[":
            yield from self._csi()
        elif data[1:2] == b"O":
            if match := _SS3.match(data):
                self._take(match.end())
                yield from _ss3(match)
            else:
                self._drop(_SS3_BEGUN)
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
            assert match is not None, "it begins with any byte"
            if match.end() == len(data) <= _size(data[1]):
                return
            character = self._take(match.end())[1:].decode(errors="ignore")
            if character and not _C1.match(character):
                yield Key(f"alt+{character}")

    def _csi(self) -> Iterator[Typed]:
        data = self._waiting
        match = _CSI.match(data)
        if not match:
            self._drop(_CSI_BEGUN)
            return
        # Two have more behind their end: the mouse of old, and F1 to F5 of the Linux console.
        more = {b"\x1b[M": 3, b"\x1b[[": 1}.get(match[0], 0)
        if len(data) < match.end() + more:
            return
        behind = self._take(match.end() + more)[match.end() :]
        if match[0] == b"\x1b[[" and b"A" <= behind <= b"E":
            yield Key(f"f{behind[0] - 0x40}")
        elif match["parameters"] == b"200" and match["final"] == b"~":
            self._is_pasting = True
        elif not more and not match["between"]:
            yield from _sequence(match["parameters"], match["final"])

    def _drop(self, begun: re.Pattern[bytes]) -> None:
        """Drop a sequence up to a byte that it can't have; wait if there is none yet."""
        match = begun.match(self._waiting)
        if match and match.end() < len(self._waiting):
            self._take(match.end())


def _ss3(match: re.Match[bytes]) -> Iterator[Typed]:
    final, modifiers = match["final"], _number(match["parameters"].rpartition(b";")[2], 1) - 1
    if name := "enter" if final == b"M" else _LETTERS.get(final):
        yield from _key(name, modifiers)
    elif text := _KEYPAD.get(final):
        yield Text(text)


def _sequence(parameters: bytes, final: bytes) -> Iterator[Typed]:
    """Return the key of a control sequence, or nothing."""
    if parameters[:1] in (b"<", b"=", b">", b"?"):
        return  # the mouse, or an answer
    fields = [field.split(b":") for field in parameters.split(b";")]
    number = _number(fields[0][0], 1)
    state = fields[1] if len(fields) > 1 else [b"1"]
    modifiers = _number(state[0], 1) - 1
    if len(state) > 1 and state[1] == b"3":
        return  # a key that was let go of
    if final == b"u":
        yield from _coded(number, fields[0], modifiers)
    elif final == b"~" and number == 27 and len(fields) == 3:
        yield from _coded(_number(fields[2][0], 0), [], modifiers)
    elif final == b"~" and number in _NUMBERS:
        yield from _key(_NUMBERS[number], modifiers)
    elif final == b"Z":
        yield from _key("tab", modifiers | SHIFT)
    elif final in _LETTERS and number == 1 and (final != b"R" or not parameters):
        # `CSI 1;5R` may be F3, or say where the cursor is.
        yield from _key(_LETTERS[final], modifiers)


def _coded(code: int, forms: list[bytes], modifiers: int) -> Iterator[Typed]:
    """Return the key with this number, of the kitty protocol or of modifyOtherKeys."""
    modifiers &= ~_LOCKS
    code = ord(_KEYPAD_CODES.get(code, chr(code))) if 0 < code < 0x110000 else 0
    character = chr(code)
    if name := _CODES.get(code):
        if name == "space" and modifiers in (0, SHIFT):
            yield Text(" ")
        else:
            yield from _key(name, modifiers)
    elif code < 0x20 or not character.isprintable() or code in _PRIVATE:
        return
    elif modifiers in (0, SHIFT):
        shifted = _number(forms[1], 0) if len(forms) > 1 and modifiers else 0
        if 0x20 < shifted < 0x110000 and chr(shifted).isprintable():
            yield Text(chr(shifted))
        else:
            yield Text(character.upper() if modifiers else character)
    else:
        yield from _key(character.lower() if modifiers & CTRL else character, modifiers)


def _key(name: str, modifiers: int) -> Iterator[Typed]:
    modifiers &= ~_LOCKS
    if 0 <= modifiers <= SHIFT | ALT | CTRL:  # else with keys that programs here don't know
        yield Key(_modified(name, modifiers))


def _modified(name: str, modifiers: int) -> str:
    held = [(CTRL, "ctrl+"), (ALT, "alt+"), (SHIFT, "shift+")]
    before = "".join(word for bit, word in held if modifiers & bit and not name.startswith(word))
    if name.startswith("ctrl+") and before:
        return f"ctrl+{before}{name.removeprefix('ctrl+')}"
    return f"{before}{name}"


def _number(digits: bytes, otherwise: int) -> int:
    return int(digits[:9]) if digits[:9].isdigit() else otherwise


def _size(first: int) -> int:
    """Return how many bytes a character has that begins with this one."""
    return 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1


def _unfinished(data: bytes) -> int:
    """Return how many bytes at the end are the beginning of a character."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            return back if _size(byte) > back else 0
        if byte < 0x80:
            return 0
    return 0
