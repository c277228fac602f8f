"""The version of the code that this process, or the one from which it was forked, has loaded."""

import re
from pathlib import Path

from remoteclaw import __version__


def _commit(repository: Path) -> str:
    """Return the beginning of the id of a repository's commit; empty if it is no repository."""
    git = repository / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        if head.startswith("ref: "):
            name = head.removeprefix("ref: ")
            loose = git / name
            if loose.exists():
                head = loose.read_text().strip()
            else:
                packed = (git / "packed-refs").read_text()
                match = re.search(rf"^([0-9a-f]{{40}}) {re.escape(name)}$", packed, re.MULTILINE)
                head = match[1] if match else ""
    except OSError:  # no checkout, or a worktree
        return ""
    return head[:7] if re.fullmatch("[0-9a-f]{40}", head) else ""


def _version() -> str:
    commit = _commit(Path(__file__).parents[2])
    return f"{__version__}+g{commit}" if commit else __version__


#: The version, and in a checkout the commit. Read with the code: `git pull` doesn't change it.
VERSION = _version()
