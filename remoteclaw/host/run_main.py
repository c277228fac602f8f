"""Runs the main function of a program, and exits as soon as it returns."""

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn


def run_and_exit(program: Callable[[], object]) -> NoReturn:
    """Run a program's main function, and exit with its status without tearing down the interpreter.

    The teardown takes longer than many commands, and a seventh of the processor time of a gateway
    that starts and ends.
    """
    code: str | int | None = None
    try:
        program()
    except SystemExit as exiting:
        code = exiting.code
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    threading._shutdown()  # type: ignore[attr-defined]
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):  # the reader is gone, or the stream closed
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
