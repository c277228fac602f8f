"""A worker of pytest-xdist, forked from a process that has loaded the tests' libraries.

xdist starts this in place of Python, with `-u -c CODE`; the fork runs the code.
"""

import sys
from pathlib import Path


def start(code: str) -> int:
    """Run the code in a fork; return its exit status."""
    from tests.support.command import fork_worker

    try:
        return fork_worker(code).wait(24 * 3600)
    except (KeyboardInterrupt, ValueError):  # Ctrl-C also ends the fork server and its forks
        return 1


if __name__ == "__main__":
    if sys.argv[1] == "-u":
        sys.path[0] = str(Path(__file__).parents[2])
        sys.exit(start(sys.argv[-1]))
    exec(sys.argv[1])
