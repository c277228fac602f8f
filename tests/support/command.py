"""Programs of ours, each time in a process of its own, without the cost of starting Python.

A program that is started imports for up to a second of processor time. Here a fork server has
imported all of `remoteclaw` and RQ.
What is about the start itself uses `REMOTECLAW` or `RQ` and `subprocess`.
"""

import atexit
import contextlib
import functools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

from remoteclaw.host.forking import fork, server_command
from tests.support.waiting import HANG_S

ROOT = Path(__file__).parents[2]
REMOTECLAW = str(Path(sys.executable).with_name("remoteclaw"))
RQ = str(Path(sys.executable).with_name("rq"))
#: Their modules; any other program is one.
MODULES = {REMOTECLAW: "remoteclaw.cli", RQ: "rq.cli"}
#: Where the processes of a run get the one that forks.
_SHARED = "TESTS_FORK_SERVER"
#: The processes that fork, by what else they have loaded, and where each takes orders.
_SERVERS: dict[tuple[str, ...], tuple["subprocess.Popen[bytes]", socket.socket]] = {}
#: What the tests themselves take long to load; not pytest's plugins, whose asserts it rewrites.
_LIBRARIES = [
    *("aiohttp.test_utils", "cryptography.hazmat.primitives.asymmetric.ec", "jsonschema"),
    *(
        "mcp.client.client",
        "playwright.async_api",
        "prompt_toolkit",
        "pytest",
        "rq.cli",
        "telegram",
    ),
]
#: Programs, and what only a chat in a terminal needs.
_NOT_IMPORTED = (
    *("/__main__.py", "/demo_agent.py", "/console.py", "/editor.py"),
    *(f"/holder/{name}.py" for name in ("output", "pipes", "program", "terminal", "tree")),
)


class Process:
    """A program that runs; a `subprocess.Popen` as far as tests need one."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        told.settimeout(HANG_S)
        self.pid = int(told.recv(16))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit status, minus its signal, or None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float = HANG_S) -> int:
        """Wait until it has ended; return its exit status, or minus its signal."""
        code = self._ended(timeout)
        assert code is not None, f"process {self.pid} still runs after {timeout} s"
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def _ended(self, within_s: float) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], within_s)[0]:
            self.returncode = int(self._told.recv(16))
            self._told.close()
        return self.returncode


def start_program(argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> Process:
    """Start `REMOTECLAW`, `RQ` or a module with some arguments; it writes to the end of a file."""
    with log.open("ab") as file, Path(os.devnull).open("rb") as nothing:
        return _start(argv, env, nothing, file, file)


def run_command(
    *arguments: str, env: Mapping[str, str], stdin: bytes = b""
) -> "subprocess.CompletedProcess[str]":
    """Run `remoteclaw` with some arguments and see what comes of it."""
    return run_program((REMOTECLAW, *arguments), env=env, stdin=stdin)


def run_program(
    argv: Sequence[str], *, env: Mapping[str, str], stdin: bytes = b""
) -> "subprocess.CompletedProcess[str]":
    """Run one of these and see what comes of it."""
    with TemporaryFile() as source, TemporaryFile() as output, TemporaryFile() as errors:
        source.write(stdin)
        source.seek(0)
        code = _start(argv, env, source, output, errors).wait()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(
            argv, code, output.read().decode(), errors.read().decode()
        )


def _start(argv: Sequence[str], env: Mapping[str, str], *streams: IO[bytes]) -> Process:
    program, *arguments = argv
    module = MODULES.get(program, program)
    numbers = [stream.fileno() for stream in streams]
    return Process(fork(_server(), module, arguments, env=env, streams=numbers))


def fork_worker(code: str) -> Process:
    """Run the code of a worker of the tests, with what they use loaded, in the place of this."""
    streams = [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)]
    server = _shared_server(_LIBRARIES)
    return Process(fork(server, "tests.support.worker", [code], env=os.environ, streams=streams))


def share_servers() -> None:
    """Have the processes that are started from here share those that fork."""
    directory = TemporaryDirectory(prefix="rc-", dir="/tmp")
    atexit.register(directory.cleanup)
    listener = socket.socket(socket.AF_UNIX)
    os.environ[_SHARED] = f"{directory.name}/forks"
    listener.bind(os.environ[_SHARED])
    listener.listen()

    def give() -> None:
        while True:
            with listener.accept()[0] as asking, contextlib.suppress(OSError):
                libraries = asking.recv(1000).decode().split()
                socket.send_fds(asking, [b"."], [_start_server(*libraries).fileno()])

    threading.Thread(target=give, daemon=True).start()


@functools.cache
def _server() -> socket.socket:
    """Return where the process takes orders that forks: the one of all, or our own."""
    return _shared_server(["rq.cli"]) if _SHARED in os.environ else _start_server("rq.cli")


def _shared_server(libraries: Sequence[str]) -> socket.socket:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(HANG_S)
        asking.connect(os.environ[_SHARED])
        asking.send(" ".join(libraries).encode())
        return socket.socket(fileno=socket.recv_fds(asking, 1, 1)[1][0])


def _start_server(*libraries: str) -> socket.socket:
    """Start a process that forks, unless it runs; return where it takes orders.

    It ends with this one. What a program does in the order of a set is another one than here.
    """
    if (known := _SERVERS.get(libraries)) and known[0].poll() is None:
        return known[1]
    modules = [
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for file in (ROOT / "remoteclaw").rglob("*.py")
        if not file.as_posix().endswith(_NOT_IMPORTED)
    ]
    seed = {"PYTHONHASHSEED": "1"} if "rq.cli" in libraries else {}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            server_command(theirs, [*modules, *libraries]),
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **seed},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    _SERVERS[libraries] = process, ours
    return ours
