"""Output that means harm, and output that means nothing: frames stay clean, memory bounded."""

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
def test_hostile_output_reaches_nobody(name: str) -> None:
    """Nothing that controls is in a frame, a title or what is said, and no word is answered."""
    screen = Screen(40, 8)
    screen._clock = iter(range(10_000)).__next__  # what is held back is shown, too
    answers = b""
    for byte in range(0, len(ESCAPES[name]), 7):
        answers += screen.feed(ESCAPES[name][byte : byte + 7])
    screen.feed(b"\x1b\\\x18 after")
    screen.frame(None)
    seen = strings([screen.frame(None), screen.history(0, 50), screen.said, screen.title])

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
    restored = Screen.restored(screen.picture(), 40, 8)
    restored._clock = iter(range(10_000)).__next__
    restored.frame(None)
    assert restored.text() == screen.text()


def run(work: str) -> dict[str, float]:
    """Do it in a process of its own, where a crash of the library is seen; return what it says."""
    argv = [sys.executable, "-m", "tests.support.noise", work, str(RECORDINGS)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, float] = json.loads(done.stdout)
    return said


def test_what_has_no_end_takes_no_memory() -> None:
    """Sequences of each kind that never end, a line that doesn't, floods of links and styles."""
    # A screen of 1,000 rows that all have links and styles of their own takes 4 MB by itself.
    assert run("flood")["mb"] < 10


def test_noise_never_crashes_it() -> None:
    """Random bytes, sequences and sizes, recordings with bytes changed; pictures in between."""
    assert run("noise")["fed"] > 300_000
