"""The state directory: everything that one user's installation keeps on one machine."""

import functools
import hmac
import os
import secrets
import shlex
import socket
import stat
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from remoteclaw.errors import StateDirectoryError
from remoteclaw.host.locks import locked, replace_file

if TYPE_CHECKING:  # else every command would load pydantic
    from remoteclaw.config.model import AgentConfig, Config

#: Paths of unix sockets have 107 bytes at most; this much is left for our own part of them.
MAX_SOCKET_DIR_BYTES = 107 - len("/run/0123456789abcdef/holder.sock")
#: The secret digits of a server's name: 64 bits can't be guessed, and keep names of tools short.
NAME_DIGITS = 16
#: What would end the path, or mean something else, in the URL of a unix socket, or in a rule that
#: lets claude read in a run directory.
NOT_PLAIN = frozenset("#?%()[]*\\")


@dataclass(frozen=True, slots=True)
class Home:
    """The state directory and what lies in it. Everything in it belongs to one user alone.

    Its properties are names of files; `create()` makes the directories, for commands that start
    processes, and `check()` makes nothing.
    """

    path: Path

    @classmethod
    def default(cls) -> "Home":
        """Return `$REMOTECLAW_HOME`, else `~/.remoteclaw`."""
        try:
            return cls(state_directory())
        except RuntimeError:
            named = os.environ.get("REMOTECLAW_HOME", "~")
            raise StateDirectoryError(
                f"The state directory {named} can't be used (~ leads nowhere here): "
                "set REMOTECLAW_HOME to an absolute path."
            ) from None

    def create(self) -> "Home":
        """Make it and its parts; raises `StateDirectoryError` if they can't be used."""
        private_directory(self.path)
        private_directory(self.sockets)
        for path in (self.runs, self.logs, self.redis_data, self.gateways):
            _subdirectory(path)
        return self

    def check(self) -> "Home":
        """Raise `StateDirectoryError` if it could not be used; make and change nothing."""
        try:
            if self.sockets != self.path and os.path.lexists(self.sockets):
                _check_private(self.sockets)
            if os.path.lexists(self.path):
                _check_private(self.path)
                return self
            nearest = next(path for path in self.path.parents if os.path.lexists(path))
            if not nearest.is_dir():
                raise NotADirectoryError(20, "Not a directory")
            if not os.access(nearest, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise _unusable(self.path, error) from None
        return self

    @property
    def config_file(self) -> Path:
        """The configuration file, which may be absent."""
        return Path(os.environ.get("REMOTECLAW_CONFIG") or self.path / "remoteclaw.toml")

    @property
    def host_id(self) -> str:
        """A name for this installation on this machine, made once and kept."""
        return _kept(self.path / "host-id", _new_host_id)

    def server_name(self, sid: str) -> str:
        """Return a name for a session's MCP server that stays, and that no other server can have.

        It is told by a secret: a server of another's choice may call itself what it likes.
        """
        from remoteclaw.messages import OWN_SERVER

        secret = _kept(self.path / "server-secret", _new_secret)
        known = hmac.new(secret.encode(), sid.encode(), sha256).hexdigest()[:NAME_DIGITS]
        return f"{OWN_SERVER}-{known}"

    @property
    def sockets(self) -> Path:
        """A private directory whose path is short enough for unix sockets and plain in a URL."""
        is_short = len(os.fsencode(self.path)) <= MAX_SOCKET_DIR_BYTES
        if is_short and not NOT_PLAIN & set(str(self.path)):
            return self.path
        digest = sha256(os.fsencode(self.path)).hexdigest()[:12]
        # Predictable, but private_directory() refuses one that isn't ours.
        return Path(f"/tmp/remoteclaw-{os.getuid()}-{digest}")  # noqa: S108

    @property
    def runs(self) -> Path:
        """Where every agent process has its run directory."""
        return self.sockets / "run"

    @property
    def gateways(self) -> Path:
        """Where every gateway has a socket for our own connector, which knows only this path."""
        return self.path / "gateways"

    @property
    def terminals(self) -> Path:
        """Where each terminal keeps its files, and what it leaves when it ends."""
        return self.path / "terminals"

    @property
    def logs(self) -> Path:
        """Where `remoteclaw up` writes what its processes print."""
        return self.path / "logs"

    @property
    def workspaces(self) -> Path:
        """Where agents work that have no workspace of their own."""
        return self.path / "workspaces"

    @property
    def downloads(self) -> Path:
        """Where the console saves files that agents send."""
        return self.path / "downloads"

    @property
    def redis_data(self) -> Path:
        """Where the embedded server keeps its append-only file."""
        return self.path / "redis"

    @property
    def redis_socket(self) -> Path:
        """Where the embedded server listens."""
        return self.sockets / "redis.sock"

    def redis_url(self, config: "Config") -> str:
        """Return the address of Redis: the configured one, else the embedded server's."""
        return config.redis.url or f"unix://{self.redis_socket}"

    def workspace_path(self, agent: str, config: "AgentConfig") -> Path:
        """Return the directory an agent works in, whether it is there or not."""
        if config.workspace is not None:
            return config.workspace.expanduser()
        return self.workspaces / agent

    def workspace(self, agent: str, config: "AgentConfig") -> Path:
        """Return the directory an agent works in; its default one is made."""
        path = self.workspace_path(agent, config)
        if config.workspace is None:
            _subdirectory(path.parent)
            _subdirectory(path)
        return path


def state_directory() -> Path:
    """Return `$REMOTECLAW_HOME`, else `~/.remoteclaw`; raises RuntimeError if its ~ is unknown."""
    return Path(os.environ.get("REMOTECLAW_HOME") or "~/.remoteclaw").expanduser().absolute()


def _new_host_id() -> str:
    name = "".join(c for c in socket.gethostname() if c.isalnum() or c == "-")[:32]
    return f"{name or 'host'}-{uuid.uuid4().hex[:8]}"


def _new_secret() -> str:
    return secrets.token_hex(32)


@functools.cache
def _kept(file: Path, new: Callable[[], str]) -> str:
    """Return the content of a file that is made once and kept."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        # Two processes may start at once: only one of them makes the file.
        with locked(file.with_name(".lock")):
            if not file.exists():
                replace_file(file, f"{new()}\n".encode())
        return file.read_text(encoding="utf-8").strip()


def private_directory(path: Path) -> Path:
    """Make a directory that only this user can enter, unless it is there; return it.

    Raises `StateDirectoryError` if it can't be made, isn't ours, or is open to others and in use:
    then it was made for something else, and locking others out of it is not for us to do.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(path)
        if stat.S_IMODE(path.lstat().st_mode) & 0o077:
            path.chmod(0o700)  # it is empty
    except OSError as error:
        raise _unusable(path, error) from None
    return path


def _subdirectory(path: Path) -> None:
    """Make a directory inside of a private one, which keeps others out of it whatever its mode."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(path, error) from None


def _check_private(path: Path) -> None:
    """Raise if a directory that exists can't be ours alone; OSError where the system says why."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(20, "Not a directory")
    if found.st_uid != os.getuid():
        raise StateDirectoryError(
            f"{path} belongs to user {found.st_uid}, not to you: remove it, "
            "or set REMOTECLAW_HOME to a directory of your own."
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077 and any(path.iterdir()):
        raise StateDirectoryError(
            f"The state directory {path} is open to other users (mode {mode:03o}): "
            f"`chmod 700 {shlex.quote(str(path))}` if it is RemoteClaw's alone, "
            "else set REMOTECLAW_HOME to another directory."
        )
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(13, "Permission denied")


def _unusable(path: Path, error: OSError) -> StateDirectoryError:
    return StateDirectoryError(
        f"The state directory {path} can't be used ({error.strerror}): "
        "set REMOTECLAW_HOME to a directory that you can write to."
    )
