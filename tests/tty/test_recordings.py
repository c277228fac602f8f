"""Recorded output of the agents' own programs, read whole and in pieces."""

import random
import re
from pathlib import Path

import pyte
import pytest

from remoteclaw.tty.frames import Frame, apply_frame
from remoteclaw.tty.screen import Screen
from tests.support.recorded import COLS, RECORDINGS, ROWS, pieces

pytest.importorskip("pyghostty")


def state(screen: Screen) -> Frame:
    """Return all that a viewer sees, without the number of the revision."""
    frame = screen.frame(None)
    assert frame is not None
    return {**frame, "revision": 0}


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda file: file.stem)
@pytest.mark.thorough("1", "2")
@pytest.mark.parametrize("seed", range(3))
def test_the_screen_is_the_same_however_the_output_is_split(recording: Path, seed: int) -> None:
    """Whole, in pieces, restored from snapshots, and for a viewer that gets the differences."""
    data = recording.read_bytes()
    whole, split = Screen(COLS, ROWS), Screen(COLS, ROWS)
    answers = whole.feed(data)
    generator = random.Random(seed)
    copy: Frame | None = None
    split_answers = b""
    for piece in pieces(data, generator, 150):
        split_answers += split.feed(piece)
        if generator.random() < 0.2:
            before = split
            split = Screen.restored(before.snapshot(), COLS, ROWS)
            before.close()
        frame = split.frame(copy["revision"] if copy else None)
        if frame is not None:
            copy = apply_frame(copy, frame)
            assert copy == split.frame(None)

    assert copy is not None
    assert {**copy, "revision": 0} == state(split) == state(whole)
    assert split.history(0, 2000) == whole.history(0, 2000)
    assert split_answers == answers


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda file: file.stem)
def test_another_emulator_shows_the_same_rows(recording: Path) -> None:
    """Pyte does not know private keyboard sequences and the alternate screen."""
    data = recording.read_bytes()
    other = pyte.Screen(COLS, ROWS)
    stream = pyte.ByteStream(other)
    screen = Screen(COLS, ROWS)
    for part in re.split(rb"(?<=\x1b\[\?2026l)", data):
        screen.feed(part)
        stream.feed(re.sub(rb"\x1b\[[>=<][\d;?]*[a-z]|\x1b[P_][^\x1b]*\x1b\\", b"", part))

        assert screen.text().split("\n") == [row.rstrip(" ") for row in other.display]


def test_a_frame_contains_only_changed_rows() -> None:
    """A viewer of a busy program gets some rows a frame, not all of them."""
    screen = Screen(COLS, ROWS)
    revision, rows, frames = None, 0, 0
    codex = RECORDINGS[1].read_bytes()
    for part in re.split(rb"(?<=\x1b\[\?2026l)", codex):
        screen.feed(part)
        frame = screen.frame(revision)
        if frame is not None:
            revision, rows, frames = frame["revision"], rows + len(frame["lines"]), frames + 1

    assert frames > 30
    assert rows < frames * ROWS / 3


def test_there_is_a_recording_of_each_program() -> None:
    assert [file.stem for file in RECORDINGS] == ["claude", "codex", "gemini", "opencode"]
    for file in RECORDINGS:
        data = file.read_bytes()
        assert len(data) <= 60_000
        assert not re.search(rb"nobody's key|/(work|root|Users)/|127\.0\.0\.1", data)
