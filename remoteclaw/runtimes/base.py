"""Runtimes of CLIs: what each has in common with the others before and while it starts."""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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

#: The variables that any program may need: places, the user, the network.
_COMMON = frozenset(
    "HOME PATH SHELL USER LOGNAME LANG LANGUAGE TZ TERM TMPDIR "
    "HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy "
    "SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE "
    "XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME XDG_STATE_HOME XDG_RUNTIME_DIR".split()
)


#: Stands in a note before the point.
_POINT = " @"
#: The first bytes of a program that needs no interpreter.
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
    """Patterns of the real program's path within `node_modules`."""
    terminal: TerminalProgram | None = None

    def find(self, program: str, path: str | None) -> str | None:
        """Return the program to start: the real one, where npm's script would start that."""
        return find_program(program, path=path, natives=self.natives)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the common variables of ours."""
        return inherit(inherited)

    def fitted(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec as it is."""
        return spec

    @abstractmethod
    def process(
        self, pipes: AgentPipes, spec: AgentSpec, *, session_id: str | None, run_dir: Path
    ) -> CliProcess[Any, Any]:
        """Return the process at the other end of the pipes, before its handshake."""

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
        """Return an agent that is ready for a turn: after its handshake, or as it was parked."""
        process = self.process(pipes, spec, session_id=session_id, run_dir=run_dir)
        if parked_state is None:
            await process.handshake(spec, session_id, run_dir, fork=fork)
        else:
            process.restore(parked_state)
        return process


def with_point(note: str, point: str) -> str:
    """Return a note with the CLI's name for the end of the last finished turn."""
    return f"{note}{_POINT}{point}" if point else note


def parted(note: str) -> tuple[str, str]:
    """Return a note and the point that is in it; a copy begins there."""
    own, _, point = note.partition(_POINT)
    return own, point


def inherit(
    inherited: Mapping[str, str],
    *,
    prefixes: Sequence[str] = (),
    without: Collection[str] = (),
) -> dict[str, str]:
    """Return the common variables and those that begin with one of `prefixes`.

    An allow-list: RemoteClaw's own variables, with Redis' address and its tokens, never pass.
    """
    return {
        name: value
        for name, value in inherited.items()
        if (name in _COMMON or name.startswith(("LC_", *prefixes)))
        and name not in without
        and not name.startswith("REMOTECLAW_")
    }


def server_environment(server: McpServerConfig, run_dir: Path) -> dict[str, str]:
    """Return the environment of an MCP server that the CLI starts."""
    return {**server.env, "REMOTECLAW_SIDE_EFFECTS_FILE": str(run_dir / SIDE_EFFECTS_FILE)}


def find_program(command: str, *, path: str | None, natives: Sequence[str] = ()) -> str | None:
    """Return the program that a command means; None if it is not installed.

    npm puts a script on PATH that starts the real program: that costs memory and time, and a signal
    to the script leaves the program running. So the program itself is started where it lies beside.
    `natives` are patterns of where the real program lies within `node_modules`, the best first.
    """
    found = shutil.which(command, path=path)
    return found and (_native(found, natives) or found)


def _native(found: str, natives: Sequence[str]) -> str | None:
    script = Path(os.path.realpath(found))
    if not natives or _is_native(script):
        return None
    for modules in _modules(script):
        for pattern in natives:
            for program in sorted(modules.glob(pattern)):
                if os.access(program, os.X_OK) and _is_native(program):
                    return str(program)
    return None


def _modules(script: Path) -> Iterator[Path]:
    """Yield the directories in which npm may have put what a script's package needs.

    A script that lies elsewhere is the user's own, and is started as it is.
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
