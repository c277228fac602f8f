"""Durations, as people read them."""

import pytest

from remoteclaw.clock import format_exact_duration


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        *((0, "0 s"), (412, "0.4 s"), (9_960, "10 s"), (48_400, "48 s"), (59_700, "1 min")),
        *((167_600, "2 min 48 s"), (3_599_400, "59 min 59 s"), (3_600_000, "1 h")),
        (11_580_000, "3 h 13 min"),
    ],
)
def test_a_duration_has_two_units_at_most(milliseconds: int, text: str) -> None:
    assert format_exact_duration(milliseconds) == text
