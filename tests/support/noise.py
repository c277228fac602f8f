"""Endless and random output for screens: python -m tests.support.noise WORK FILES."""

import json
import random
import resource
import sys
from pathlib import Path

from remoteclaw.tty.screen import Screen
from remoteclaw.tty.snapshot import MAX_SNAPSHOT_BYTES

#: Sequences that can be endless, with the sequence that ends each: strings, a line, parameters.
ENDLESS = {
    b"\x1b]0;": b"\x07",
    b"\x1b]52;c;": b"\x07",
    b"\x1b]7501;": b"\x07",
    b"\x1b]8;;http://a/": b"\x07",
    b"\x1bP+q": b"\x1b\\",
    b"\x1bPq": b"\x1b\\",
    b"\x1b_G": b"\x1b\\",
    b"\x1b_x": b"\x1b\\",
    b"\x1b^": b"\x1b\\",
    b"\x1b[": b"m",
    b"": b"",
}
#: Parts of escape sequences.
PARTS = [
    *(
        b"\x1b[",
        b"\x1b]",
        b"\x1bP",
        b"\x1b_",
        b"\x07",
        b"\x1b\\",
        b"\x1b",
        b"\r\n",
        b"\xff",
        b"\xe6",
    ),
    *(bytes([sign]) for sign in b";:?>$hlmHJKrSTLMP@Xqu"),
    *(b"1049", b"2026", b"2027", b"4:3", b"38;2;1;2;3", b"8;;http://a", b"52;c;", b"7501;"),
    *("漢\u0301".encode(), "👨\u200d👩".encode()),
]


def flood(mb: int = 4) -> dict[str, float]:
    """Feed endless sequences, then different links and styles; return the memory that it took."""
    screen = Screen(120, 32)
    screen.frame(None)
    before, most = _memory(), 0.0
    for start, end in ENDLESS.items():
        screen.feed(start)
        for _ in range(16 * mb):
            screen.feed(b"41;;" * 16384)
        most = max(most, _memory() - before)
        assert len(screen.snapshot()) <= MAX_SNAPSHOT_BYTES
        screen.feed(end)
    for row in range(5000):
        link = b"\x1b]8;;http://a/%d\x07" % row
        styles = b"\x1b[38;2;%d;%d;7mx\x1b[4%dmy" % (row % 256, row // 256, row % 8)
        screen.feed(link + styles + b"\x1b]8;;\x07\r\n")
    screen.frame(None)
    most = max(most, _memory() - before)
    assert screen.feed(b"\x18\x1b[m\x1b[2J\x1b[Hok\x1b[5n") == b"\x1b[0n"
    assert screen.text().startswith("ok")
    return {"mb": most}


def noise(recordings: list[bytes], turns: int = 12, seed: int = 7) -> dict[str, float]:
    """Feed several kinds of noise to screens of all sizes; return the amounts."""
    generator = random.Random(seed)
    fed = 0
    for _ in range(turns):
        screen = Screen(generator.randrange(1, 200), generator.randrange(1, 80), scrollback=50)
        revision = None
        for _ in range(10):
            data = _noise(generator, recordings)
            screen.feed(data)
            fed += len(data)
            if generator.random() < 0.5:
                screen.resize(generator.randrange(1, 200), generator.randrange(1, 80))
            frame = screen.frame(revision)
            revision = frame["revision"] if frame else revision
            screen.history(0, 20)
            if generator.random() < 0.3 and (picture := screen.snapshot()):
                assert len(picture) <= MAX_SNAPSHOT_BYTES
                screen.close()
                size = generator.randrange(1, 200), generator.randrange(1, 80)
                screen = Screen.restored(picture, *size)
        screen.close()
    return {"fed": fed}


def _noise(generator: random.Random, recordings: list[bytes]) -> bytes:
    kind = generator.randrange(4)
    if kind == 0:
        return generator.randbytes(3000)
    if kind == 1:
        numbers = [b"%d" % generator.randrange(300) for _ in range(20)]
        return b"".join(generator.choices([*PARTS, *numbers], k=1500))
    recording = generator.choice(recordings)
    start = generator.randrange(len(recording))
    changed = bytearray(recording[start : start + 8000])
    for _ in range(40):
        changed[generator.randrange(len(changed))] = generator.randrange(256)
    return bytes(changed)


def _memory() -> float:
    """Return the resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    work, folder = sys.argv[1:]
    if work == "flood":
        said = flood()
    else:
        said = noise([file.read_bytes() for file in sorted(Path(folder).glob("*.raw"))])
    sys.stdout.write(json.dumps(said))
