"""What the person's terminal sends, as keys and text: the same however it is cut."""

import random

import pytest

from remoteclaw.attach.keys import MAX_PASTED, Key, Keyboard, Paste, Text, Typed
from tests.support.far import HOSTILE_INPUT
from tests.support.rows import for_each

KEYS = {
    b"a": "a",
    "äö €".encode(): "äö €",
    b"\r": "<enter>",
    b"\t\x1b[Z": "<tab><shift+tab>",
    b"\x7f\x08\x00\x03\x1f": "<backspace><ctrl+h><ctrl+space><ctrl+c><ctrl+_>",
    b"\x1d": "<ctrl+]>",
    b"\x1b[93;5u": "<ctrl+]>",
    b"\x1b[27;5;93~": "<ctrl+]>",
    b"\x1bx\x1b\r\x1b\x7f\x1b\x01": "<alt+x><alt+enter><alt+backspace><ctrl+alt+a>",
    "\x1bä".encode(): "<alt+ä>",
    b"\x1b[A\x1bOB\x1b[1;5C\x1b[1;4D": "<up><down><ctrl+right><alt+shift+left>",
    b"\x1b[H\x1bOF\x1b[1~\x1b[8~\x1b[5;2~": "<home><end><home><end><shift+pageup>",
    b"\x1bOP\x1b[R\x1b[15~\x1b[24;5~\x1b[1;2S\x1b[[B": "<f1><f3><f5><ctrl+f12><shift+f4><f2>",
    b"\x1b[13;2u\x1b[27;2;13~\x1b[27u\x1b[9;2u": "<shift+enter><shift+enter><esc><shift+tab>",
    b"\x1b[97;5u\x1b[122;5:1u\x1b[97;3u": "<ctrl+a><ctrl+z><alt+a>",
    b"\x1b[97:65;2u\x1b[49:33;2u\x1b[97;65u\x1b[32u": "A!a ",
    b"\x1b[127;129u\x1b[3;69~": "<backspace><ctrl+delete>",
    b"\x1b[57400u\x1b[57414u\x1b[57419;2u\x1bOp\x1bOM": "1<enter><shift+up>0<enter>",
    b"\x1b[200~a\r\nb\x1b[A\x1b[201~c": "{a\r\nb\x1b[A}c",
}


def shown(typed: list[Typed]) -> str:
    """Return what was typed as a text."""
    words = []
    for one in typed:
        match one:
            case Key(name):
                words.append(f"<{name}>")
            case Text(text):
                words.append(text)
            case Paste(pasted):
                words.append(f"{{{pasted}}}")
    return "".join(words)


@for_each("data", KEYS)
def test_keys_have_names_whole_and_byte_by_byte(data: bytes) -> None:
    whole, single = Keyboard(), Keyboard()

    assert shown(whole.feed(data)) == KEYS[data]
    assert shown([one for byte in data for one in single.feed(bytes([byte]))]) == KEYS[data]
    assert single.doubt_s is None


@for_each("data", HOSTILE_INPUT)
def test_what_nobody_has_typed_is_dropped_and_what_follows_is_typed(data: bytes) -> None:
    whole, single = Keyboard(), Keyboard()

    assert shown(whole.feed(data + b"ok\r")) == "ok<enter>"
    assert shown([one for byte in data + b"ok\r" for one in single.feed(bytes([byte]))]) == (
        "ok<enter>"
    )


@pytest.mark.parametrize("data", [b"\x1b[1;", b"\x1bO", b"\x1bP>|xterm", b"\x1b]0;t", b"\xe2\x82"])
def test_half_of_something_is_dropped_after_a_pause(data: bytes) -> None:
    keyboard = Keyboard()

    assert keyboard.feed(data) == []
    assert keyboard.doubt_s == 1.0
    assert keyboard.pause() == []
    assert keyboard.feed(b"ls") == [Text("ls")]


def test_an_esc_alone_is_one_after_a_moment() -> None:
    keyboard = Keyboard()

    assert keyboard.feed(b"\x1b") == []
    assert keyboard.doubt_s == 0.05
    assert keyboard.pause() == [Key("esc")]
    assert keyboard.pause() == []
    assert keyboard.feed(b"\x1b\x1b[A") == [Key("esc"), Key("up")]


def test_a_paste_waits_for_its_end_however_long_it_takes() -> None:
    keyboard = Keyboard()

    assert keyboard.feed(b"\x1b[200~rm -rf\r\x1b[20") == []
    assert keyboard.doubt_s is None
    assert keyboard.pause() == []
    assert keyboard.feed(b"1~") == [Paste("rm -rf\r")]


def test_a_paste_that_is_too_large_is_none_and_nothing_of_it_is_typed() -> None:
    keyboard = Keyboard()
    typed = keyboard.feed(b"\x1b[200~")
    for _ in range(MAX_PASTED // 4000 + 2):
        typed += keyboard.feed(b"x" * 3999 + b"\r")
    typed += keyboard.feed(b"\x1b[201~a")

    assert typed == [Paste(None), Text("a")]


def test_nothing_that_a_terminal_sends_is_typed_as_a_control_character() -> None:
    chance = random.Random(22)
    pieces = [*KEYS, *HOSTILE_INPUT, b"\x1b", b"\x1b[", b"\x1bP", b"\x18", b"\xff", b"\x1b[200"]
    for _ in range(300):
        keyboard = Keyboard()
        data = b"".join(chance.choices(pieces, k=8))
        typed = []
        while data:
            cut = chance.randint(1, 6)
            typed += keyboard.feed(data[:cut])
            typed += keyboard.pause() if chance.random() < 0.1 else []
            data = data[cut:]

        for one in typed:
            assert (
                isinstance(one, Paste)
                or (one.name if isinstance(one, Key) else one.text).isprintable()
            ), one
