"""Processes: the one place that starts, signals and sweeps them, beside the holder."""

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from remoteclaw.clock import boot_id, boottime

if TYPE_CHECKING:
    from remoteclaw.host.forking import Forked

_PR_SET_PDEATHSIG = 1
#: Looked up once: between fork and exec nothing should have to be found.
_prctl = ctypes.CDLL(None).prctl
#: What a holder writes into the environment of everything it starts: its pid, start time, boot and
#: pid namespace.
MARK = b"REMOTECLAW_HOLDER="
#: How long a killed holder's agent may take to be gone, in seconds.
DYING_S = 0.5


async def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    death_signal: signal.Signals,
    keep: Sequence[int] = (),
) -> asyncio.subprocess.Process:
    """Start a process that gets `death_signal` when we die, in any way.

    What it prints is appended to `log`, which only this user can read.
    It is its own process group, so that a Ctrl-C at the terminal reaches us alone.
    """
    parent = os.getpid()
    descriptor = open_log(log)
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            pass_fds=keep,
            process_group=0,
            preexec_fn=lambda: die_with_parent(parent, death_signal),
        )
    finally:
        os.close(descriptor)


def open_log(file: Path) -> int:
    """Open a file that only this user can read, to append to it."""
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


async def stop(process: "asyncio.subprocess.Process | Forked", *, patience_s: float) -> None:
    """Ask a process to end, and make it end when it hasn't within `patience_s` seconds."""
    for number, seconds in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await process.wait()


def become(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Replace this process; raises OSError if that program can't be executed."""
    os.execvpe(argv[0], list(argv), dict(env))


def read_output(
    argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float, may_fail: bool = False
) -> str | None:
    """Return what a short command prints on standard output; None if it fails or takes too long.

    With `may_fail`, return what it prints, on standard error too, also if it fails.
    """
    try:
        result = subprocess.run(
            argv,
            env=env,
            timeout=timeout_s,
            check=not may_fail,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if may_fail else subprocess.PIPE,
            text=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return result.stdout


def read_beginning(
    argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float, most_bytes: int
) -> bytes | None:
    """Return what a command prints on standard output, `most_bytes` of it at most.

    None if it fails or takes too long; one that prints more is ended.
    """
    with (
        contextlib.suppress(OSError),
        subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process,
    ):
        assert process.stdout is not None, "it is a pipe"
        limit = threading.Timer(timeout_s, process.kill)
        limit.start()
        try:
            printed = process.stdout.read(most_bytes)
            if len(printed) == most_bytes:
                process.kill()
                return printed
            return printed if process.wait() == 0 else None
        finally:
            limit.cancel()
    return None


async def run_to_end(
    argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float, most_bytes: int
) -> tuple[int, bytes]:
    """Run a program; return its exit status and what it prints, the beginning if that is more.

    It is a process group of its own, of which nothing is left when this returns or is cancelled.
    Raises OSError if it can't be started, and TimeoutError if it takes too long.
    """
    parent = os.getpid()
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=lambda: die_with_parent(parent),
        )
    )
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:  # asyncio would end the program alone, not its group
        await _end_group(await starting)
        raise
    assert process.stdout is not None, "it is a pipe"
    try:
        async with asyncio.timeout(timeout_s):
            try:
                return 0, await process.stdout.readexactly(most_bytes)
            except asyncio.IncompleteReadError as whole:
                return await process.wait(), whole.partial
    finally:
        await _end_group(process)


async def _end_group(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send us `number` when our parent dies; exit if it has died already."""
    _prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def identity() -> str:
    """Return a name for this process that no other process will ever have, on any machine."""
    return f"pid {os.getpid()} {_namespace()} {_start_time(os.getpid())}"


def is_alive(name: str) -> bool:
    """Whether a process with that `identity()` runs; true where that can't be told from here."""
    _, pid, namespace, started = name.split()
    return namespace != _namespace() or _start_time(int(pid)) == started


def _namespace() -> str:
    """Return which process ids are meant: those of a pid namespace, in one boot of one machine.

    The number of the first namespace is the same on every machine.
    """
    return f"{boot_id()}/{os.stat('/proc/self/ns/pid').st_ino}"


def _start_time(pid: int) -> str | None:
    """Return when a process started, in ticks since boot; None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()  # a process's name may be any bytes
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].decode().split()
    return None if fields[0] == "Z" else fields[19]


def end_strays() -> int:
    """Kill what holders left behind that were themselves killed; return how many processes.

    A holder is the subreaper of its agent's tree and leaves nothing, unless it gets a SIGKILL.
    Then what carries its mark has no owner any more.
    """
    strays = [pid for pid, mark in _marked() if not _holder_lives(mark)]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # all stopped first, so that none can fork away
        for pid in strays:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
    return len(strays)


def end_orphans(run_dir: Path, agent: int | None = None) -> int:
    """Kill the holder of a run directory, if it is there, and what it held; return how many.

    For a holder that does not answer, because it is frozen, or that was killed just now: `agent` is
    the process that it held, if that is known. Blocks until they are gone, for a moment: a holder's
    connection is closed before it counts as dead, and the kernel kills its agent right behind that.
    """
    holders = [pid for pid in _processes() if _holds(pid, run_dir)]
    for pid in holders:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    dying = [*holders, agent] if agent else holders
    until = boottime() + DYING_S
    while any(map(_start_time, dying)) and boottime() < until:
        time.sleep(0.001)
    return len(holders) + end_strays()


def _holds(pid: int, run_dir: Path) -> bool:
    """Whether a process is the holder of a run directory: its command line says so.

    A socket's peer would say it as well, but a frozen holder soon takes no more connections.
    """
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-4:]
    except OSError:
        return False
    is_holder = arguments[0].endswith(b"program.main()")
    return is_holder and arguments[2:] == [os.fsencode(run_dir), b""]


def _processes() -> Iterator[int]:
    """Yield the id of every process."""
    yield from (int(name) for name in os.listdir("/proc") if name.isdigit())


def _marked() -> Iterator[tuple[int, bytes]]:
    """Yield every process of ours with a holder's mark in its environment."""
    for pid in _processes():
        with contextlib.suppress(OSError):
            for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if variable.startswith(MARK):
                    yield pid, variable.removeprefix(MARK)
                    break


def _holder_lives(mark: bytes) -> bool:
    """Whether the holder that a mark names runs; true where that can't be told from here."""
    match = re.fullmatch(rb"(\d{1,9}):(\d+):(\S+)", mark)
    if match is None:
        return True  # not a holder's
    pid, started, namespace = match[1].decode(), match[2].decode(), match[3].decode()
    return namespace != _namespace() or _start_time(int(pid)) == started
