"""The command /diff: shows the workspace's changes since git's HEAD.

The workspace is untrusted, including the configuration of its repository, which may name programs
for diffs, filters, hooks and watchers. So git runs with an empty configuration, in a temporary
repository that borrows the workspace's objects and has a copy of its index.
"""

import asyncio
import os
import shutil
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.host.git import GIT_S, Git, git_in
from remoteclaw.host.terminal import fenced, printable

#: The longest diff that is shown, in bytes: a few screens.
MAX_BYTES = 12_000
#: At most this many new files are shown with their content.
MAX_NEW_FILES = 100
#: The largest index that is copied, in bytes: that of a million files.
MAX_INDEX_BYTES = 200_000_000
#: The commit to compare with in a repository without commits: the hash of git's empty tree.
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
NO_GIT = "git is not installed on this computer, so nothing can be compared."
NO_REPOSITORY = "`{workspace}` is in no git repository, so there is nothing to compare it with."
FAILED = "git could not compare `{workspace}` within {seconds:.0f} s: run `git diff` there."


async def diff(call: CommandCall) -> CommandReply:
    """Show the workspace's changes since git's HEAD, including new files."""
    return CommandReply(await asyncio.to_thread(_changes, await call.workspace()))


def _changes(workspace: Path) -> str:
    repository = git_in(workspace)
    if repository is None:
        return NO_GIT
    with tempfile.TemporaryDirectory() as directory:
        temporary = Path(directory)
        queries = ("--show-toplevel", "--git-path", "index", "--git-path", "objects")
        # rev-parse reads the configuration, but runs none of the programs that it names.
        output = repository.run("rev-parse", "--path-format=absolute", *queries)
        if output is None or len(paths := output.decode("utf-8", "replace").splitlines()) != 3:
            return NO_REPOSITORY.format(workspace=workspace)
        head = repository.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        commit = head.decode().strip() if head else EMPTY_TREE
        borrower = _create_borrower(temporary, repository, paths, commit)
        text = _compare(borrower, temporary, commit)
    if text is None:
        return FAILED.format(workspace=workspace, seconds=GIT_S)
    since = f"`{commit[:10]}`" if head else "the beginning"
    if not text.strip():
        return f"Nothing has changed in `{workspace}` since {since}."
    return f"Changed in `{workspace}` since {since}:\n\n{_block(text)}"


def _create_borrower(directory: Path, git: Git, paths: list[str], commit: str) -> Git:
    """Create a repository in `directory` that borrows the workspace's, and return `git` for it.

    `paths` are the top directory, the index and the objects of the workspace's repository.
    """
    top, index, objects = paths
    (directory / "refs").mkdir()
    (directory / "objects/info").mkdir(parents=True)
    (directory / "objects/info/alternates").write_text(f"{objects}\n")
    (directory / "HEAD").write_text(f"{commit}\n")
    if _is_copyable(Path(index)):
        # copy2 keeps the index's time: git reads files again that changed right after that time.
        shutil.copy2(index, directory / "index")
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(directory),
        "LANG": "C.UTF-8",
        "GIT_DIR": str(directory),
        "GIT_WORK_TREE": top,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
    return replace(git, env=env)


def _is_copyable(index: Path) -> bool:
    """Whether the index is a regular file and not too large."""
    try:
        status = index.lstat()
    except OSError:  # a repository to which nothing was added has no index
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= MAX_INDEX_BYTES


def _compare(git: Git, directory: Path, commit: str) -> bytes | None:
    """Return a summary of the changes since `commit`, and the diff; None if git fails.

    New files are first added to the index in `directory`, so that the diff includes them.
    """
    if new := git.run("ls-files", "-z", "--others", "--exclude-standard"):
        (directory / "new").write_bytes(b"\0".join(new.split(b"\0")[:MAX_NEW_FILES]))
        names = (f"--pathspec-from-file={directory / 'new'}", "--pathspec-file-nul")
        git.run("add", "--intent-to-add", *names)
    return git.run(
        "diff",
        *("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all"),
        *("--relative", "--patch", "--stat=72,50,30", commit, "--"),
        max_bytes=MAX_BYTES + 1,
    )


def _block(text: bytes) -> str:
    """Return a diff as a code block, cut at the end of a line if it is too long."""
    is_cut = len(text) > MAX_BYTES
    shown = text[:MAX_BYTES].rpartition(b"\n")[0] if is_cut else text
    # Names and contents of files may hide a part of themselves.
    lines = printable(shown.decode("utf-8", "replace").strip("\n").replace("\r", "\\u000d"))
    notice = "\n\nThere is more: `git diff` shows all of it." if is_cut else ""
    return f"{fenced(lines, 'diff')}{notice}"
