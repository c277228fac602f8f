"""Input of the person's terminal, read as keys and text, however it is split."""

import random

import pytest

from remoteclaw.attach.keys import MAX_PASTE_BYTES, Key, KeyReader, Paste, TypedText, UserInput
from tests.support.remote import HOSTILE_INPUT
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


def shown(typed: list[UserInput]) -> str:
    """Format user input as one text."""
    parts = []
    for one in typed:
        match one:
            case Key(name):
                parts.append(f"<{name}>")
            case TypedText(text):
                parts.append(text)
            case Paste(pasted):
                parts.append(f"{{{pasted}}}")
    return "".join(parts)


@for_each("data", KEYS)
def test_keys_are_recognized_whole_and_byte_by_byte(data: bytes) -> None:
    whole, single = KeyReader(), KeyReader()

    assert shown(whole.feed(data)) == KEYS[data]
    assert shown([one for byte in data for one in single.feed(bytes([byte]))]) == KEYS[data]
    assert single.timeout_s is None


@for_each("data", HOSTILE_INPUT)
def test_sequences_that_nobody_typed_are_dropped_and_later_keys_are_kept(data: bytes) -> None:
    whole, single = KeyReader(), KeyReader()

    assert shown(whole.feed(data + b"ok\r")) == "ok<enter>"
    assert shown([one for byte in data + b"ok\r" for one in single.feed(bytes([byte]))]) == (
        "ok<enter>"
    )


@pytest.mark.parametrize("data", [b"\x1b[1;", b"\x1bO", b"\x1bP>|xterm", b"\x1b]0;t", b"\xe2\x82"])
def test_an_incomplete_sequence_is_dropped_after_a_pause(data: bytes) -> None:
    reader = KeyReader()

    assert reader.feed(data) == []
    assert reader.timeout_s == 1.0
    assert reader.expire() == []
    assert reader.feed(b"ls") == [TypedText("ls")]


def test_a_single_esc_is_recognized_after_a_moment() -> None:
    reader = KeyReader()

    assert reader.feed(b"\x1b") == []
    assert reader.timeout_s == 0.05
    assert reader.expire() == [Key("esc")]
    assert reader.expire() == []
    assert reader.feed(b"\x1b\x1b[A") == [Key("esc"), Key("up")]


def test_a_paste_waits_for_its_end_however_long_it_takes() -> None:
    reader = KeyReader()

    assert reader.feed(b"\x1b[200~rm -rf\r\x1b[20") == []
    assert reader.timeout_s is None
    assert reader.expire() == []
    assert reader.feed(b"1~") == [Paste("rm -rf\r")]


def test_an_oversized_paste_is_refused_and_none_of_it_is_typed() -> None:
    reader = KeyReader()
    typed = reader.feed(b"\x1b[200~")
    for _ in range(MAX_PASTE_BYTES // 4000 + 2):
        typed += reader.feed(b"x" * 3999 + b"\r")
    typed += reader.feed(b"\x1b[201~a")

    assert typed == [Paste(None), TypedText("a")]


def test_no_input_is_typed_as_a_control_character() -> None:
    chance = random.Random(22)
    pieces = [*KEYS, *HOSTILE_INPUT, b"\x1b", b"\x1b[", b"\x1bP", b"\x18", b"\xff", b"\x1b[200"]
    for _ in range(300):
        reader = KeyReader()
        data = b"".join(chance.choices(pieces, k=8))
        typed = []
        while data:
            cut = chance.randint(1, 6)
            typed += reader.feed(data[:cut])
            typed += reader.expire() if chance.random() < 0.1 else []
            data = data[cut:]

        for one in typed:
            assert (
                isinstance(one, Paste)
                or (one.name if isinstance(one, Key) else one.text).isprintable()
            ), one
