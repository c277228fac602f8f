"""Processes: the only module, besides the holder, that starts, signals and kills them."""

import asyncio
import contextlib
import ctypes
import functools
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
    from remoteclaw.host.forking import ForkedProcess

_PR_SET_PDEATHSIG = 1
#: Looked up here, because between fork and exec no library should be loaded.
_prctl = ctypes.CDLL(None).prctl
#: The variable that a holder sets in the environment of all its children: the holder's pid, start
#: time, boot and pid namespace.
MARK = b"REMOTECLAW_HOLDER="
#: How long the agent of a killed holder may take to end, in seconds.
DYING_S = 0.5


async def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    death_signal: signal.Signals | None = None,
    keep: Sequence[int] = (),
) -> asyncio.subprocess.Process:
    """Start a process that the kernel sends `death_signal` when this process ends in any way.

    A program of ours leaves it out and calls `die_with_parent()` itself: with a signal, Python code
    runs between fork and exec, where a lock that another thread held would never be released.
    Its output is appended to `log`, which only this user can read. It is its own process group, so
    that a Ctrl-C at the terminal doesn't reach it. It inherits the descriptors in `keep`.
    """
    parent, preexec = os.getpid(), None
    if death_signal is not None:
        preexec = functools.partial(die_with_parent, parent, death_signal)
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
            preexec_fn=preexec,
        )
    finally:
        os.close(descriptor)


def open_log(file: Path) -> int:
    """Return a descriptor that appends to a file, which only this user can read."""
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


async def stop(process: "asyncio.subprocess.Process | ForkedProcess", *, grace_s: float) -> None:
    """Send a process SIGTERM, and SIGKILL if it hasn't ended after `grace_s` seconds."""
    for number, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await process.wait()


def exec_program(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Replace the program of this process; raises OSError if the new one can't be executed."""
    os.execvpe(argv[0], list(argv), dict(env))


def read_output(
    argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float, may_fail: bool = False
) -> str | None:
    """Return a command's standard output; None if it fails, or takes longer than `timeout_s`.

    If `may_fail`, return its standard output and standard error even if it fails.
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
    argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float, max_bytes: int
) -> bytes | None:
    """Return the first `max_bytes` of a command's standard output; a command with more is killed.

    None if it fails, or takes longer than `timeout_s`.
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
            output = process.stdout.read(max_bytes)
            if len(output) == max_bytes:
                process.kill()
                return output
            return output if process.wait() == 0 else None
        finally:
            limit.cancel()
    return None


async def run_to_end(
    argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float, max_bytes: int
) -> tuple[int, bytes]:
    """Run a program; return its exit status and the first `max_bytes` of its standard output.

    A program with more output is killed, with the status 0. The program is its own process group,
    of which no process is left when this function returns or is cancelled. Raises OSError if it
    can't be started, and TimeoutError if it takes longer than `timeout_s`.
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
    except asyncio.CancelledError:  # asyncio would kill only the program, not its group
        await _end_group(await starting)
        raise
    assert process.stdout is not None, "it is a pipe"
    try:
        async with asyncio.timeout(timeout_s):
            try:
                return 0, await process.stdout.readexactly(max_bytes)
            except asyncio.IncompleteReadError as end:
                return await process.wait(), end.partial
    finally:
        await _end_group(process)


async def _end_group(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process `number` when its parent dies; exit if it has died."""
    _prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def identity() -> str:
    """Return a name of this process that no other process on any machine ever has."""
    return f"pid {os.getpid()} {_namespace()} {_start_time(os.getpid())}"


def is_alive(name: str) -> bool:
    """Whether the process with an `identity()` runs; true if this host can't know."""
    _, pid, namespace, started = name.split()
    return namespace != _namespace() or _start_time(int(pid)) == started


def _namespace() -> str:
    """Return the name of the pid namespace in which this process's ids are valid.

    It contains the boot of the machine, because the first namespace has the same number on every
    machine.
    """
    return f"{boot_id()}/{os.stat('/proc/self/ns/pid').st_ino}"


def _start_time(pid: int) -> str | None:
    """Return the start time of a process, in ticks since boot; None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()  # not text: a process's name can be any bytes
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].decode().split()
    return None if fields[0] == "Z" else fields[19]


def end_strays() -> int:
    """Kill the processes that killed holders have left behind; return the number of processes.

    A holder ends its agent's whole process tree, unless it is killed itself. Then the processes
    with its mark are strays.
    """
    strays = [pid for pid, mark in _marked() if not _holder_lives(mark)]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stop all before, so that none can fork
        for pid in strays:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
    return len(strays)


def end_orphans(run_dir: Path, agent: int | None = None) -> int:
    """Kill the holder of a run directory and its processes; return the number of processes.

    This is for a holder that doesn't answer, because it is frozen or was just killed. `agent` is
    the pid of its agent, if it is known. Wait up to `DYING_S` until they are gone: the kernel
    closes the connection of a killed holder before the holder counts as dead, and kills the agent
    after that.
    """
    holders = [pid for pid in _processes() if _is_holder_of(pid, run_dir)]
    for pid in holders:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    dying = [*holders, agent] if agent else holders
    until = boottime() + DYING_S
    while any(map(_start_time, dying)) and boottime() < until:
        time.sleep(0.001)
    return len(holders) + end_strays()


def _is_holder_of(pid: int, run_dir: Path) -> bool:
    """Whether a process is the holder of a run directory, by its command line.

    The peer of the holder's socket would be another proof, but a frozen holder accepts no
    connections once its backlog is full.
    """
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-4:]
    except OSError:
        return False
    is_holder = arguments[0].endswith(b"program.main()")
    return is_holder and arguments[2:] == [os.fsencode(run_dir), b""]


def _processes() -> Iterator[int]:
    """Yield the ids of all processes."""
    yield from (int(name) for name in os.listdir("/proc") if name.isdigit())


def _marked() -> Iterator[tuple[int, bytes]]:
    """Yield the id and the mark of each process of this user that has a holder's mark."""
    for pid in _processes():
        with contextlib.suppress(OSError):
            for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if variable.startswith(MARK):
                    yield pid, variable.removeprefix(MARK)
                    break


def _holder_lives(mark: bytes) -> bool:
    """Whether the holder that a mark names runs; true if this process can't know."""
    match = re.fullmatch(rb"(\d{1,9}):(\d+):(\S+)", mark)
    if match is None:
        return True  # no holder has written this
    pid, started, namespace = match[1].decode(), match[2].decode(), match[3].decode()
    return namespace != _namespace() or _start_time(int(pid)) == started
