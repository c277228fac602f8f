"""Keys by their names, encoded as xterm and kitty document them for each mode."""

import pytest

from remoteclaw.tty.frames import Modes
from remoteclaw.tty.keys import NAMES, UnknownKey, encode, raw
from tests.support.rows import for_each

pytest.importorskip("pyghostty")

LEGACY, APPLICATION, KITTY = Modes(), Modes(app_cursor=True, app_keypad=True), Modes(kitty=1)
CODEX = Modes(kitty=7)
OTHER = Modes(modify_other=2)


@for_each(
    ("name", "legacy", "application", "kitty", "other"),
    [
        ("enter", "\r", "\r", "\r", "\r"),
        ("tab", "\t", "\t", "\t", "\t"),
        ("shift+tab", "\x1b[Z", "\x1b[Z", "\x1b[9;2u", "\x1b[27;2;9~"),
        ("esc", "\x1b", "\x1b", "\x1b[27u", "\x1b"),
        ("backspace", "\x7f", "\x7f", "\x7f", "\x7f"),
        ("alt+backspace", "\x1b\x7f", "\x1b\x7f", "\x1b[127;3u", "\x1b[27;3;127~"),
        ("delete", "\x1b[3~", "\x1b[3~", "\x1b[3~", "\x1b[3~"),
        ("insert", "\x1b[2~", "\x1b[2~", "\x1b[2~", "\x1b[2~"),
        ("home", "\x1b[H", "\x1bOH", "\x1b[H", "\x1b[H"),
        ("end", "\x1b[F", "\x1bOF", "\x1b[F", "\x1b[F"),
        ("pageup", "\x1b[5~", "\x1b[5~", "\x1b[5~", "\x1b[5~"),
        ("pagedown", "\x1b[6~", "\x1b[6~", "\x1b[6~", "\x1b[6~"),
        ("up", "\x1b[A", "\x1bOA", "\x1b[A", "\x1b[A"),
        ("down", "\x1b[B", "\x1bOB", "\x1b[B", "\x1b[B"),
        ("right", "\x1b[C", "\x1bOC", "\x1b[C", "\x1b[C"),
        ("left", "\x1b[D", "\x1bOD", "\x1b[D", "\x1b[D"),
        ("ctrl+up", "\x1b[1;5A", "\x1b[1;5A", "\x1b[1;5A", "\x1b[1;5A"),
        ("alt+left", "\x1b[1;3D", "\x1b[1;3D", "\x1b[1;3D", "\x1b[1;3D"),
        ("shift+ctrl+end", "\x1b[1;6F", "\x1b[1;6F", "\x1b[1;6F", "\x1b[1;6F"),
        ("f1", "\x1bOP", "\x1bOP", "\x1b[P", "\x1bOP"),
        ("f5", "\x1b[15~", "\x1b[15~", "\x1b[15~", "\x1b[15~"),
        ("shift+f5", "\x1b[15;2~", "\x1b[15;2~", "\x1b[15;2~", "\x1b[15;2~"),
        ("f12", "\x1b[24~", "\x1b[24~", "\x1b[24~", "\x1b[24~"),
        ("space", " ", " ", " ", " "),
        ("ctrl+space", "\0", "\0", "\x1b[32;5u", "\x1b[27;5;32~"),
        ("shift+enter", "\x1b[27;2;13~", "\x1b[27;2;13~", "\x1b[13;2u", "\x1b[27;2;13~"),
        ("alt+enter", "\x1b\r", "\x1b\r", "\x1b[13;3u", "\x1b[27;3;13~"),
        ("ctrl+c", "\x03", "\x03", "\x1b[99;5u", "\x1b[27;5;99~"),
        ("Ctrl+C", "\x03", "\x03", "\x1b[99;5u", "\x1b[27;5;99~"),
        ("ctrl+i", "\t", "\t", "\x1b[105;5u", "\x1b[27;5;105~"),
        ("ctrl+[", "\x1b", "\x1b", "\x1b[91;5u", "\x1b[27;5;91~"),
        ("ctrl+]", "\x1d", "\x1d", "\x1b[93;5u", "\x1b[27;5;93~"),
        ("alt+x", "\x1bx", "\x1bx", "\x1b[120;3u", "\x1b[27;3;120~"),
        ("alt+X", "\x1bX", "\x1bX", "\x1b[120;4u", "\x1b[27;4;88~"),
        ("ctrl+alt+a", "\x1b\x01", "\x1b\x01", "\x1b[97;7u", "\x1b[27;7;97~"),
        ("alt++", "\x1b+", "\x1b+", "\x1b[43;3u", "\x1b[27;3;43~"),
        ("a", "a", "a", "a", "a"),
        ("é", "é", "é", "é", "é"),
    ],
)
def test_keys_are_encoded_for_the_current_modes(
    name: str, legacy: str, application: str, kitty: str, other: str
) -> None:
    assert encode(name, LEGACY).decode() == legacy
    assert encode(name, APPLICATION).decode() == application
    assert encode(name, KITTY).decode() == kitty
    assert encode(name, OTHER).decode() == other


def test_codex_gets_the_short_form_with_the_shifted_key() -> None:
    """Codex pushes flags 7. Only presses are sent, so their kind is left out, as kitty does."""
    assert encode("up", CODEX) == b"\x1b[A"
    assert encode("ctrl+up", CODEX) == b"\x1b[1;5A"
    assert encode("alt+X", CODEX) == b"\x1b[120:88;4u"


def test_every_listed_key_can_be_encoded() -> None:
    for name in NAMES:
        for modes in (LEGACY, APPLICATION, KITTY, CODEX, OTHER):
            assert encode(name, modes)


@for_each("name", ["", "+", "hyper+x", "foo", "\x1b", "ctrl+", "ab", "x" * 100])
def test_an_unknown_key_is_an_error(name: str) -> None:
    if name == "+":
        assert encode(name, LEGACY) == b"+"
        return
    with pytest.raises(UnknownKey, match="is not a key: use enter, tab"):
        encode(name, LEGACY)


def test_keys_that_stop_the_program_are_refused() -> None:
    for modes in (LEGACY, KITTY, OTHER):
        for name in ("ctrl+z", "ctrl+\\", "Ctrl+Z"):
            with pytest.raises(UnknownKey, match="are refused: they would stop"):
                encode(name, modes)
    for values in ([0x1A], [65, 0x1C], b"\x1b[122;133:1u"):
        with pytest.raises(UnknownKey, match="are refused"):
            raw(values)
    with pytest.raises(UnknownKey, match="from 0 to 255"):
        raw([256])
    assert raw([27, 91, 65]) == b"\x1b[A"
