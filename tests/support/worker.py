"""A worker of pytest-xdist, forked from a process that has loaded what tests need.

xdist starts this in the place of Python, with `-u -c CODE`; the fork is started with the code.
"""

import sys
from pathlib import Path


def start(code: str) -> int:
    """Have the code run in a fork; return its exit status."""
    from tests.support.command import fork_worker

    try:
        return fork_worker(code).wait(24 * 3600)
    except (KeyboardInterrupt, ValueError):  # what forks is ended by a Ctrl-C, too, with its forks
        return 1


if __name__ == "__main__":
    if sys.argv[1] == "-u":
        sys.path[0] = str(Path(__file__).parents[2])
        sys.exit(start(sys.argv[-1]))
    exec(sys.argv[1])
