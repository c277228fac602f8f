"""Screens of terminals: `python -m tests.bench.screens`."""

import re
import statistics
import sys
import time
from pathlib import Path

import orjson

from remoteclaw.tty.screen import Screen, warm_up
from tests.bench.load import Figure

RECORDINGS = sorted((Path(__file__).parents[1] / "tty" / "recordings").glob("*.raw"))
COLS, ROWS = 120, 32


def bench_screens(rounds: int = 20) -> list[Figure]:
    """Measure parsing, frames, snapshots and memory with the output of real programs."""
    warm_up()
    figures = []
    for file in RECORDINGS:
        data = file.read_bytes()
        took, times, sizes = 0.0, [], []
        for _ in range(rounds):
            screen = Screen(COLS, ROWS)
            start = time.perf_counter()
            screen.feed(data)
            took += time.perf_counter() - start
            screen.close()
        screen, revision = Screen(COLS, ROWS), None
        for part in re.findall(rb".{1,400}", data, re.DOTALL):
            screen.feed(part)
            start = time.perf_counter()
            frame = screen.frame(revision)
            if frame is not None:
                times.append(time.perf_counter() - start)
                revision = frame["revision"]
                sizes.append(len(orjson.dumps(frame)))
        start = time.perf_counter()
        snapshot = screen.snapshot()
        snapshot_s = time.perf_counter() - start
        name = file.stem
        figures += [
            Figure(f"{name}: parsed", len(data) * rounds / took / 1e6, "MB/s", "≥ 10"),
            Figure(f"{name}: a frame", statistics.median(times) * 1000, "ms", "≤ 2"),
            Figure(f"{name}: the slowest frame", max(times) * 1000, "ms", "≤ 10"),
            Figure(f"{name}: a frame's size", statistics.median(sizes) / 1000, "KB", "≤ 8"),
            Figure(f"{name}: a snapshot", snapshot_s * 1000, "ms", "≤ 10"),
            Figure(f"{name}: a snapshot's size", len(snapshot) / 1000, "KB", "≤ 208"),
        ]
    figures.append(Figure("a terminal with full scrollback", _memory_mb(), "MB", "≤ 1.5"))
    return figures


def _memory_mb(count: int = 20) -> float:
    """Return the memory of one of many terminals, with a thousand full lines of scrollback."""
    before = _resident()
    screens = [Screen(COLS, ROWS) for _ in range(count)]
    for screen in screens:
        for row in range(1000):
            screen.feed(b"\x1b[3%dm%4d %s\x1b[m\r\n" % (row % 8, row, b"words " * 18))
        screen.frame(None)
    return (_resident() - before) / count


def _resident() -> float:
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(map(int, re.findall(r"^Rss:\s+(\d+)", text, re.MULTILINE))) / 1024


if __name__ == "__main__":
    for figure in bench_screens():
        sys.stdout.write(f"{figure.name:36} {figure.value:8.2f} {figure.unit:5} {figure.goal}\n")
