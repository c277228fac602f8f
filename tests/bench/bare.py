"""A program in a bare pseudo-terminal, in tmux, and in a holder."""

import contextlib
import os
import pty
import select
import shlex
import signal
import socket
import subprocess
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path

from remoteclaw.holder.terminal_client import TerminalClient
from tests.support.holders import KEY
from tests.support.waiting import HANG_S

#: Columns and rows.
SIZE = (120, 32)


class Bare:
    """The controlling end of a pseudo-terminal."""

    def __init__(self, master: int) -> None:
        self._master = master

    @classmethod
    @contextlib.contextmanager
    def running(cls, program: Sequence[str]) -> Iterator["Bare"]:
        """Run a program in a pseudo-terminal; it is killed at the end."""
        pid, master = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm-256color"
            termios.tcsetwinsize(0, SIZE[::-1])
            os.execvp(program[0], list(program))
        try:
            yield cls(master)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(master)

    def type(self, data: bytes) -> None:
        """Write `data` as if it were typed."""
        os.write(self._master, data)

    def until(self, wanted: bytes) -> bytes:
        """Read until `wanted` is written; return the end of the output."""
        seen = b""
        while wanted not in seen:
            assert select.select([self._master], [], [], HANG_S)[0], seen
            seen = seen[-200:] + os.read(self._master, 65536)
        return seen

    def forget(self) -> None:
        """Read and discard the output so far."""
        while select.select([self._master], [], [], 0)[0]:
            os.read(self._master, 65536)


@contextlib.contextmanager
def in_tmux(program: Sequence[str], directory: Path) -> Iterator[Bare]:
    """Run a program in tmux, and attach to it."""
    tmux = ["tmux", "-S", str(directory / "tmux"), "-f", os.devnull]
    size = ["-x", str(SIZE[0]), "-y", str(SIZE[1])]
    begin = ["new-session", "-d", *size, shlex.join(program)]
    subprocess.run([*tmux, *begin, ";", "set", "-g", "status", "off"], check=True)
    try:
        with Bare.running([*tmux, "attach"]) as bare:
            yield bare
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)


class _Held(Bare):
    """A socket to a holder, read like the terminal of tmux."""

    def type(self, data: bytes) -> None:
        super().type(b"IN %d\n" % len(data) + data)


@contextlib.contextmanager
def in_holder(held: TerminalClient) -> Iterator[Bare]:
    """Attach to a terminal in place of its client."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(held.path))
        sock.sendall(b"ATTACH 1 pty %s\n" % KEY.encode())
        yield _Held(sock.fileno())
