"""Our programs, each run in a process of its own, without the cost of starting Python.

A new program imports modules for up to a second of processor time. Here, a fork server has already
imported all of `remoteclaw` and RQ.
A test of the start itself uses `REMOTECLAW` or `RQ` with `subprocess`.
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
#: The modules of these programs; any other program is named by its module.
MODULES = {REMOTECLAW: "remoteclaw.cli", RQ: "rq.cli"}
#: The variable by which the processes of a test run find their common fork server.
_SHARED = "TESTS_FORK_SERVER"
#: The fork servers, by the libraries that each has also loaded, with the socket for orders.
_SERVERS: dict[tuple[str, ...], tuple["subprocess.Popen[bytes]", socket.socket]] = {}
#: Libraries that tests need and that load slowly. Pytest's plugins are not among them, because
#: pytest rewrites their asserts.
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
#: Modules that are programs, or that only a chat in a terminal needs.
_NOT_IMPORTED = (
    *("/__main__.py", "/demo/agent.py", "/console.py", "/editor.py"),
    *(f"/holder/{name}.py" for name in ("output", "pipes", "program", "terminal", "tree")),
)
#: `fork()` of `remoteclaw.host.forking`, as a program that starts within 20 ms.
_ORDERING = """\
#!{python} -ISE
import json, os, socket, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
order = json.dumps([["remoteclaw.cli", *sys.argv[1:]], dict(os.environ), os.getcwd()]).encode()
server = socket.socket(fileno={orders})
socket.send_fds(server, [order], [theirs.fileno(), 0, 1, 2])
theirs.close()
ours.recv(16)
os._exit(int(ours.recv(16)) & 255)
"""


class Process:
    """A running program, with the part of `subprocess.Popen` that tests need."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        told.settimeout(HANG_S)
        self.pid = int(told.recv(16))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, or minus the signal; None while the program runs."""
        return self._ended(0)

    def wait(self, timeout: float = HANG_S) -> int:
        """Wait for the end of the program; return its exit status, or minus its signal."""
        code = self._ended(timeout)
        assert code is not None, f"process {self.pid} still runs after {timeout} s"
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program if it is still running."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def _ended(self, within_s: float) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], within_s)[0]:
            self.returncode = int(self._told.recv(16))
            self._told.close()
        return self.returncode


def start_program(argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> Process:
    """Start `REMOTECLAW`, `RQ` or a module with arguments; its output is appended to `log`."""
    with log.open("ab") as file, Path(os.devnull).open("rb") as nothing:
        return _start(argv, env, nothing, file, file)


def run_command(
    *arguments: str, env: Mapping[str, str], stdin: bytes = b""
) -> "subprocess.CompletedProcess[str]":
    """Run `remoteclaw` with arguments to its end, and return status and output."""
    return run_program((REMOTECLAW, *arguments), env=env, stdin=stdin)


def run_program(
    argv: Sequence[str], *, env: Mapping[str, str], stdin: bytes = b""
) -> "subprocess.CompletedProcess[str]":
    """Run `REMOTECLAW`, `RQ` or a module to its end, and return status and output."""
    with TemporaryFile() as source, TemporaryFile() as output, TemporaryFile() as errors:
        source.write(stdin)
        source.seek(0)
        code = _start(argv, env, source, output, errors).wait()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(
            argv, code, output.read().decode(), errors.read().decode()
        )


def run_shell(
    script: str, *, env: Mapping[str, str], directory: Path
) -> "subprocess.CompletedProcess[str]":
    """Run a script of bash in a directory; `remoteclaw` and `.venv/bin/remoteclaw` work there."""
    orders = _server().fileno()
    programs = directory / ".venv" / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    program = programs / "remoteclaw"
    program.write_text(_ORDERING.format(python=sys.executable, orders=orders))
    program.chmod(0o755)
    with TemporaryFile("w+") as output:  # a fork can't write to a pipe as its server's file
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            check=False,
            cwd=directory,
            env={**env, "PATH": f"{programs}:{env['PATH']}"},
            pass_fds=[orders],
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            timeout=HANG_S,
        )
        output.seek(0)
        return subprocess.CompletedProcess(script, ended.returncode, output.read())


def _start(argv: Sequence[str], env: Mapping[str, str], *streams: IO[bytes]) -> Process:
    program, *arguments = argv
    module = MODULES.get(program, program)
    numbers = [stream.fileno() for stream in streams]
    return Process(fork(_server(), module, arguments, env=env, streams=numbers))


def fork_worker(code: str) -> Process:
    """Run the code of a pytest-xdist worker in a fork that has the tests' libraries loaded."""
    streams = [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)]
    server = _shared_server(_LIBRARIES)
    return Process(fork(server, "tests.support.worker", [code], env=os.environ, streams=streams))


def share_servers() -> None:
    """Let all processes that are started from here use the same fork servers."""
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
    """Return the socket for orders of the fork server: the shared one, or our own."""
    return _shared_server(["rq.cli"]) if _SHARED in os.environ else _start_server("rq.cli")


def _shared_server(libraries: Sequence[str]) -> socket.socket:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(HANG_S)
        asking.connect(os.environ[_SHARED])
        asking.send(" ".join(libraries).encode())
        return socket.socket(fileno=socket.recv_fds(asking, 1, 1)[1][0])


def _start_server(*libraries: str) -> socket.socket:
    """Start a fork server unless it runs; return its socket for orders.

    It ends with this process. A server for RQ's programs has a hash seed of its own, so that they
    iterate over sets in another order than this process.
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
