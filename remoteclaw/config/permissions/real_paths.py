"""The files that a path leads to, by links as they are now."""

import os
from pathlib import Path


def real_paths(path: str, workspace: Path) -> set[Path]:
    """Return the real paths of the files that a CLI may mean by a path.

    There can be two, because some CLIs remove `..` before they follow symbolic links, and others
    after that. None are returned for a path that CLIs may parse differently.
    """
    if not path or path.startswith("~") or path != path.strip() or not path.isprintable():
        return set()
    joined = os.path.join(workspace, path)
    return {Path(os.path.realpath(each)) for each in (joined, os.path.normpath(joined))}


def is_in(path: str, directory: Path, workspace: Path) -> bool:
    """Whether a path, relative to the workspace, leads into a directory."""
    paths = real_paths(path, workspace)
    return bool(paths) and all(each.is_relative_to(directory) for each in paths)
