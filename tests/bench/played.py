"""A program in a terminal whose output is known: it echoes keys, plays a recording, or floods.

It says of itself what codex says, and is idle at once. Started by its path, in any directory; its
first argument is the recording.
"""

import itertools
import os
import re
import select
import sys
import time
import tty
from pathlib import Path

#: How often it draws while it plays, in seconds: as often as the quickest of the CLIs.
DRAW_S = 0.05
#: How much a flood is, in bytes, and how much of it is written at once: as `yes` does.
FLOOD, PIECE = 100_000_000, 16 * 1024
#: A thousand full lines, and more than a holder's ring.
FILLED = 12_000
#: Ctrl-P begins to play, and ends it.
PLAY = b"\x10"


def say(data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(1, data) :]


def play(recording: bytes) -> None:
    """Draw what a CLI has drawn, over and over, until the same key comes again.

    The terminal answers what is asked in it, as well.
    """
    frames = recording.split(b"\x1b[?2026l")
    ends = b"\x1b[?2026l"
    if len(frames) < 10:  # it doesn't say where its pieces end
        frames, ends = re.findall(rb".{1,400}", recording, re.DOTALL), b""
    while True:
        for frame in frames:
            say(frame + ends)
            until = time.monotonic() + DRAW_S
            typed = b""
            while select.select([0], [], [], max(0.0, until - time.monotonic()))[0]:
                typed += os.read(0, 65536)
            if PLAY in typed:
                return say(b"\x1b[?1049l\x1b[?2026l\x1b[m\x1b[2J\x1b[HPLAYED\r\n")


def flood(piece: bytes, number: int) -> None:
    """Write much, and say how long it took."""
    piece *= PIECE // len(piece)
    started = time.perf_counter()
    for _ in range(FLOOD // len(piece)):
        say(piece)
    say(b"\r\nFLOOD %d TOOK %.4f s\r\n" % (number, time.perf_counter() - started))


def main() -> None:
    """Obey keys until the terminal is gone."""
    recording, floods = Path(sys.argv[1]).read_bytes(), itertools.count(1)
    tty.setraw(0)
    say(b"\x1b]7501;state=idle\x07READY\r\n")
    while data := os.read(0, 65536):
        match data:
            case _ if data == PLAY:
                play(recording)
            case b"\x0c":  # Ctrl-L
                flood(b"x", next(floods))
            case b"\x19":  # Ctrl-Y
                flood(b"y\r\n", next(floods))
            case b"\x06":  # Ctrl-F
                say(b"".join(b"%5d %s\r\n" % (n, b"words " * 18) for n in range(FILLED)))
                say(b"FILLED\r\n")
            case _:
                say(data)


if __name__ == "__main__":
    main()
