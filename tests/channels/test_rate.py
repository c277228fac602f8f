"""The limit of a person's messages in a minute."""

from dataclasses import replace

import pytest

from remoteclaw.channels import rate
from remoteclaw.channels.rate import MOST, Rate
from remoteclaw.protocols import Incoming

FIRST = Incoming(id="0", chat="c", sender="bo", at_ms=600_000, text="hi")


def exceeded(counting: Rate, begin: int, end: int, *, at_ms: int = 600_000) -> list[int | None]:
    several = (replace(FIRST, id=str(number), at_ms=at_ms) for number in range(begin, end))
    return [counting.exceeded(one) for one in several]


def test_a_message_that_is_taken_again_counts_once() -> None:
    counting = Rate()

    assert exceeded(counting, 0, MOST) + exceeded(counting, 0, MOST) == [None] * 2 * MOST
    assert exceeded(counting, MOST, MOST + 2) == [10, 10]
    assert exceeded(counting, 0, 1) == [None]


def test_what_has_waited_for_the_process_is_no_burst() -> None:
    counting = Rate()
    several = [exceeded(counting, n * MOST, (n + 1) * MOST, at_ms=n * 60_000) for n in range(3)]

    assert several == [[None] * MOST] * 3
    # A time before the others' begins no minute anew.
    assert exceeded(counting, 900, 901, at_ms=0) == [2]


def test_only_so_many_people_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "MAX_KNOWN", 3)
    counting = Rate()
    exceeded(counting, 0, MOST)
    for name in ("a", "b", "d"):
        assert counting.exceeded(replace(FIRST, sender=name)) is None

    assert exceeded(counting, MOST, MOST + 1) == [None]
    assert len(counting._windows) == 3
