"""What only adorns a message must not cost it: it is mended or dropped."""

import pytest

from remoteclaw.messages import MAX_NAME_CHARS, MAX_TIMESTAMP_MS
from tests.support.stack import Stack, message


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("Alice", "Alice"),
        ("Zoë 🦀", "Zoë 🦀"),
        ("a\ud800b", "a?b"),
        ("a\x1b[2J\nb\x85", "a[2Jb"),
        (" \n", None),
        ("x" * 5_000_000, "x" * MAX_NAME_CHARS),
        (7, None),
        (None, None),
    ],
)
def test_a_name(name: object, kept: str | None) -> None:
    assert message("hi", user_name=name).user_name == kept


@pytest.mark.parametrize(
    ("zone", "kept"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        ("UTC", "UTC"),
        ("Mars/Olympus", None),
        ("Europe", None),  # a directory
        ("../etc/passwd", None),
        ("a\ud800b", None),
        ("\0", None),
        ("", None),
        ("x" * 5_000_000, None),
        (7, None),
    ],
)
def test_a_time_zone(zone: object, kept: str | None) -> None:
    assert message("hi", timezone=zone).timezone == kept


@pytest.mark.parametrize(
    ("at", "kept"), [(10**30, MAX_TIMESTAMP_MS), (-(10**30), 0), (1_795_000_000_000,) * 2]
)
def test_a_time(at: int, kept: int) -> None:
    assert message("hi", timestamp=at).timestamp == kept


async def test_a_message_full_of_nonsense_is_answered(stack: Stack) -> None:
    await stack.start_worker()

    reply = await stack.ask(
        "hello", user_name="a\ud800b" * 1000, timezone="\ud800", timestamp=10**30
    )

    assert "RemoteClaw's demo agent" in reply
