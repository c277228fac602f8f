"""The configuration: one TOML file, environment overrides, and where everything is kept.

The file is `$REMOTECLAW_CONFIG`, else `remoteclaw.toml` in the state directory; it may be absent.
`REMOTECLAW__SECTION__KEY` overrides one value; names with a single underscore are not ours to read.
"""

import difflib
import functools
import os
import socket
import stat
import tempfile
import tomllib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from remoteclaw.errors import ConfigError, StateDirectoryError
from remoteclaw.messages import McpServerConfig

__all__ = [
    "AgentConfig",
    "Config",
    "FleetConfig",
    "Home",
    "HooksConfig",
    "RedisConfig",
    "load_config",
]

_T = TypeVar("_T")

#: Paths of unix sockets have 107 bytes at most; this much is left for our own part of them.
MAX_SOCKET_DIR_BYTES = 107 - len("/run/0123456789abcdef/holder.sock")


def _check_names(value: dict[str, _T]) -> dict[str, _T]:
    """Refuse names that could not be part of a path or of a tool's name."""
    for name in value:
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            raise ValueError(f"has the name {name!r}: use letters, digits, - and _")
    return value


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class RedisConfig(_Section):
    """Where Redis is."""

    url: str | None = None
    """Address of your own Redis or Valkey (redis://, rediss:// or unix://).
    Without it, RemoteClaw runs one itself in its state directory."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must begin with redis://, rediss:// or unix://")
        return value


class FleetConfig(_Section):
    """How turns are run."""

    lease_s: float = Field(default=30, ge=1, le=600)
    """Seconds for which a worker holds a session; after a crash it is taken over so much later."""
    workers: int = Field(default=4, ge=1, le=64)
    """How many `rq worker` processes `remoteclaw up` starts: the number of turns at once."""
    linger_s: float = Field(default=2, ge=0, le=30)
    """Seconds for which a worker waits for the next message of a session after a turn.
    It leaves at once when another session waits for a worker."""


class AgentConfig(_Section):
    """One agent: which CLI, where, and what it may do."""

    runtime: Literal["claude", "demo"] | None = None
    """The CLI that runs it. Without it, the first one that is installed; the demo if none is."""
    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    """The program to run and its first arguments, if it isn't found on PATH by its usual name."""
    workspace: Path | None = None
    """The directory in which the agent works. Without it, one of its own in the state directory."""
    model: str | None = None
    """The model to ask for; without it, the CLI's own choice."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables added to the agent's environment, which otherwise gets little of RemoteClaw's."""
    permissions: Literal["ask", "auto", "deny"] = "ask"
    """Tools that the CLI asks permission for: `auto` allows them all, `deny` refuses them all.
    `ask` refuses them too and says so, as long as there is nobody who can be asked."""
    inherit_mcp: bool = True
    """Whether the MCP servers of the CLI's own configuration stay available."""
    mcp_servers: dict[str, McpServerConfig] = Field(default_factory=dict)
    """More MCP servers for this agent, by name. Their tools need no permission, because you chose
    them, except under `permissions = "deny"`."""
    warm_s: float = Field(default=600, ge=0)
    """Seconds for which an idle agent process is kept warm for the next message."""

    @field_validator("mcp_servers")
    @classmethod
    def _check_servers(cls, value: dict[str, McpServerConfig]) -> dict[str, McpServerConfig]:
        return _check_names(value)


class HooksConfig(_Section):
    """Python functions, as "module:function", to call at moments of a turn."""

    before_runtime_spawn: tuple[str, ...] = ()
    """Before each turn; may return another working directory and more environment."""
    after_runtime_exit: tuple[str, ...] = ()
    """After each turn, with its bounded output and side effects."""
    agent_end: tuple[str, ...] = ()
    """After each turn, with its id, success and duration."""


class Config(_Section):
    """Everything that can be configured."""

    redis: RedisConfig = RedisConfig()
    fleet: FleetConfig = FleetConfig()
    agents: dict[str, AgentConfig] = Field(default_factory=lambda: {"main": AgentConfig()})
    """The agents by name. Messages go to `main`, else to the only one there is."""
    hooks: HooksConfig = HooksConfig()

    @field_validator("agents")
    @classmethod
    def _check_agents(cls, value: dict[str, AgentConfig]) -> dict[str, AgentConfig]:
        if not value:
            raise ValueError("is empty: leave it out, or name an agent")
        return _check_names(value)

    def agent(self, name: str | None) -> tuple[str, AgentConfig]:
        """Return an agent's name and configuration; `None` asks for the default one.

        Raises `ConfigError` for a name that isn't configured.
        """
        wanted = name or ("main" if "main" in self.agents or len(self.agents) > 1 else None)
        if wanted is None:
            return next(iter(self.agents.items()))
        if wanted not in self.agents:
            raise ConfigError(
                f"There is no agent {wanted!r}: the configuration has {_listing(self.agents)}."
            )
        return wanted, self.agents[wanted]


# ---------------------------------------------------------------------------------------------
# The state directory


@dataclass(frozen=True, slots=True)
class Home:
    """The state directory and what lies in it. Everything in it belongs to one user alone."""

    path: Path

    @classmethod
    def default(cls) -> "Home":
        """Return `$REMOTECLAW_HOME`, else `~/.remoteclaw`."""
        return cls(Path(os.environ.get("REMOTECLAW_HOME") or "~/.remoteclaw").expanduser())

    def create(self) -> "Home":
        """Make the directory; raises `StateDirectoryError` if it can't be used."""
        private_directory(self.path)
        return self

    @property
    def config_file(self) -> Path:
        """The configuration file, which may be absent."""
        return Path(os.environ.get("REMOTECLAW_CONFIG") or self.path / "remoteclaw.toml")

    @property
    def host_id(self) -> str:
        """A name for this installation on this machine, made once and kept."""
        return _host_id(self.path / "host-id")

    @property
    def sockets(self) -> Path:
        """A private directory whose path is short enough for unix sockets."""
        if len(os.fsencode(self.path)) <= MAX_SOCKET_DIR_BYTES:
            return private_directory(self.path)
        digest = sha256(os.fsencode(self.path.absolute())).hexdigest()[:12]
        # Predictable, but private_directory() refuses one that isn't ours.
        return private_directory(Path(f"/tmp/remoteclaw-{os.getuid()}-{digest}"))  # noqa: S108

    @property
    def runs(self) -> Path:
        """Where every agent process has its run directory."""
        return private_directory(self.sockets / "run")

    def workspace(self, agent: str, config: AgentConfig) -> Path:
        """Return the directory an agent works in; its default one is made."""
        if config.workspace is not None:
            return config.workspace.expanduser().absolute()
        return private_directory(private_directory(self.path / "workspaces") / agent)

    @property
    def logs(self) -> Path:
        """Where `remoteclaw up` writes what its processes print."""
        return private_directory(self.path / "logs")

    @property
    def redis_data(self) -> Path:
        """Where the embedded server keeps its append-only file."""
        return private_directory(self.path / "redis")

    @property
    def redis_socket(self) -> Path:
        """Where the embedded server listens."""
        return self.sockets / "redis.sock"

    def redis_url(self, config: Config) -> str:
        """Return the address of Redis: the configured one, else the embedded server's."""
        return config.redis.url or f"unix://{self.redis_socket}"


@functools.cache
def _host_id(file: Path) -> str:
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        # Two processes may start at once: only one of them can create the file.
        name = "".join(c for c in socket.gethostname() if c.isalnum() or c == "-")[:32]
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as draft:
            draft.write(f"{name or 'host'}-{uuid.uuid4().hex[:8]}\n")
        try:
            os.link(draft.name, file)
        except FileExistsError:
            pass
        finally:
            os.unlink(draft.name)
        return file.read_text().strip()


def private_directory(path: Path) -> Path:
    """Make a directory that only this user can enter, unless it is there; return it.

    Raises `StateDirectoryError` if it can't be made or isn't ours.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(20, "Not a directory")
        if found.st_uid != os.getuid():
            raise StateDirectoryError(
                f"{path} belongs to user {found.st_uid}, not to you: remove it, "
                "or set REMOTECLAW_HOME to a directory of your own."
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            path.chmod(0o700)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise StateDirectoryError(
            f"The state directory {path} can't be used ({error.strerror}): "
            "set REMOTECLAW_HOME to a directory that you can write to."
        ) from None
    return path


# ---------------------------------------------------------------------------------------------
# Reading it


def load_config(home: Home, environment: Mapping[str, str] = os.environ) -> Config:
    """Read the file and the overrides; raises `ConfigError` in one line on the first mistake."""
    file = home.config_file
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if environment.get("REMOTECLAW_CONFIG"):
            raise ConfigError(f"REMOTECLAW_CONFIG names {file}, which does not exist.") from None
        tree = {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}.") from None
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror}.") from None
    sources = _override(tree, environment)
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explain(error, str(file), sources)) from None


def _override(tree: dict[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Put REMOTECLAW__… into the tree; return which path came from which variable."""
    sources = {}
    for name in sorted(environment):
        if not name.startswith("REMOTECLAW__"):
            continue
        path: list[str] = []
        branch = tree
        for part in name.split("__")[1:]:
            if path:
                branch = branch.setdefault(path[-1], {})
            if not isinstance(branch, dict):
                raise ConfigError(f"{name} can't be used: {path[-1]!r} is not a section.")
            # Variables and headers are called what they are called; our own keys are lower case.
            keep = path[-1:] in (["env"], ["headers"])
            path.append(part if keep else _existing(branch, part))
        branch[path[-1]] = _value(environment[name])
        sources[".".join(path)] = name
    return sources


def _existing(branch: Mapping[str, Any], part: str) -> str:
    """Return the key that is meant: one that is there, however it is written, or a new one."""
    return next((key for key in branch if key.lower() == part.lower()), part.lower())


def _value(text: str) -> Any:
    """Read a variable as TOML where it is a list or a table; numbers are told by their field."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(error: ValidationError, file: str, sources: Mapping[str, str]) -> str:
    """Say in one line where the first mistake is, what it is, and what would be right."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    *sections, key = path or [""]
    where = sources.get(".".join(path)) or file
    section = f"[{'.'.join(sections)}] " if sections else ""
    if first["type"] == "extra_forbidden":
        valid = _valid_keys(sections)
        near = difflib.get_close_matches(key, valid, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {_listing(valid)}."
        return f"{where}: {section}has no key {key!r}; {hint}"
    why = first["msg"].removeprefix("Value error, ")
    return f"{where}: {section}{key} is not valid: {why}."


def _valid_keys(sections: list[str]) -> list[str]:
    """Return the keys of the model that a path of sections leads to."""
    model: Any = Config
    for section in sections:
        if isinstance(model, type) and issubclass(model, BaseModel):
            field = model.model_fields.get(section)
            annotation = field.annotation if field else None
            model = annotation
        else:
            # A table of named things, such as agents: the section is one thing's own name.
            model = model.__args__[1] if hasattr(model, "__args__") else None
    return list(model.model_fields) if hasattr(model, "model_fields") else []


def _listing(names: Any) -> str:
    return ", ".join(repr(name) for name in names)
