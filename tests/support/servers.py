"""Real Redis and Valkey servers for tests, started as RemoteClaw starts its own."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import redis

from remoteclaw.up.embedded import ServerProgram, bundled_server, server_command, suitable_name
from tests.support.waiting import eventually_sync


class Server:
    """A running server."""

    def __init__(
        self,
        program: ServerProgram,
        directory: Path,
        extra: tuple[str, ...],
        *,
        appendfsync: str = "always",
    ) -> None:
        """Prepare a server that syncs each write, so that kills lose the same on a busy disk."""
        self.program = program
        self.directory = directory
        self.socket = directory / "s"
        self.url = f"unix://{self.socket}"
        self._extra = extra
        self._appendfsync = appendfsync
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = server_command(
            self.program, self.directory, self.socket, appendfsync=self._appendfsync
        )
        with (self.directory / "log").open("ab") as log:
            # A write beyond the limit must fail like one to a full disk, not end the server.
            self._process = subprocess.Popen(
                [*command, *self._extra], stdout=log, stderr=log, restore_signals=False
            )
        eventually_sync(self._answers)

    def kill(self) -> None:
        """End it with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the server: it accepts commands, but runs none until exit."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def written(self) -> int:
        """Return the size of the append-only file, in bytes."""
        return self._aof.stat().st_size

    def lose(self, size: int) -> None:
        """Cut the append-only file of an ended server to `size`, as a power failure does."""
        os.truncate(self._aof, size)

    @property
    def _aof(self) -> Path:
        parts = self.directory.glob("appendonlydir/*.incr.aof")
        return next(parts, self.directory / "appendonly.aof")

    @contextlib.contextmanager
    def no_space(self) -> Iterator[None]:
        """Let no file of the server grow until exit."""
        assert self._process is not None
        _, most = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (0, most))
        yield
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (most, most))

    def _answers(self) -> bool:
        try:
            with redis.Redis(unix_socket_path=str(self.socket)) as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False


def installed_servers(*, every: bool = False) -> list[ServerProgram]:
    """Return the embedded server, those on PATH, and those that CI installs for all tests.

    `every` adds the servers that CI installs for one turn each.
    """
    more = os.environ.get("REMOTECLAW_TEST_SERVERS", "").split(":")
    if every:
        more += os.environ.get("REMOTECLAW_TEST_MORE_SERVERS", "").split(":")
    on_path = (shutil.which("redis-server"), shutil.which("valkey-server"))
    found = {}
    for path in (bundled_server(), *on_path, *more):
        if path and (name := suitable_name(path)):
            found[name] = ServerProgram(path, name)
    return list(found.values())


@contextlib.contextmanager
def running_server(program: ServerProgram, directory: Path, *extra: str) -> Iterator[Server]:
    """Run a server with our options, followed by `extra`."""
    server = Server(program, directory, extra)
    server.start()
    try:
        yield server
    finally:
        server.kill()
