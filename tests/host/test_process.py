"""Programs that are run for their output, and what they leave behind."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remoteclaw.host.process import read_beginning, read_output, run_to_end
from tests.support.processes import is_alive
from tests.support.waiting import HANG_S, eventually_sync

ENV = dict(os.environ)
#: Runs in another session, so that no signal to the program's group reaches it, and keeps the
#: program's output open.
STRAY = "setsid sh -c 'echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 600' & "
STRAY += "until [ -e {pid} ]; do sleep 0.01; done; "

Run = Callable[[str, float, int], bytes | None]


def run_async(script: str, timeout_s: float, max_bytes: int) -> bytes | None:
    """Return the output of `run_to_end`; None if the script takes too long or fails."""

    async def run() -> bytes | None:
        argv = ["sh", "-c", script]
        try:
            status, output = await run_to_end(
                argv, env=ENV, timeout_s=timeout_s, max_bytes=max_bytes
            )
        except TimeoutError:
            return None
        return None if status else output

    return asyncio.run(asyncio.wait_for(run(), HANG_S))


def run_beginning(script: str, timeout_s: float, max_bytes: int) -> bytes | None:
    argv = ["sh", "-c", script]
    return read_beginning(argv, env=ENV, timeout_s=timeout_s, max_bytes=max_bytes)


def run_text(script: str, timeout_s: float, max_bytes: int) -> bytes | None:
    text = read_output(["sh", "-c", script], env=ENV, timeout_s=timeout_s)
    return None if text is None else text.encode()[:max_bytes]


@pytest.fixture
def stray(tmp_path: Path) -> Iterator[Path]:
    """The file with the pid of the stray process, which is killed after the test."""
    pid = tmp_path / "stray"
    yield pid
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("run", [run_async, run_beginning, run_text])
@pytest.mark.parametrize("size", [129_000, 200_000, 5_000_000])
def test_a_program_that_prints_more_than_is_wanted_is_ended(
    run: Run, size: int, tmp_path: Path
) -> None:
    """asyncio stops reading at 128 KB, and then doesn't see the end of the program."""
    (tmp_path / "text").write_text("x" * size)
    for _ in range(5):  # whether asyncio stops depends on the moment of the kill
        assert run(f"cat {tmp_path}/text; sleep 0.1", HANG_S, 64_000) == b"x" * 64_000


@pytest.mark.parametrize("run", [run_async, run_beginning, run_text])
def test_a_program_has_ended_although_a_process_that_it_left_keeps_its_output_open(
    run: Run, stray: Path
) -> None:
    start = time.monotonic()
    output = run(f"{STRAY.format(pid=stray)}echo heard", HANG_S, 64_000)

    assert output == b"heard\n"
    assert time.monotonic() - start < HANG_S / 2


@pytest.mark.parametrize("run", [run_async, run_beginning, run_text])
def test_the_time_limit_of_a_program_is_kept_although_a_stray_process_keeps_its_output_open(
    run: Run, stray: Path, tmp_path: Path
) -> None:
    start, pid = time.monotonic(), tmp_path / "pid"
    output = run(f"{STRAY.format(pid=stray)}echo $$ >{pid}; exec sleep 600", 1.0, 64_000)

    assert output is None
    assert time.monotonic() - start < HANG_S / 2
    eventually_sync(lambda: not is_alive(int(pid.read_text())))
