"""One types at a time."""

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.tty.keyboard import AWAY_S, Keyboard, Typist

ADA = Typist("Ada", "tokens/1", 1)
ADA_AGAIN = Typist("Ada", "tokens/1", 2)
ADA_BY_HTTP = Typist("Ada", "tokens/1")
BEN = Typist("Ben", "tokens/2", 3)


def test_one_types_and_another_is_told_who_it_is() -> None:
    keyboard = Keyboard()
    keyboard.check(BEN, now=0)  # nobody types: a key needs no keyboard
    keyboard.take(ADA, now=0)

    with pytest.raises(CallRefused, match="Ada has the keyboard: take it") as refused:
        keyboard.take(BEN, now=1000)
    assert refused.value.code == "CONFLICT"
    with pytest.raises(CallRefused, match="Ada has the keyboard"):
        keyboard.check(ADA_AGAIN, now=1)  # a second window of hers is another one
    keyboard.check(ADA_BY_HTTP, now=1)

    keyboard.take(BEN, now=2, force=True)
    assert keyboard.name == "Ben"
    with pytest.raises(CallRefused, match="Ben has the keyboard"):
        keyboard.check(ADA, now=2)


def test_who_is_gone_keeps_it_for_a_moment_and_finds_it_again() -> None:
    keyboard = Keyboard()
    keyboard.take(ADA, now=0)
    keyboard.left(1, now=100)

    with pytest.raises(CallRefused, match="Ada has the keyboard"):
        keyboard.take(BEN, now=100 + AWAY_S / 2)
    keyboard.take(ADA_AGAIN, now=100 + AWAY_S / 2)
    keyboard.left(1, now=101)  # the one that she has no more
    keyboard.check(ADA_AGAIN, now=1000)

    keyboard.left(2, now=1000)
    keyboard.take(BEN, now=1000 + AWAY_S)
    keyboard.left(3, now=2000, for_good=True)
    assert keyboard.name == ""


def test_without_a_connection_it_is_held_by_typing() -> None:
    keyboard = Keyboard()
    keyboard.take(ADA_BY_HTTP, now=0)
    keyboard.used(ADA_BY_HTTP, now=AWAY_S - 1)

    with pytest.raises(CallRefused, match="Ada has the keyboard"):
        keyboard.check(BEN, now=AWAY_S + 1)
    keyboard.check(BEN, now=3 * AWAY_S)
