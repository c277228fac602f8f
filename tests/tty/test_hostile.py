"""Hostile and random output: frames stay clean, and memory stays bounded."""

import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from remoteclaw.tty.screen import Screen
from tests.support.escapes import ESCAPES

pytest.importorskip("pyghostty")

RECORDINGS = Path(__file__).parent / "recordings"

UNWANTED = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in (*value, *value.values()) for text in strings(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in strings(item)]
    return []


@pytest.mark.parametrize("name", ESCAPES)
def test_hostile_output_puts_no_control_characters_into_frames(name: str) -> None:
    """Nor into titles and events. No answer to the program contains its own text."""
    screen = Screen(40, 8)
    screen._clock = iter(range(10_000)).__next__  # held-back output is shown, too
    answers = b""
    for byte in range(0, len(ESCAPES[name]), 7):
        answers += screen.feed(ESCAPES[name][byte : byte + 7])
    screen.feed(b"\x1b\\\x18 after")
    screen.frame(None)
    seen = strings(
        [screen.frame(None), screen.history(0, 50), screen.take_osc_events(), screen.title]
    )

    found = {
        character
        for text in seen
        for character in text
        if unicodedata.category(character) in UNWANTED and character != "\u200d"
    }
    assert found == set()
    assert all(text.startswith("https://a/") for text in seen if ":/" in text)
    assert len(screen.title) <= 200
    assert max(map(len, seen)) <= 4096
    for word in (b"rm", b"clip", b"hi", b"<"):
        assert word not in answers
    restored = Screen.restored(screen.snapshot(), 40, 8)
    restored._clock = iter(range(10_000)).__next__
    restored.frame(None)
    assert restored.text() == screen.text()


def run(work: str) -> dict[str, float]:
    """Run `tests.support.noise` in a process, so that a crash is noticed; return its result."""
    argv = [sys.executable, "-m", "tests.support.noise", work, str(RECORDINGS)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, float] = json.loads(done.stdout)
    return result


def test_endless_output_takes_a_bounded_amount_of_memory() -> None:
    """Sequences of each kind without an end, an endless line, floods of links and styles."""
    # A screen of 1,000 rows with different links and styles takes 4 MB by itself.
    assert run("flood")["mb"] < 10


def test_random_output_never_crashes_the_emulator() -> None:
    """Random bytes, sequences and sizes, recordings with changed bytes; snapshots in between."""
    assert run("noise")["fed"] > 300_000
