"""Kills at each step of a terminal's life, and checks of the result.

    python -m tests.kills [PART OF A CASE'S NAME …]

Each case has its own host: see `tests/support/terminal_kills.py`. The test suite has a few of the
cases (`tests/session/test_terminal_kills.py`).
"""

import argparse
import asyncio
import sys
import tempfile
import time
import traceback
from pathlib import Path

from remoteclaw.config.home import Home
from tests.support.stack import Stack
from tests.support.terminal_hosts import killed_host
from tests.support.terminal_kills import CASES, Case, walked

#: A whole host is killed during a turn: `killed_host()` of `tests/support/terminal_hosts.py`.
HOSTS = ("host: all at once, back soon", "host: all at once, back late")


async def run(case: Case | str) -> bool:
    """Run one case; return whether its moment was reached. Raises the broken promise."""
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as name:
        directory = Path(name)
        stack = Stack(Home(directory / "home").create(), appendfsync="everysec")
        await stack.start()
        try:
            if isinstance(case, str):
                await killed_host(stack, directory, is_soon_back=case == HOSTS[0])
                return True
            async with walked(stack, directory) as walk:
                await getattr(walk, case.story)(case)
                return walk.reached
        finally:
            await stack.stop()  # it checks that nothing is left running


def main() -> int:
    """Run the named cases, or all; return the number of broken ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    every: tuple[Case | str, ...] = (*HOSTS, *CASES)
    wanted = [case for case in every if all(name in str(case) for name in options.names)]
    broken, missed = 0, 0
    for number, case in enumerate(wanted, 1):
        began = time.monotonic()
        try:
            is_reached = asyncio.run(run(case))
            result = "held" if is_reached else "not reached"
            missed += not is_reached
        except Exception:  # noqa: BLE001 - the next case runs all the same
            result = f"BROKEN\n{traceback.format_exc()}"
            broken += 1
        seconds = time.monotonic() - began
        sys.stdout.write(f"{number}/{len(wanted)} {case}: {result} ({seconds:.1f} s)\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(wanted)} cases: {broken} broken, {missed} not reached\n")
    return broken


if __name__ == "__main__":
    sys.exit(min(main(), 1))
