"""Programs of CLIs, behind npm's scripts.

npm puts a script on PATH that starts the real program: that costs memory and time, and a signal to
the script leaves the program running. So the program itself is started where it lies beside.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

#: The first bytes of a program that needs no interpreter.
_ELF = b"\x7fELF"


def find_program(command: str, *, path: str | None, natives: Sequence[str] = ()) -> str | None:
    """Return the program that a command means; None if it is not installed.

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
