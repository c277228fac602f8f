"""What the agents' own programs have printed, and pieces of it.

Recorded from claude 2.1.197, codex 0.169.0, gemini 0.61.0 and opencode 1.18.33 on 120 by 32
cells, with the scripted model: a long answer, a tool that needs permission, wide characters.
"""

import random
from itertools import pairwise
from pathlib import Path

RECORDINGS = sorted((Path(__file__).parents[1] / "tty" / "recordings").glob("*.raw"))
COLS, ROWS = 120, 32


def pieces(data: bytes, generator: random.Random, most: int) -> list[bytes]:
    """Return it cut at random."""
    cuts = sorted({0, len(data), *(generator.randrange(len(data)) for _ in range(most))})
    return [data[start:end] for start, end in pairwise(cuts)]
