"""A primary, two replicas and three Sentinels, all real, and a network that breaks between them.

The partition is one of rights: the primary and the third Sentinel, on the old side, accept nobody
of the new side any more, and the replicas accept nobody of the old side.
"""

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from remoteclaw.up.embedded import ServerProgram
from tests.support.servers import Server
from tests.support.waiting import eventually_sync

NAME = "mymaster"
#: A Sentinel counts a primary as down after this time, in milliseconds.
DOWN_AFTER_MS = 400
#: The users that the Sentinels and the replica log in as; all have the same password.
NEW_SIDE, OLD_SIDE, REPLICA, PASSWORD = "newside", "oldside", "replica", "between-servers"


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Group:
    """The servers of one primary."""

    def __init__(self, program: ServerProgram, directory: Path, *, safe: bool = True) -> None:
        """Prepare the servers; with `safe`, they want a replica for each write."""
        self._program = program
        self._directory = directory
        self._sentinels: list[subprocess.Popen[bytes]] = []
        self._ports = [free_port() for _ in range(3)]
        self._asked = [free_port() for _ in range(3)]
        self.primary = self._server(0, safe)
        self.replicas = [self._server(1, safe), self._server(2, safe)]
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._asked[:2])
        self.url = f"redis+sentinel://:{PASSWORD}@{hosts}/{NAME}/0"
        """The address on the new side."""
        self.old_url = (
            f"redis+sentinel://:{PASSWORD}@127.0.0.1:{self._asked[2]}/{NAME}"
            f"?sentinel_password={PASSWORD}"
        )
        """The address on the side that the old primary is on after `split()`."""

    def _server(self, number: int, safe: bool) -> Server:
        directory = self._directory / f"server-{number}"
        directory.mkdir(parents=True)
        options = (
            *("--port", str(self._ports[number]), "--bind", "127.0.0.1"),
            *("--repl-diskless-sync-delay", "0"),
            *("--masteruser", REPLICA, "--masterauth", PASSWORD),
            *(("--min-replicas-to-write", "1", "--min-replicas-max-lag", "10") if safe else ()),
            *(("--replicaof", "127.0.0.1", str(self._ports[0])) if number else ()),
        )
        return Server(self._program, directory, options)

    def start(self) -> None:
        """Start all, and wait until the replicas follow and the Sentinels know each other."""
        for server in (self.primary, *self.replicas):
            server.start()
            with redis.Redis(unix_socket_path=str(server.socket)) as admin:
                admin.config_set("requirepass", PASSWORD)
            for user in (NEW_SIDE, OLD_SIDE, REPLICA):
                self._rights(server, user, "on")
        eventually_sync(lambda: _info(self.primary)["connected_slaves"] == 2)
        for number, port in enumerate(self._asked):
            self._sentinels.append(self._sentinel(number, port, is_old=number == 2))
        eventually_sync(lambda: all(self._knows_all(port) for port in self._asked[:2]))

    def _sentinel(self, number: int, port: int, *, is_old: bool) -> subprocess.Popen[bytes]:
        file = self._directory / f"sentinel-{number}.conf"
        lines = [
            f"port {port}",
            "bind 127.0.0.1",
            f"dir {self._directory}",
            f"sentinel monitor {NAME} 127.0.0.1 {self._ports[0]} 2",
            f"sentinel auth-user {NAME} {OLD_SIDE if is_old else NEW_SIDE}",
            f"sentinel auth-pass {NAME} {PASSWORD}",
            f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {NAME} 2000",
            *([f"requirepass {PASSWORD}"] if is_old else ()),
        ]
        file.write_text("\n".join(lines) + "\n")
        with (self._directory / f"sentinel-{number}.log").open("ab") as log:
            return subprocess.Popen(
                [self._program.path, str(file), "--sentinel"], stdout=log, stderr=log
            )

    def _knows_all(self, port: int) -> bool:
        with contextlib.suppress(redis.ConnectionError), _sentinel(port) as asked:
            state: Any = asked.sentinel_master(NAME)
            return bool(state["num-other-sentinels"] == 2 and state["num-slaves"] == 2)
        return False

    def kill(self) -> None:
        """End all servers that run."""
        for process in self._sentinels:
            process.kill()
            process.wait()
        for server in (self.primary, *self.replicas):
            server.kill()

    def split(self) -> None:
        """Part the primary and the third Sentinel from the others; both sides live on."""
        for user in (NEW_SIDE, REPLICA):
            self._rights(self.primary, user, "off")
        for server in self.replicas:
            self._rights(server, OLD_SIDE, "off")

    def config(self, server: Server, name: str, value: str) -> None:
        """Change a setting of one server."""
        with _admin(server) as admin:
            admin.config_set(name, value)

    def heal(self) -> None:
        """Let the two sides reach each other again."""
        for server in (self.primary, *self.replicas):
            for user in (NEW_SIDE, OLD_SIDE, REPLICA):
                self._rights(server, user, "on")

    def is_promoted(self) -> bool:
        """Whether the Sentinels of the new side name a replica as the primary."""
        for port in self._asked[:2]:
            with _sentinel(port) as asked:
                named: Any = asked.sentinel_master(NAME)
            if named["port"] == self._ports[0] or named["flags"] != "master":
                return False
        return True

    def has_rejoined(self) -> bool:
        """Whether the old primary follows the new one."""
        about = _info(self.primary)
        return bool(about["role"] == "slave" and about["master_link_status"] == "up")

    @staticmethod
    def _rights(server: Server, user: str, state: str) -> None:
        with _admin(server) as admin:
            admin.execute_command(
                "ACL", "SETUSER", user, state, f">{PASSWORD}", "~*", "&*", "+@all"
            )
            if state == "off":
                admin.execute_command("CLIENT", "KILL", "USER", user)


def _admin(server: Server) -> Any:
    return redis.Redis(unix_socket_path=str(server.socket), password=PASSWORD)


def _info(server: Server) -> dict[str, Any]:
    with _admin(server) as client:
        about: Any = client.info("replication")
        return dict(about)


def _sentinel(port: int) -> "redis.Redis":
    return redis.Redis(host="127.0.0.1", port=port)


@contextlib.contextmanager
def running_group(program: ServerProgram, directory: Path, *, safe: bool = True) -> Iterator[Group]:
    """Run a group of servers."""
    group = Group(program, directory, safe=safe)
    try:
        group.start()
        yield group
    finally:
        group.kill()
