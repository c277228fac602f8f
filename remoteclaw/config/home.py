"""The state directory, which holds all files of a user's installation on one machine."""

import base64
import errno
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
from remoteclaw.locations import AGENT_FILES, socket_directory, state_directory

if TYPE_CHECKING:  # at run time, importing it would make every command load pydantic
    from remoteclaw.config.model import AgentConfig, Config

#: With less room on its disk, in bytes, Redis can't write what it accepts.
MIN_ROOM_BYTES = 1_000_000
#: The number of secret hexadecimal digits in a server's name: 64 bits can't be guessed, and the
#: names of its tools stay short.
NAME_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Home:
    """The state directory. Only its user has access to it.

    The properties are the paths of files and directories in it, which may be absent. `create()`
    makes the directories, for commands that start processes; `check()` makes nothing.
    """

    path: Path

    @classmethod
    def default(cls) -> "Home":
        """Return the state directory of this process: `$REMOTECLAW_HOME`, else `~/.remoteclaw`.

        Raises `StateDirectoryError` if its ~ can't be expanded.
        """
        named = os.environ.get("REMOTECLAW_HOME") or "~"
        if os.path.expanduser(named).startswith("~"):
            raise StateDirectoryError(
                f"The state directory {named} can't be used (~ names no home directory here): "
                "set REMOTECLAW_HOME to an absolute path."
            )
        return cls(Path(state_directory(os.environ)))

    def create(self) -> "Home":
        """Make the directory and its subdirectories, unless they exist.

        Raises `StateDirectoryError` if they can't be used.
        """
        private_directory(self.path)
        private_directory(self.sockets)
        for path in (self.runs, self.logs, self.redis_data, self.gateways):
            _subdirectory(path)
        return self

    def check(self) -> "Home":
        """Raise `StateDirectoryError` if `create()` would fail; make and change nothing."""
        try:
            if self.sockets != self.path and os.path.lexists(self.sockets):
                _check_private(self.sockets)
            if os.path.lexists(self.path):
                _check_private(self.path)
                return self
            nearest = next(path for path in self.path.parents if os.path.lexists(path))
            if not nearest.is_dir():
                raise NotADirectoryError(20, "Not a directory")
            _check_writable(nearest)
        except OSError as error:
            raise _unusable(self.path, error) from None
        return self

    def room_problem(self) -> str | None:
        """Return that the disk of the state directory is full; None if it has room."""
        existing = next(path for path in (self.path, *self.path.parents) if path.exists())
        disk = os.statvfs(existing)
        free = (disk.f_bavail if os.geteuid() else disk.f_bfree) * disk.f_frsize
        if free >= MIN_ROOM_BYTES or not disk.f_blocks:  # some file systems don't report their size
            return None
        return f"The disk with {self.path} is full: make room, or set REMOTECLAW_HOME to another."

    @property
    def config_file(self) -> Path:
        """The configuration file, which may be absent."""
        return Path(os.environ.get("REMOTECLAW_CONFIG") or self.path / "remoteclaw.toml")

    @property
    def is_private(self) -> bool:
        """Whether the directory exists, and other users have no access to it."""
        return self.path.is_dir() and not stat.S_IMODE(self.path.stat().st_mode) & 0o077

    @property
    def valid_config_file(self) -> Path:
        """The copy of the last valid version of the configuration file; it may be absent.

        Each file has its own, so that the check of a draft leaves that of the file in use as it is.
        """
        file = self.config_file
        digest = sha256(os.fsencode(os.path.abspath(file))).hexdigest()[:8]
        return self.path / f"{file.name}.valid-{digest}"

    @property
    def host_id(self) -> str:
        """The name of this installation on this machine, made at the first use and kept."""
        return _kept(self.path / "host-id", _new_host_id)

    def server_name(self, sid: str) -> str:
        """Return the name of our MCP server for a session, the same at each call.

        The name contains a secret. Any other MCP server can choose its name freely, and so must not
        be able to guess this one.
        """
        from remoteclaw.messages import OWN_SERVER

        secret = _kept(self.path / "server-secret", _new_secret)
        digits = hmac.new(secret.encode(), sid.encode(), sha256).hexdigest()[:NAME_DIGITS]
        return f"{OWN_SERVER}-{digits}"

    @property
    def adapter_state_key(self) -> Path:
        """The file with the key of adapters' secrets in Redis, made at the first use and kept."""
        file = self.path / "adapter-state-key"
        _kept(file, _new_state_key)
        return file

    def kept_state(self, channel: str, account: str) -> Path:
        """The file of what an adapter keeps until the account's first process takes it over."""
        return self.path / "adapter-states" / f"{channel}-{account}"

    @property
    def sockets(self) -> Path:
        """The directory of unix sockets, with a short path without special characters."""
        return Path(socket_directory(str(self.path)))

    @property
    def runs(self) -> Path:
        """The directory of the run directories, one for each agent process."""
        return self.sockets / "run"

    @property
    def gateways(self) -> Path:
        """The directory in which each gateway has a socket for our own clients."""
        return self.sockets / "gateways"

    @property
    def terminals(self) -> Path:
        """The directory of terminals' files, including those that a terminal leaves at its end."""
        return self.path / "terminals"

    @property
    def logs(self) -> Path:
        """The directory to which `remoteclaw up` writes the output of its processes."""
        return self.path / "logs"

    @property
    def workspaces(self) -> Path:
        """The directory of the workspaces of agents that have none configured."""
        return self.path / "workspaces"

    def agent_files(self, agent: str) -> Path:
        """The directory of the files that the operator writes for an agent."""
        return self.path / AGENT_FILES / agent

    @property
    def downloads(self) -> Path:
        """The directory in which terminals save files that agents send."""
        return self.path / "downloads"

    @property
    def redis_data(self) -> Path:
        """The directory of the embedded server's append-only file."""
        return self.path / "redis"

    @property
    def redis_socket(self) -> Path:
        """The socket on which the embedded server listens."""
        return self.sockets / "redis.sock"

    def redis_url(self, config: "Config") -> str:
        """Return the address of Redis: the configured one, else the embedded server's."""
        return config.redis.url or f"unix://{self.redis_socket}"

    def workspace_path(self, agent: str, config: "AgentConfig") -> Path:
        """Return the directory in which an agent works, which may not exist yet."""
        if config.workspace is not None:
            return config.workspace.expanduser()
        return self.workspaces / agent

    def workspace(self, agent: str, config: "AgentConfig") -> Path:
        """Return the directory in which an agent works.

        If none is configured, make the default one; raises `StateDirectoryError` if that fails.
        """
        path = self.workspace_path(agent, config)
        if config.workspace is None:
            _subdirectory(path.parent)
            _subdirectory(path)
        return path


def _new_host_id() -> str:
    name = "".join(c for c in socket.gethostname() if c.isalnum() or c == "-")[:32]
    return f"{name or 'host'}-{uuid.uuid4().hex[:8]}"


def _new_secret() -> str:
    return secrets.token_hex(32)


def _new_state_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


@functools.cache
def _kept(file: Path, new: Callable[[], str]) -> str:
    """Return the content of a file; if it is absent, first write the result of `new()` to it."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        # Two processes may start at once, so only the one that holds the lock makes the file.
        with locked(file.with_name(".lock")):
            if not file.exists():
                replace_file(file, f"{new()}\n".encode())
        return file.read_text(encoding="utf-8").strip()


def private_directory(path: Path) -> Path:
    """Make a directory that only this user can enter, unless it exists, and return its path.

    Raises `StateDirectoryError` if it can't be made, belongs to another user, or is open to others
    and not empty: such a directory was made for something else, so its mode must not be changed.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(path)
        if stat.S_IMODE(path.lstat().st_mode) & 0o077:
            path.chmod(0o700)  # safe, since it is empty
    except OSError as error:
        raise _unusable(path, error) from None
    return path


def _subdirectory(path: Path) -> None:
    """Make a directory, unless it exists, in a private one, which keeps other users out of it."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(path, error) from None


def _check_private(path: Path) -> None:
    """Raise unless an existing directory belongs to this user and others have no access to it.

    Raises OSError if it is no directory or can't be used, else `StateDirectoryError`. An empty
    directory may be open to others.
    """
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(20, "Not a directory")
    if status.st_uid != os.getuid():
        raise StateDirectoryError(
            f"{path} belongs to user {status.st_uid}, not to you: remove it, "
            "or set REMOTECLAW_HOME to a directory of your own."
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077 and any(path.iterdir()):
        raise StateDirectoryError(
            f"The state directory {path} is open to other users (mode {mode:03o}): "
            f"`chmod 700 {shlex.quote(str(path))}` if only RemoteClaw uses it, "
            "else set REMOTECLAW_HOME to another directory."
        )
    _check_writable(path)


def _check_writable(path: Path) -> None:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, "Read-only file system")
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "Permission denied")


def _unusable(path: Path, error: OSError) -> StateDirectoryError:
    return StateDirectoryError(
        f"The state directory {path} can't be used ({error.strerror}): "
        "set REMOTECLAW_HOME to a directory that you can write to."
    )
