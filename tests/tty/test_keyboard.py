"""The keyboard of a terminal: one person types at a time."""

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.tty.keyboard import AWAY_S, Keyboard, Typist

ADA = Typist("Ada", "tokens/1", 1)
ADA_AGAIN = Typist("Ada", "tokens/1", 2)
ADA_BY_HTTP = Typist("Ada", "tokens/1")
BEN = Typist("Ben", "tokens/2", 3)


def test_one_person_types_and_another_one_is_refused_with_the_name() -> None:
    keyboard = Keyboard()
    keyboard.check(BEN, now=0)  # nobody has the keyboard, so anybody may press a key
    keyboard.take(ADA, now=0)

    with pytest.raises(CallRefused, match="Ada has the keyboard: take it") as refused:
        keyboard.take(BEN, now=1000)
    assert refused.value.code == "CONFLICT"
    with pytest.raises(CallRefused, match="Ada has the keyboard"):
        keyboard.check(ADA_AGAIN, now=1)  # her second window is another connection
    keyboard.check(ADA_BY_HTTP, now=1)

    keyboard.take(BEN, now=2, force=True)
    assert keyboard.name == "Ben"
    with pytest.raises(CallRefused, match="Ben has the keyboard"):
        keyboard.check(ADA, now=2)


def test_a_disconnected_person_keeps_the_keyboard_for_a_moment() -> None:
    keyboard = Keyboard()
    keyboard.take(ADA, now=0)
    keyboard.note_disconnect(1, now=100)

    with pytest.raises(CallRefused, match="Ada has the keyboard"):
        keyboard.take(BEN, now=100 + AWAY_S / 2)
    keyboard.take(ADA_AGAIN, now=100 + AWAY_S / 2)
    keyboard.note_disconnect(1, now=101)  # her earlier connection
    keyboard.check(ADA_AGAIN, now=1000)

    keyboard.note_disconnect(2, now=1000)
    keyboard.take(BEN, now=1000 + AWAY_S)
    keyboard.note_disconnect(3, now=2000, for_good=True)
    assert keyboard.name == ""


def test_without_a_connection_typing_keeps_the_keyboard() -> None:
    keyboard = Keyboard()
    keyboard.take(ADA_BY_HTTP, now=0)
    keyboard.note_use(ADA_BY_HTTP, now=AWAY_S - 1)

    with pytest.raises(CallRefused, match="Ada has the keyboard"):
        keyboard.check(BEN, now=AWAY_S + 1)
    keyboard.check(BEN, now=3 * AWAY_S)
