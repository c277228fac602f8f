"""The base class of runtimes: a CLI's program, environment and start."""

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.errors import AgentUnavailable, ErrorCategory
from remoteclaw.host.environment import inherit
from remoteclaw.messages import McpServerConfig
from remoteclaw.protocols import (
    SIDE_EFFECTS_FILE,
    AgentPipes,
    AgentProcess,
    AgentSpec,
    Capabilities,
    Remedies,
    TerminalProgram,
)
from remoteclaw.runtimes.agent import CliProcess
from remoteclaw.runtimes.wire import mapping

#: Separates the point from the rest of a note.
_POINT = " @"
#: The names of variables with a key or a token for a model.
_KEY = re.compile(r"_(API_KEY|AUTH_TOKEN|OAUTH_TOKEN)$")
#: The first bytes of a native program.
_ELF = b"\x7fELF"


class BaseRuntime(ABC):
    """A CLI's program, its environment, and the start of its process.

    Each CLI adds `launch()` and `process()` (`protocols.Runtime` is the whole contract).
    """

    name: str
    command: tuple[str, ...]
    capabilities: Capabilities
    remedies = Remedies()
    image_types = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
    natives: tuple[str, ...] = ()
    """Glob patterns of the native program's path within `node_modules`, the best one first."""
    terminal: TerminalProgram | None = None

    def find(self, program: str, path: str | None) -> str | None:
        """Return the path of the program to start; None if it is not installed."""
        return find_program(program, path=path, natives=self.natives)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of `inherited` that the CLI needs: by default the common ones."""
        return inherit(inherited)

    def account(self, env: Mapping[str, str]) -> list[str]:
        """Return the keys in the environment, with the address, and the id of `signed_in()`."""
        keys = [f"{name}={env[name]}" for name in sorted(env) if env[name] and _KEY.search(name)]
        known = [*keys, *filter(None, (self.signed_in(env),))]
        return known and [
            *known,
            *(f"{name}={env[name]}" for name in sorted(env) if name.endswith("_BASE_URL")),
        ]

    def signed_in(self, env: Mapping[str, str]) -> str:
        """Return the id of the account in the CLI's own file; by default empty, for unknown."""
        return ""

    def openings(self, spec: AgentSpec) -> list[str]:
        """Return what the user's files allow although the agent needs permissions: by default none.

        They are parts of a sentence. Whatever RemoteClaw can outrank is not among them.
        """
        return []

    def fitted(self, spec: AgentSpec) -> AgentSpec:
        """Return `spec` unchanged. Raises `AgentUnavailable` if "deny" would not be obeyed."""
        if spec.permissions == "deny" and (openings := self.openings(spec)):
            raise AgentUnavailable(
                f'{self.name} would not obey permissions = "deny": {"; ".join(openings)}. '
                "No setting of RemoteClaw outranks that: remove it, or choose other permissions.",
                category=ErrorCategory.NOT_INSTALLED,
            )
        return spec

    @abstractmethod
    def process(
        self, pipes: AgentPipes, spec: AgentSpec, *, session_id: str | None, run_dir: Path
    ) -> CliProcess[Any, Any]:
        """Return the object for the process behind `pipes`, before its handshake."""

    async def connect(
        self,
        pipes: AgentPipes,
        spec: AgentSpec,
        *,
        session_id: str | None,
        fork: bool,
        parked_state: Mapping[str, Any] | None,
        run_dir: Path,
    ) -> AgentProcess:
        """Return an agent that is ready for a turn: after its handshake, or restored."""
        process = self.process(pipes, spec, session_id=session_id, run_dir=run_dir)
        process.model = spec.model
        if parked_state is None:
            await process.handshake(spec, session_id, run_dir, fork=fork)
        else:
            process.restore(parked_state)
        return process


def json_file(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty for a file that can't be read."""
    try:
        return mapping(orjson.loads(file.read_bytes()))
    except (OSError, ValueError):
        return {}


def with_point(note: str, point: str) -> str:
    """Return `note` with a point appended: the CLI's id of the end of the last finished turn."""
    return f"{note}{_POINT}{point}" if point else note


def split_note(note: str) -> tuple[str, str]:
    """Split a note into its text and its point, up to which a fork copies the conversation."""
    text, _, point = note.partition(_POINT)
    return text, point


def server_environment(server: McpServerConfig, run_dir: Path) -> dict[str, str]:
    """Return the environment of an MCP server that the CLI starts as a process."""
    return {**server.env, "REMOTECLAW_SIDE_EFFECTS_FILE": str(run_dir / SIDE_EFFECTS_FILE)}


def find_program(command: str, *, path: str | None, natives: Sequence[str] = ()) -> str | None:
    """Return the path of the program for `command`; None if it is not installed.

    npm puts a script on PATH that starts the native program. The script costs memory and time, and
    a signal to it leaves the program running, so the native program is preferred. `natives` are
    glob patterns of its path within `node_modules`, the best one first.
    """
    program = shutil.which(command, path=path)
    return program and (_native(program, natives) or program)


def _native(program_on_path: str, natives: Sequence[str]) -> str | None:
    """Return the native program of an npm package; None if there is none."""
    script = Path(os.path.realpath(program_on_path))
    if not natives or _is_native(script):
        return None
    for modules in _modules(script):
        for pattern in natives:
            for program in sorted(modules.glob(pattern)):
                if os.access(program, os.X_OK) and _is_native(program):
                    return str(program)
    return None


def _modules(script: Path) -> Iterator[Path]:
    """Yield the `node_modules` directories that may contain the dependencies of a script's package.

    A script outside of `node_modules` has none: it is the user's own, and is started as it is.
    """
    if "node_modules" not in script.parts:
        return
    for directory in script.parents:
        if directory.name == "node_modules":
            yield directory
        elif (directory / "node_modules").is_dir():
            yield directory / "node_modules"


def _is_native(program: Path) -> bool:
    try:
        with program.open("rb") as file:
            return file.read(len(_ELF)) == _ELF
    except OSError:
        return False
