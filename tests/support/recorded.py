"""Recorded output of the agents' own programs, and a way to cut it.

Recorded from claude 2.1.197, codex 0.169.0, gemini 0.61.0 and opencode 1.18.33 on 120 by 32
cells, with the scripted model: a long answer, a tool that needs permission, wide characters.
"""

import random
from itertools import pairwise
from pathlib import Path

RECORDINGS = sorted((Path(__file__).parents[1] / "tty" / "recordings").glob("*.raw"))
COLS, ROWS = 120, 32


def pieces(data: bytes, generator: random.Random, most: int) -> list[bytes]:
    """Return `data` cut at random into pieces of at most `most` bytes."""
    cuts = sorted({0, len(data), *(generator.randrange(len(data)) for _ in range(most))})
    return [data[start:end] for start, end in pairwise(cuts)]
