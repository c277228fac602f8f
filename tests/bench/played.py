"""A program for terminals with known output: it echoes keys, plays a recording, or floods.

It reports its state like codex, and is idle at once. It is started by its path, in any directory;
its first argument is the recording.
"""

import itertools
import os
import re
import select
import sys
import time
import tty
from pathlib import Path

#: The time between two frames of a recording, in seconds: that of the fastest of the CLIs.
DRAW_S = 0.05
#: The size of a flood and of one write, in bytes; `yes` writes as much at once.
FLOOD, PIECE = 100_000_000, 16 * 1024
#: The number of lines that fills the scrollback and the ring of a holder.
FILLED = 12_000
#: Ctrl-P starts and ends playing.
PLAY = b"\x10"


def write_all(data: bytes) -> None:
    """Write all of `data` to standard output."""
    while data:
        data = data[os.write(1, data) :]


def play(recording: bytes) -> None:
    """Draw the frames of a recording again and again, until Ctrl-P is pressed.

    The recording has queries to the terminal, whose answers are read as keys.
    """
    frames = recording.split(b"\x1b[?2026l")
    ends = b"\x1b[?2026l"
    if len(frames) < 10:  # the recording has no marks between frames
        frames, ends = re.findall(rb".{1,400}", recording, re.DOTALL), b""
    while True:
        for frame in frames:
            write_all(frame + ends)
            until = time.monotonic() + DRAW_S
            typed = b""
            while select.select([0], [], [], max(0.0, until - time.monotonic()))[0]:
                typed += os.read(0, 65536)
            if PLAY in typed:
                return write_all(b"\x1b[?1049l\x1b[?2026l\x1b[m\x1b[2J\x1b[HPLAYED\r\n")


def flood(piece: bytes, number: int) -> None:
    """Write 100 MB, and print the time that it took."""
    piece *= PIECE // len(piece)
    started = time.perf_counter()
    for _ in range(FLOOD // len(piece)):
        write_all(piece)
    write_all(b"\r\nFLOOD %d TOOK %.4f s\r\n" % (number, time.perf_counter() - started))


def main() -> None:
    """React to keys until the terminal is closed."""
    recording, floods = Path(sys.argv[1]).read_bytes(), itertools.count(1)
    tty.setraw(0)
    write_all(b"\x1b]7501;state=idle\x07READY\r\n")
    while data := os.read(0, 65536):
        match data:
            case _ if data == PLAY:
                play(recording)
            case b"\x0c":  # Ctrl-L
                flood(b"x", next(floods))
            case b"\x19":  # Ctrl-Y
                flood(b"y\r\n", next(floods))
            case b"\x06":  # Ctrl-F
                write_all(b"".join(b"%5d %s\r\n" % (n, b"words " * 18) for n in range(FILLED)))
                write_all(b"FILLED\r\n")
            case _:
                write_all(data)


if __name__ == "__main__":
    main()
