"""The pipes of a CLI, with real processes at the other end."""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator

import pytest

from remoteclaw.runtimes import pipes as pipes_module
from remoteclaw.runtimes.pipes import LinePipes
from tests.support.waiting import HANG_S, eventually

LARGE = b"x" * 400_000
PIPE_BYTES = 65536


def unread_bytes(descriptor: int) -> int:
    """Return the number of unread bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)


@contextlib.asynccontextmanager
async def running(
    program: str, *, stopped: bool = False
) -> AsyncIterator[tuple[LinePipes, "subprocess.Popen[bytes]"]]:
    """Start a program and yield its pipes. If `stopped`, it does nothing until SIGCONT."""
    argv = [sys.executable, "-I", "-S", "-c", program]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        if stopped:
            process.send_signal(signal.SIGSTOP)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        files = (process.stdin, process.stdout, process.stderr)
        pipes = LinePipes([os.dup(file.fileno()) for file in files])
        try:
            yield pipes, process
        finally:
            pipes.end()
            process.kill()


async def test_ending_the_pipes_ends_every_write_to_a_cli_that_does_not_read() -> None:
    async with running("", stopped=True) as (pipes, process):
        assert process.stdin is not None
        pipe = process.stdin.fileno()
        writers = [asyncio.create_task(pipes.write(line)) for line in (LARGE, LARGE, b"stop")]
        await eventually(lambda: unread_bytes(pipe) == PIPE_BYTES)

        pipes.end()

        async with asyncio.timeout(HANG_S):
            await asyncio.gather(*writers)


async def test_lines_of_concurrent_writers_are_not_mixed() -> None:
    program = "import sys\nfor line in sys.stdin: print(len(line), len(set(line)), flush=True)"
    async with running(program) as (pipes, _):
        await asyncio.gather(*(pipes.write(letter * 400_000) for letter in (b"a", b"b", b"c")))

        lines = [await pipes.read() for _ in range(3)]

    assert lines == [b"400001 2"] * 3


async def test_a_cancelled_write_leaves_no_half_line() -> None:
    program = "import sys\nfor line in sys.stdin: print(line[0], len(line), flush=True)"
    async with running(program, stopped=True) as (pipes, process):
        assert process.stdin is not None
        pipe = process.stdin.fileno()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await pipes.write(LARGE)
        assert unread_bytes(pipe) == PIPE_BYTES
        assert not pipes.is_clean

        process.send_signal(signal.SIGCONT)
        await pipes.write(b"second")

        assert [await pipes.read() for _ in range(2)] == [b"x 400001", b"s 7"]


async def test_blank_lines_are_skipped() -> None:
    """Fifty million blank lines once took 444 MB."""
    program = "import os\nos.write(1, b'\\n' * 100_000)\nos.write(1, b' \\r\\n\\nend\\n')"
    async with running(program) as (pipes, _):
        assert await pipes.read() == b"end"


async def test_an_oversized_line_is_replaced_with_an_empty_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipes_module, "MAX_LINE_BYTES", 1000)
    program = "print('before'); print('x' * 300_000); print('y' * 1000); print('after')"
    async with running(program) as (pipes, _):
        lines = [await pipes.read() for _ in range(4)]

    assert lines == [b"before", b"", b"y" * 1000, b"after"]


async def test_output_after_the_last_read_is_left_for_the_next_reader() -> None:
    program = (
        "import os, sys, time\n"
        "os.write(1, (b'x' * 9999 + b'\\n') * 900); sys.stdin.readline()\n"
        "os.write(1, b'for the next one\\n'); os.write(2, b'.'); time.sleep(600)\n"
    )
    async with running(program) as (pipes, process):
        assert process.stdout is not None
        await eventually(lambda: pipes._is_paused)
        pipes.hold()
        taken = len(pipes.take_unread())
        while taken < 900:  # the program writes no faster than its output is read
            await asyncio.sleep(0.001)
            taken += len(pipes.take_unread())

        await pipes.write(b"go on")
        await eventually(lambda: unread_bytes(process.stdout.fileno()) > 0)  # type: ignore[union-attr]
        pipes.end()

        assert process.stdout.readline() == b"for the next one\n"


async def test_take_unread_returns_everything_that_has_arrived() -> None:
    """One read returns at most 256 KB; the rest was once mistaken for output of the next turn."""
    size = 600_000
    program = f"import os, time; os.write(1, (b'x' * 99 + b'\\n') * {size // 100}); time.sleep(600)"
    async with running(program, stopped=True) as (pipes, process):
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1024 * 1024)
        process.send_signal(signal.SIGCONT)
        while unread_bytes(pipe) < size:  # without yielding to the event loop, which would read it
            os.sched_yield()

        lines = pipes.take_unread()

        assert len(lines) == size // 100
        assert pipes.is_clean
