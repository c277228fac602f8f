"""A program that is started again whenever it ends, for supervisors that don't do that."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

#: The pause before the program is started again, in seconds.
PAUSE_S = 1.0


def run_again_and_again(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Run a program again and again, until SIGTERM, SIGINT or SIGHUP, which it gets as SIGTERM.

    It runs in a session of its own, and this process relays its output: honcho kills its processes
    and their groups five seconds after SIGTERM, and the program still ends by itself.
    """
    process: subprocess.Popen[bytes] | None = None
    is_ending = False

    def end(_number: int, _frame: Any) -> None:
        nonlocal is_ending
        is_ending = True
        if process and process.poll() is None:
            process.send_signal(signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    while not is_ending:
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if is_ending:  # the signal came before the assignment
            process.send_signal(signal.SIGTERM)
        assert process.stdout is not None, "it is a pipe"
        while output := os.read(process.stdout.fileno(), 65536):
            sys.stdout.buffer.write(output)
            sys.stdout.buffer.flush()
        process.wait()
        if not is_ending:
            time.sleep(PAUSE_S)
    sys.exit(0)
