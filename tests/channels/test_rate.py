"""The limit of a person's messages in a minute."""

from dataclasses import replace

import pytest

from remoteclaw.channels import rate
from remoteclaw.channels.rate import MAX_PER_MINUTE, RateLimiter
from remoteclaw.protocols import Incoming

FIRST = Incoming(id="0", chat="c", sender="bo", at_ms=600_000, text="hi")


def exceeded(
    limiter: RateLimiter, begin: int, end: int, *, at_ms: int = 600_000
) -> list[int | None]:
    messages = (replace(FIRST, id=str(number), at_ms=at_ms) for number in range(begin, end))
    return [limiter.count(message) for message in messages]


def test_a_repeated_message_counts_once_towards_the_rate_limit() -> None:
    limiter = RateLimiter()

    assert (
        exceeded(limiter, 0, MAX_PER_MINUTE) + exceeded(limiter, 0, MAX_PER_MINUTE)
        == [None] * 2 * MAX_PER_MINUTE
    )
    assert exceeded(limiter, MAX_PER_MINUTE, MAX_PER_MINUTE + 2) == [10, 10]
    assert exceeded(limiter, 0, 1) == [None]


def test_the_rate_limit_counts_by_when_messages_were_written() -> None:
    limiter = RateLimiter()
    minutes = [
        exceeded(limiter, n * MAX_PER_MINUTE, (n + 1) * MAX_PER_MINUTE, at_ms=n * 60_000)
        for n in range(3)
    ]

    assert minutes == [[None] * MAX_PER_MINUTE] * 3
    # An earlier timestamp doesn't start a new minute.
    assert exceeded(limiter, 900, 901, at_ms=0) == [2]


def test_the_rate_limiter_remembers_a_bounded_number_of_senders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate, "MAX_KNOWN", 3)
    limiter = RateLimiter()
    exceeded(limiter, 0, MAX_PER_MINUTE)
    for name in ("a", "b", "d"):
        assert limiter.count(replace(FIRST, sender=name)) is None

    assert exceeded(limiter, MAX_PER_MINUTE, MAX_PER_MINUTE + 1) == [None]
    assert len(limiter._messages._newest) == 3
