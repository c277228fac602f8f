"""Encodes keys, by name, as the bytes that the program in a terminal expects."""

import functools
import re
from collections.abc import Sequence
from typing import Any, Final

from remoteclaw.errors import RemoteClawError
from remoteclaw.tty.frames import Modes
from remoteclaw.tty.ghostty import check, library, new

#: Keys without a character: our name, and the emulator's.
_KEYS: Final = {
    "enter": "ENTER",
    "tab": "TAB",
    "esc": "ESCAPE",
    "backspace": "BACKSPACE",
    "delete": "DELETE",
    "insert": "INSERT",
    "home": "HOME",
    "end": "END",
    "pageup": "PAGE_UP",
    "pagedown": "PAGE_DOWN",
    "up": "ARROW_UP",
    "down": "ARROW_DOWN",
    "left": "ARROW_LEFT",
    "right": "ARROW_RIGHT",
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}
NAMES: Final = (*_KEYS, "space")
_MODS: Final = {"shift": 1, "ctrl": 2, "alt": 4}
_PUNCTUATION: Final = {
    "`": "BACKQUOTE",
    "\\": "BACKSLASH",
    "[": "BRACKET_LEFT",
    "]": "BRACKET_RIGHT",
    ",": "COMMA",
    "=": "EQUAL",
    "-": "MINUS",
    ".": "PERIOD",
    "'": "QUOTE",
    ";": "SEMICOLON",
    "/": "SLASH",
    " ": "SPACE",
}
#: Input that is refused in every encoding: Ctrl-Z stops the program and Ctrl-\ kills it.
_FORBIDDEN: Final = re.compile(
    rb"[\x1a\x1c]|\x1b\[(?:122|92)[:\d]*;(?:5|69|133|197)[:;\d]*u|\x1b\[27;5;(?:122|92)~"
)

#: Ctrl with these keys sends a control character to a program without a keyboard protocol. The
#: emulator would send an escape sequence.
_LEGACY: Final = {"i": b"\t", "m": b"\r", "[": b"\x1b"}


class UnknownKey(RemoteClawError):
    """Raised for an unknown key name, and for a key that must not be pressed."""


def encode(name: str, modes: Modes) -> bytes:
    """Return the bytes that a key such as `enter`, `shift+tab`, `ctrl+c` or `alt+x` sends.

    `modes` are the terminal's current modes. Raises `UnknownKey`, whose text is for the user.
    """
    *modifiers, key = re.split(r"\+(?=.)", name.strip()) if len(name) < 40 else [name]
    mods = 0
    for modifier in modifiers:
        mods |= _MODS.get(modifier.lower(), 8)
    if mods & 8 or not (press := _press(key, mods)):
        raise UnknownKey(
            f"“{name[:40]}” is not a key: use {', '.join(NAMES)}, or ctrl+, alt+ and shift+ before"
            " one of them or before a character."
        )
    if mods == _MODS["ctrl"] and not modes.kitty and not modes.modify_other:
        legacy = _LEGACY.get(press[2])
        if legacy:
            return legacy
    return raw(_encoded(*press, modes))


def _press(key: str, mods: int) -> tuple[str, int, str, str] | None:
    """Return the emulator's key, the modifiers, the text, and the character without shift.

    None if `key` is neither the name of a key nor a character.
    """
    named = _KEYS.get(key.lower())
    if named:
        return named, mods, "", ""
    if key.lower() == "space":
        key = " "
    if len(key) != 1 or not key.isprintable():
        return None
    if key.isascii() and key.isalpha():
        if mods & _MODS["ctrl"] and not mods & _MODS["shift"]:
            key = key.lower()
        elif key.isupper():
            mods |= _MODS["shift"]
        elif mods & _MODS["shift"]:
            key = key.upper()
        return key.upper(), mods, key, key.lower()
    if key.isascii() and key.isdigit():
        return f"DIGIT_{key}", mods, key, key
    return _PUNCTUATION.get(key, "UNIDENTIFIED"), mods, key, key


def raw(values: Sequence[int]) -> bytes:
    """Return bytes that a client sends unencoded. Raises `UnknownKey` for a forbidden key."""
    if not all(0 <= value <= 255 for value in values):
        raise UnknownKey("A byte is a number from 0 to 255.")
    keys = bytes(values)
    if _FORBIDDEN.search(keys):
        raise UnknownKey(
            "Ctrl-Z and Ctrl-\\ are refused: they would stop the program, and nothing here could"
            " resume it."
        )
    return keys


# -- the emulator's encoder ---------------------------------------------------------------------

#: The flag of kitty's protocol that adds the event type to each key. It is not used because only
#: presses are sent, and their usual form has no event type.
_EVENT_TYPES = 2


@functools.cache
def _encoder() -> tuple[Any, Any]:
    """Return the encoder of keys, and the event object that describes a key press to it."""
    ffi, lib = library()
    encoder, event = new("GhosttyKeyEncoder"), new("GhosttyKeyEvent")
    check(lib.ghostty_key_encoder_new(ffi.NULL, encoder))
    check(lib.ghostty_key_event_new(ffi.NULL, event))
    lib.ghostty_key_event_set_action(event[0], lib.GHOSTTY_KEY_ACTION_PRESS)
    return encoder[0], event[0]


def _press_of(key: str, mods: int, text: str, unshifted: str) -> bytes:
    ffi, lib = library()
    encoder, event = _encoder()
    utf8 = text.encode()
    lib.ghostty_key_event_set_key(event, getattr(lib, f"GHOSTTY_KEY_{key}"))
    lib.ghostty_key_event_set_mods(event, mods)
    # Shift is consumed by the text: it is encoded as "A", and not as shift with "A".
    lib.ghostty_key_event_set_consumed_mods(event, mods & 1 if text else 0)
    lib.ghostty_key_event_set_utf8(event, utf8, len(utf8))
    lib.ghostty_key_event_set_unshifted_codepoint(event, ord(unshifted) if unshifted else 0)
    buffer, size = new("char[128]"), new("size_t")
    check(lib.ghostty_key_encoder_encode(encoder, event, buffer, 128, size))
    raw: bytes = ffi.buffer(buffer, size[0])[:]
    return raw


def modifies_other(terminal: Any) -> bool:
    """Return whether modifyOtherKeys is 2.

    The library has no getter for it, so the encoding of a key that depends on it is examined.
    """
    _, lib = library()
    encoder, _ = _encoder()
    lib.ghostty_key_encoder_setopt_from_terminal(encoder, terminal)
    _set_encoder("KITTY_FLAGS", "uint8_t", 0)
    return _press_of("H", 3, "H", "h").endswith(b"~")


def _encoded(key: str, mods: int, text: str, unshifted: str, modes: Modes) -> bytes:
    """Encode a key press for a program with these modes.

    `key` is the library's name of the key, `mods` a sum of shift 1, ctrl 2 and alt 4, `text` the
    text that the key types, `unshifted` the character of the key without shift.
    """
    for name, kind, value in (
        ("CURSOR_KEY_APPLICATION", "bool", modes.app_cursor),
        ("KEYPAD_KEY_APPLICATION", "bool", modes.app_keypad),
        ("ALT_ESC_PREFIX", "bool", True),
        ("MODIFY_OTHER_KEYS_STATE_2", "bool", modes.modify_other == 2),
        ("KITTY_FLAGS", "uint8_t", modes.kitty & ~_EVENT_TYPES),
        ("BACKARROW_KEY_MODE", "bool", False),
    ):
        _set_encoder(name, kind, value)
    return _press_of(key, mods, text, unshifted)


def _set_encoder(name: str, kind: str, value: int) -> None:
    _, lib = library()
    option = getattr(lib, f"GHOSTTY_KEY_ENCODER_OPT_{name}")
    lib.ghostty_key_encoder_setopt(_encoder()[0], option, new(kind, value))
