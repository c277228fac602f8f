"""The version of the code that this process, or the one from which it was forked, has loaded.

And whether the files are those of another version now, as after `git pull`.
"""

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


def _version(number: str) -> str:
    commit = _commit(_PACKAGE.parent)
    return f"{number}+g{commit}" if commit else number


_PACKAGE = Path(__file__).parents[1]
#: The version, and in a checkout the commit. Read with the code: `git pull` doesn't change it.
VERSION = _version(__version__)


def installed_version() -> str:
    """Return the version of the files, which `git pull` changes under running processes."""
    try:
        text = (_PACKAGE / "__init__.py").read_text()
    except OSError:  # it is being replaced
        return VERSION
    number = re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    return _version(number[1]) if number else VERSION
