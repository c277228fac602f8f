"""The pacing of viewers: each gets the differences at its own rate."""

import itertools
from typing import Any

import pytest

from remoteclaw.tty.pacing import CROWD, GATHER_S, TYPING_S, WATCHING_S, FramePacer, PacedViewer


class Counter:
    """A screen that is only a revision number, and counts its calls."""

    frame_calls = revision_reads = 0
    _revision = 0

    @property
    def revision(self) -> int:
        self.revision_reads += 1
        return self._revision

    @revision.setter
    def revision(self, revision: int) -> None:
        self._revision = revision

    def frame(self, since: int | None) -> dict[str, Any] | None:
        self.frame_calls += 1
        return None if since == self._revision else {"since": since, "revision": self._revision}


def test_a_flood_of_changes_is_a_few_frames_that_end_with_the_last_screen() -> None:
    screen = Counter()
    pacer = FramePacer(screen)
    typing: list[dict[str, Any]] = []
    watching: list[dict[str, Any]] = []
    pacer.join(PacedViewer(typing.append, is_typing=True), 0.0)
    pacer.join(PacedViewer(watching.append), 0.0)
    now = 1.0
    for _ in range(10_000):  # a second of a thousand changes
        now += 0.0001
        screen.revision += 1
        pacer.send_due(now)
    while (wait_s := pacer.send_due(now)) is not None:
        now += wait_s

    assert 25 <= len(typing) <= 1 / TYPING_S + 3
    assert 8 <= len(watching) <= 1 / WATCHING_S + 3
    assert screen.frame_calls <= len(typing) + len(watching)
    for frames in (typing, watching):
        assert frames[0] == {"since": None, "revision": 0}
        for before, after in itertools.pairwise(frames):
            assert after["since"] == before["revision"]
        assert frames[-1]["revision"] == 10_000


def test_many_viewers_get_half_as_many_frames_except_the_typing_one() -> None:
    screen = Counter()
    pacer = FramePacer(screen)
    typing: list[dict[str, Any]] = []
    watching: list[dict[str, Any]] = []
    pacer.join(PacedViewer(typing.append, is_typing=True), 0.0)
    for _ in range(CROWD):
        pacer.join(PacedViewer(watching.append), 0.0)
    now = 1.0
    for _ in range(1000):  # a second
        now += 0.001
        screen.revision += 1
        pacer.send_due(now)

    assert 25 <= len(typing) <= 1 / TYPING_S + 3
    assert 4 * CROWD <= len(watching) <= (0.5 / WATCHING_S + 3) * CROWD


def test_a_change_reaches_the_typing_viewer_at_once_and_others_a_moment_later() -> None:
    screen = Counter()
    pacer = FramePacer(screen)
    typing: list[dict[str, Any]] = []
    watching: list[dict[str, Any]] = []
    pacer.join(PacedViewer(typing.append, is_typing=True), 0.0)
    pacer.join(PacedViewer(watching.append), 0.0)

    screen.revision += 1
    assert pacer.send_due(10.0) == pytest.approx(GATHER_S)
    assert (len(typing), len(watching)) == (2, 1)
    pacer.send_due(10.0 + GATHER_S)
    assert (len(typing), len(watching)) == (2, 2)
    assert pacer.send_due(20.0) is None


def test_a_slow_viewer_is_skipped_and_gets_the_differences_later() -> None:
    screen = Counter()
    pacer = FramePacer(screen)
    frames: list[dict[str, Any]] = []
    is_slow = False
    pacer.join(PacedViewer(frames.append, is_slow=lambda: is_slow, is_typing=True), 0.0)

    is_slow = True
    for _ in range(5):
        screen.revision += 1
        assert pacer.send_due(10.0 + screen.revision)
    is_slow = False
    pacer.send_due(20.0)

    assert frames[1:] == [{"since": 0, "revision": 5}]


def test_viewers_of_the_same_revision_share_one_frame() -> None:
    screen = Counter()
    pacer = FramePacer(screen)
    seen: list[dict[str, Any]] = []
    for _ in range(50):
        pacer.join(PacedViewer(seen.append, is_typing=True), 0.0)
    screen.frame_calls = screen.revision_reads = 0

    screen._revision = 1
    pacer.send_due(10.0)

    assert (len(seen), screen.frame_calls, screen.revision_reads) == (100, 1, 1)
