"""Input that a terminal does not show, such as a token.

`getpass` drops what was typed before its prompt, so a token that is pasted early would be lost.
"""

import contextlib
import sys
import termios
from collections.abc import Iterator


@contextlib.contextmanager
def hidden_input() -> Iterator[None]:
    """Have the terminal show nothing that is typed, and drop nothing; without one, do nothing."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    hiding = [*before]
    hiding[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, hiding)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def drop_input() -> None:
    """Drop what was typed into the terminal and not read yet; without a terminal, do nothing."""
    if sys.stdin.isatty():
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
