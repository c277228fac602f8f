"""The command line of the chaos: see the package."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests import chaos
from tests.chaos.flat import table
from tests.support.telegram import Telegram


def main() -> int:
    """Run chaos with the options of the command line; return 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=chaos.__doc__, prog="scripts/chaos")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4, help="on each host")
    parser.add_argument("--sessions", type=int, default=12)
    parser.add_argument("--hosts", type=int, default=2)
    options = vars(parser.parse_args())
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as name:
        directory = Path(name)
        with Telegram.shared(directory / "telegram") as telegram:
            run = chaos.chaos(
                options.pop("seconds"), directory, telegram.bot(), **options, report=_print
            )
            verdict, samples = asyncio.run(run)
    _print("".join(f"{name:<22} {count}\n" for name, count in verdict.items()))
    text, is_flat = table(samples)
    _print(text)
    return int(any(verdict[name] for name in chaos.PROMISES) or not is_flat)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
