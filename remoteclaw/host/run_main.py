"""Runs a program of RemoteClaw, and exits at once when it returns."""

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn


def run_and_end(program: Callable[[], object]) -> NoReturn:
    """Run a program, and end with its exit status.

    Python's own end takes down all that was loaded, which takes longer than many a command and is a
    seventh of the processor time of a gateway that starts and ends.
    """
    code: str | int | None = None
    try:
        program()
    except SystemExit as left:
        code = left.code
    except BaseException:  # noqa: BLE001 - as Python itself does
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    threading._shutdown()  # type: ignore[attr-defined]
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):  # it is gone, or closed
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
