"""The paths of a workspace that fit a few letters, with which people name files to an agent."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from remoteclaw.host.git import git_in

#: The longest list of files that is read from git, in bytes: about 100,000 files.
MAX_LIST_BYTES = 8_000_000
#: Time limit of git, in seconds: people wait for it while they write.
LIST_S = 2.0
#: Without git, at most this many files and directories are looked at.
MAX_ENTRIES = 20_000


def paths_like(workspace: Path, letters: str, limit: int) -> list[str]:
    """Return at most `limit` paths of files that contain `letters`, the likeliest first.

    The paths are relative to the workspace. Those that git ignores are left out, and hidden ones.
    In a large workspace, only a part is searched. Raises nothing: without a workspace here, there
    are no paths.
    """
    wanted = letters.casefold()
    found = {path for path in _listed(workspace) if wanted in path.casefold() and _is_shown(path)}
    ranked = sorted(found, key=lambda path: _rank(path, wanted))
    root = os.path.realpath(workspace)
    return list(islice((path for path in ranked if _is_inside(root, path)), limit))


def _is_inside(root: str, path: str) -> bool:
    """Whether the workspace has this file: a repository's configuration can lead git elsewhere."""
    full = os.path.join(root, path)
    return os.path.isfile(full) and Path(os.path.realpath(full)).is_relative_to(root)


def _rank(path: str, wanted: str) -> tuple[int, int, str]:
    """Return what a path is sorted by: whether its name, a part or the path begins as wanted."""
    folded = path.casefold()
    name = folded.rpartition("/")[2]
    if name.startswith(wanted):
        place = 0
    elif folded.startswith(wanted) or f"/{wanted}" in folded:
        place = 1
    else:
        place = 2 if wanted in name else 3
    return place, path.count("/"), folded


def _is_shown(path: str) -> bool:
    """Whether a path is neither hidden nor outside, and all of it can be shown and written."""
    parts = path.split("/")
    return path.isprintable() and not any(part == "" or part[0] == "." for part in parts)


def _listed(workspace: Path) -> Iterator[str]:
    git = git_in(workspace) if workspace.is_dir() else None
    listed = None
    if git is not None:
        listed = git.run(
            *("ls-files", "-z", "--cached", "--others", "--exclude-standard"),
            max_bytes=MAX_LIST_BYTES,
            timeout_s=LIST_S,
        )
    if listed is None:  # no git, or no repository
        yield from _walked(workspace)
        return
    for path in listed.split(b"\0")[:-1]:
        yield path.decode("utf-8", "surrogateescape")


def _walked(workspace: Path) -> Iterator[str]:
    """Yield the paths of files, the nearest directories first; no symbolic link is followed."""
    directories, seen = [""], 0
    for directory in directories:  # grows
        try:
            with os.scandir(workspace / directory) as entries:
                for entry in entries:
                    seen += 1
                    if seen > MAX_ENTRIES:
                        return
                    path = f"{directory}{entry.name}"
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(f"{path}/")
                    elif entry.is_file(follow_symlinks=False):
                        yield path
        except OSError:  # not readable, or gone
            continue
