"""Packages that were installed after this process had loaded its code, which it therefore lacks."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

#: When this process, or the one from which it was forked, loaded its code; seconds since 1970.
_LOADED_S = time.time()
#: A hint names at most this many packages.
MAX_NAMED = 5


def newer_packages() -> list[str]:
    """Return the packages, with their versions, that were installed after this process' code."""
    return sorted({name for entry in sys.path for name in _newer(Path(entry or "."))})


def package_hint() -> str:
    """Return a sentence to add to an unexpected problem; empty if no package is newer."""
    names = newer_packages()
    if not names:
        return ""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return (
        f" After this process had started, packages were installed: {', '.join(names[:MAX_NAMED])}"
        f"{more}. If they are the reason, restart `remoteclaw up`, or the workers, the gateway and "
        "`remoteclaw channel run` if you run them yourself."
    )


def is_import_error(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised for, says that code can't be imported."""
    while error is not None:
        if isinstance(error, ImportError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _newer(directory: Path) -> Iterator[str]:
    try:
        for info in directory.glob("*.dist-info"):
            if info.stat().st_mtime > _LOADED_S:
                yield info.name.removesuffix(".dist-info").replace("-", " ", 1)
    except OSError:  # an entry that is gone, or no directory
        return
