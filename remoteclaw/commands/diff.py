"""The command /diff: what has changed in the workspace since git's HEAD.

The workspace, and so its repository's configuration, is hostile input: it may name programs for
diffs, filters, hooks and watchers. So git runs with an empty configuration, in a repository of its
own that borrows the objects and has a copy of the index.
"""

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from remoteclaw.commands.call import Answer, Asked
from remoteclaw.host.process import read_beginning
from remoteclaw.host.terminal import fenced

#: How much is shown, in bytes: some screens.
MAX_BYTES = 12_000
#: How many new files are shown with what is in them.
MAX_NEW = 100
#: How large the copied index may be, in bytes: that of a million files.
MAX_INDEX = 200_000_000
#: How long git may take for a step, in seconds.
GIT_S = 10.0
#: What has changed since a repository's first day, before its first commit.
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
NO_GIT = "git is not installed on this computer, so nothing can be compared."
NO_REPOSITORY = "`{workspace}` is in no git repository, so there is nothing to compare it with."
FAILED = "git could not compare `{workspace}` within {seconds:.0f} s: ask for `git diff` there."

_OPTIONS = (
    "--no-pager",
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "core.attributesFile=/dev/null", "-c", "core.quotePath=false"),
    *("-c", "core.bigFileThreshold=1m"),  # what is larger is named only
)


async def diff(asked: Asked) -> Answer:
    """Show what has changed in the workspace since git's HEAD, new files included."""
    return Answer(await asyncio.to_thread(_changes, await asked.workspace()))


def _changes(workspace: Path) -> str:
    git = shutil.which("git")
    if git is None:
        return NO_GIT
    with tempfile.TemporaryDirectory() as directory:
        own = Path(directory)
        names = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        repository = _Git(git, workspace, {**names, "LANG": "C.UTF-8", "GIT_OPTIONAL_LOCKS": "0"})
        where = ("--show-toplevel", "--git-path", "index", "--git-path", "objects")
        # It reads the configuration and obeys none of it.
        found = repository.run("rev-parse", "--path-format=absolute", *where)
        if found is None or len(paths := found.decode("utf-8", "replace").splitlines()) != 3:
            return NO_REPOSITORY.format(workspace=workspace)
        head = repository.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        commit = head.decode().strip() if head else EMPTY_TREE
        text = _compared(_borrowing(own, git, workspace, paths, commit), own, commit)
    if text is None:
        return FAILED.format(workspace=workspace, seconds=GIT_S)
    since = f"`{commit[:10]}`" if head else "the beginning"
    if not text.strip():
        return f"Nothing has changed in `{workspace}` since {since}."
    return f"Changed in `{workspace}` since {since}:\n\n{_block(text)}"


class _Git:
    """git in a directory, with an environment."""

    def __init__(self, program: str, directory: Path, env: Mapping[str, str]) -> None:
        self._program = program
        self._directory = directory
        self._env = env

    def run(self, *arguments: str, most_bytes: int = 1_000_000) -> bytes | None:
        """Return git's output, or the beginning of a long one; None if git fails."""
        argv = (self._program, "-C", str(self._directory), *_OPTIONS, *arguments)
        return read_beginning(argv, env=self._env, timeout_s=GIT_S, most_bytes=most_bytes)


def _borrowing(own: Path, git: str, workspace: Path, paths: list[str], commit: str) -> _Git:
    """Return git in a repository of its own, with the objects and the index of another one."""
    top, index, objects = paths
    (own / "refs").mkdir()
    (own / "objects/info").mkdir(parents=True)
    (own / "objects/info/alternates").write_text(f"{objects}\n")
    (own / "HEAD").write_text(f"{commit}\n")
    if _is_index(Path(index)):
        # With its time, by which git knows what was changed too soon behind it to be seen by size.
        shutil.copy2(index, own / "index")
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(own),
        "LANG": "C.UTF-8",
        "GIT_DIR": str(own),
        "GIT_WORK_TREE": top,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
    return _Git(git, workspace, env)


def _is_index(path: Path) -> bool:
    """Whether it is a file that can be copied."""
    try:
        about = path.lstat()
    except OSError:  # nothing was ever added
        return False
    return stat.S_ISREG(about.st_mode) and about.st_size <= MAX_INDEX


def _compared(git: _Git, own: Path, commit: str) -> bytes | None:
    """Return a summary of the changes and the changes; None if git fails."""
    if new := git.run("ls-files", "-z", "--others", "--exclude-standard"):
        (own / "new").write_bytes(b"\0".join(new.split(b"\0")[:MAX_NEW]))
        names = (f"--pathspec-from-file={own / 'new'}", "--pathspec-file-nul")
        git.run("add", "--intent-to-add", *names)
    return git.run(
        "diff",
        *("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all"),
        *("--relative", "--patch", "--stat=72,50,30", commit, "--"),
        most_bytes=MAX_BYTES + 1,
    )


def _block(text: bytes) -> str:
    """Return changes as a block of code, cut at the end of a line."""
    is_cut = len(text) > MAX_BYTES
    shown = text[:MAX_BYTES].rpartition(b"\n")[0] if is_cut else text
    lines = shown.decode("utf-8", "replace").strip("\n")
    rest = "\n\nThere is more: `git diff` shows all of it." if is_cut else ""
    return f"{fenced(lines, 'diff')}{rest}"
