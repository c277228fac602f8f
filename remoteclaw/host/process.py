"""Processes: only this module, `restarting` and the holder start, signal and kill them."""

import asyncio
import contextlib
import ctypes
import functools
import logging
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from remoteclaw.clock import boot_id, boottime

_PR_SET_PDEATHSIG = 1
#: Looked up here, because between fork and exec no library should be loaded.
_prctl = ctypes.CDLL(None).prctl
#: The variable that a holder sets in the environment of all its children: the holder's pid, start
#: time, boot and pid namespace.
MARK = b"REMOTECLAW_HOLDER="
#: How long the agent of a killed holder may take to end, in seconds.
DYING_S = 0.5
#: How long a killed process may take to end, in seconds; one that waits for a disk that has gone
#: can't be killed.
KILLED_S = 5.0
#: How long a program's output is awaited after its end, in seconds: another process that it has
#: started may keep the output open. Also the interval at which its end is noticed in a thread.
LAST_OUTPUT_S = 0.2
#: More output of a command than this, in bytes, is cut off.
MAX_OUTPUT_BYTES = 1_000_000

log = logging.getLogger(__name__)


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


class Child(Protocol):
    """A child process, started or forked."""

    @property
    def returncode(self) -> int | None:
        """The exit code; None while the process runs."""

    def send_signal(self, signal: signal.Signals, /) -> None:
        """Send a signal. Raises `ProcessLookupError`."""

    async def wait(self) -> int:
        """Wait for the end of the process; return its exit code."""


async def stop(process: Child, *, grace_s: float) -> None:
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
    errors = subprocess.STDOUT if may_fail else subprocess.DEVNULL
    try:
        status, output = _read(argv, env, timeout_s, MAX_OUTPUT_BYTES, errors)
        return output.decode() if status == 0 or may_fail else None
    except (OSError, UnicodeDecodeError):
        return None


def run_program(
    argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float
) -> tuple[int, str]:
    """Run a program; return its exit status, and its standard output and error together.

    Raises OSError if it can't be started, or takes longer than `timeout_s`.
    """
    status, output = _read(argv, env, timeout_s, MAX_OUTPUT_BYTES, subprocess.STDOUT)
    return status, output.decode(errors="replace")


def read_beginning(
    argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float, max_bytes: int
) -> bytes | None:
    """Return the first `max_bytes` of a command's standard output; a command with more is killed.

    None if it fails, or takes longer than `timeout_s`.
    """
    try:
        status, output = _read(argv, env, timeout_s, max_bytes, subprocess.DEVNULL)
    except OSError:
        return None
    return output if status == 0 else None


def _read(
    argv: Sequence[str], env: Mapping[str, str], timeout_s: float, max_bytes: int, errors: int
) -> tuple[int, bytes]:
    """Run a program as `run_to_end` does, in this thread. `errors` is where its errors go."""
    until = boottime() + timeout_s
    process = subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        process_group=0,
    )
    assert process.stdout is not None, "it is a pipe"
    output, ready = bytearray(), select.poll()
    ready.register(process.stdout, select.POLLIN)
    try:
        while len(output) < max_bytes:
            if boottime() > until:
                raise TimeoutError
            has_ended = process.poll() is not None  # before the reading, which then gets the rest
            if ready.poll(LAST_OUTPUT_S * 1000):
                if not (more := os.read(process.stdout.fileno(), max_bytes - len(output))):
                    break
                output += more
            elif has_ended:
                break
        else:
            return 0, bytes(output)
        return process.wait(max(0.0, until - boottime())), bytes(output)
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    finally:
        process.stdout.close()
        _kill_group(process.pid)
        try:
            process.wait(KILLED_S)
        except subprocess.TimeoutExpired:
            _warn_of_unkillable(argv, process.pid)


async def run_to_end(
    argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float, max_bytes: int
) -> tuple[int, bytes]:
    """Run a program; return its exit status and the first `max_bytes` of its standard output.

    A program with more output is killed, with the status 0. The program is its own process group,
    of which no process is left when this function returns or is cancelled; a process that has left
    the group is not waited for, even if it keeps the output open. Raises OSError if the program
    can't be started, and TimeoutError if it takes longer than `timeout_s`.
    """
    parent = os.getpid()
    # Not a pipe of asyncio: it stops reading at twice its limit, and then sees no end of the
    # program, or of reading while any other process has the output open.
    reading, writing = os.pipe()
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=lambda: die_with_parent(parent),
        )
    )
    starting.add_done_callback(lambda _: os.close(writing))
    with _read_in_loop(reading, max_bytes) as (output, is_read):
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:  # asyncio would kill only the program, not its group
            await _end_group(argv, await starting)
            raise
        ending = asyncio.create_task(process.wait())
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait((is_read, ending), return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait((is_read,), timeout=LAST_OUTPUT_S if ending.done() else None)
                return (0 if len(output) == max_bytes else await ending), bytes(output)
        finally:
            ending.cancel()
            await _end_group(argv, process)


@contextlib.contextmanager
def _read_in_loop(pipe: int, max_bytes: int) -> Iterator[tuple[bytearray, asyncio.Future[None]]]:
    """Read from a pipe until its end, up to `max_bytes`; close it after the block.

    Yield the bytes so far, and the future that is done at the end.
    """
    loop = asyncio.get_running_loop()
    output, is_read = bytearray(), loop.create_future()

    def read() -> None:
        more = os.read(pipe, max_bytes - len(output))
        output.extend(more)
        if not more or len(output) == max_bytes:
            loop.remove_reader(pipe)
            is_read.set_result(None)

    loop.add_reader(pipe, read)
    try:
        yield output, is_read
    finally:
        loop.remove_reader(pipe)
        os.close(pipe)


async def _end_group(argv: Sequence[str], process: asyncio.subprocess.Process) -> None:
    _kill_group(process.pid)
    try:
        async with asyncio.timeout(KILLED_S):
            await process.wait()
    except TimeoutError:
        _warn_of_unkillable(argv, process.pid)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _warn_of_unkillable(argv: Sequence[str], pid: int) -> None:
    log.warning(
        "%s (process %d) has not ended %.0f s after its kill: nothing waits for it any longer",
        Path(argv[0]).name,
        pid,
        KILLED_S,
    )


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


def is_running(pid: int) -> bool:
    """Whether a process with this id runs here, which may be another one than was meant."""
    return _start_time(pid) is not None


def boot_of(name: str) -> str:
    """Return the boot of the machine on which the process with an `identity()` runs."""
    return name.split()[2].partition("/")[0]


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
