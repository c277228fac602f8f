"""The git program in an untrusted workspace: no program that its repository names is run."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from remoteclaw.host.process import read_beginning

#: Time limit of each git command, in seconds.
GIT_S = 10.0

_OPTIONS = (
    "--no-pager",
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "core.attributesFile=/dev/null", "-c", "core.quotePath=false"),
    *("-c", "core.bigFileThreshold=1m"),  # larger files are only named
)


@dataclass(frozen=True, slots=True)
class Git:
    """The git program, run in a directory."""

    program: str
    directory: Path
    env: Mapping[str, str]

    def run(
        self, *arguments: str, max_bytes: int = 1_000_000, timeout_s: float = GIT_S
    ) -> bytes | None:
        """Return git's output, at most about `max_bytes` of it; None if git fails."""
        argv = (self.program, "-C", str(self.directory), *_OPTIONS, *arguments)
        return read_beginning(argv, env=self.env, timeout_s=timeout_s, max_bytes=max_bytes)


def git_in(workspace: Path) -> Git | None:
    """Return git for a workspace; None if git is not installed.

    Only commands that run no filter and no diff program are safe there: `rev-parse`, `ls-files`.
    """
    program = shutil.which("git")
    if program is None:
        return None
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return Git(program, workspace, {**env, "LANG": "C.UTF-8", "GIT_OPTIONAL_LOCKS": "0"})
