"""Viewers get what differs, in their own time."""

import itertools
from typing import Any

import pytest

from remoteclaw.tty.pacing import CROWD, GATHER_S, TYPING_S, WATCHING_S, Viewer, Viewers


class Counter:
    """A screen of one number, which counts what it is asked."""

    asked = looked = 0
    _revision = 0

    @property
    def revision(self) -> int:
        self.looked += 1
        return self._revision

    @revision.setter
    def revision(self, revision: int) -> None:
        self._revision = revision

    def frame(self, since: int | None) -> dict[str, Any] | None:
        self.asked += 1
        return None if since == self._revision else {"since": since, "revision": self._revision}


def test_a_flood_is_a_few_frames_and_ends_with_the_last_screen() -> None:
    screen = Counter()
    viewers = Viewers(screen)
    typing: list[dict[str, Any]] = []
    watching: list[dict[str, Any]] = []
    viewers.join(Viewer(typing.append, is_typing=True), 0.0)
    viewers.join(Viewer(watching.append), 0.0)
    now = 1.0
    for _ in range(10_000):  # a second of a thousand changes
        now += 0.0001
        screen.revision += 1
        viewers.send(now)
    while (wait_s := viewers.send(now)) is not None:
        now += wait_s

    assert 25 <= len(typing) <= 1 / TYPING_S + 3
    assert 8 <= len(watching) <= 1 / WATCHING_S + 3
    assert screen.asked <= len(typing) + len(watching)
    for frames in (typing, watching):
        assert frames[0] == {"since": None, "revision": 0}
        for before, after in itertools.pairwise(frames):
            assert after["since"] == before["revision"]
        assert frames[-1]["revision"] == 10_000


def test_each_of_a_crowd_is_told_half_as_often_and_who_types_is_not() -> None:
    screen = Counter()
    viewers = Viewers(screen)
    typing: list[dict[str, Any]] = []
    watching: list[dict[str, Any]] = []
    viewers.join(Viewer(typing.append, is_typing=True), 0.0)
    for _ in range(CROWD):
        viewers.join(Viewer(watching.append), 0.0)
    now = 1.0
    for _ in range(1000):  # a second
        now += 0.001
        screen.revision += 1
        viewers.send(now)

    assert 25 <= len(typing) <= 1 / TYPING_S + 3
    assert 4 * CROWD <= len(watching) <= (0.5 / WATCHING_S + 3) * CROWD


def test_a_key_is_seen_at_once_and_by_others_a_moment_later() -> None:
    screen = Counter()
    viewers = Viewers(screen)
    typing: list[dict[str, Any]] = []
    watching: list[dict[str, Any]] = []
    viewers.join(Viewer(typing.append, is_typing=True), 0.0)
    viewers.join(Viewer(watching.append), 0.0)

    screen.revision += 1
    assert viewers.send(10.0) == pytest.approx(GATHER_S)
    assert (len(typing), len(watching)) == (2, 1)
    viewers.send(10.0 + GATHER_S)
    assert (len(typing), len(watching)) == (2, 2)
    assert viewers.send(20.0) is None


def test_who_reads_slowly_is_left_out_and_gets_what_differs_later() -> None:
    screen = Counter()
    viewers = Viewers(screen)
    frames: list[dict[str, Any]] = []
    is_slow = False
    viewers.join(Viewer(frames.append, is_slow=lambda: is_slow, is_typing=True), 0.0)

    is_slow = True
    for _ in range(5):
        screen.revision += 1
        assert viewers.send(10.0 + screen.revision)
    is_slow = False
    viewers.send(20.0)

    assert frames[1:] == [{"since": 0, "revision": 5}]


def test_many_who_see_the_same_cost_one_look_and_one_frame() -> None:
    screen = Counter()
    viewers = Viewers(screen)
    seen: list[dict[str, Any]] = []
    for _ in range(50):
        viewers.join(Viewer(seen.append, is_typing=True), 0.0)
    screen.asked = screen.looked = 0

    screen._revision = 1
    viewers.send(10.0)

    assert (len(seen), screen.asked, screen.looked) == (100, 1, 1)
