"""The installation that runs, by pip, pipx or uv, and the commands that add packages to it.

The commands name the missing packages and never RemoteClaw itself: a package index may not have it,
or have something else under its name.
"""

import importlib.util
import os
import re
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

#: What needs the packages of an extra, besides terminals, whose emulator not every system has.
EXTRAS = {
    "dashboard": "`remoteclaw dashboard` needs",
    "matrix": "Accounts on Matrix need",
    "push": "The page's notifications need",
    "telegram": "Bots on Telegram need",
}


def installer() -> list[str]:
    """Return the command that installs packages into this installation, without the packages."""
    prefix = Path(sys.prefix)
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install"]
    if (prefix / "pipx_metadata.json").exists():
        return ["pipx", "runpip", prefix.name, "install"]
    uv = "uv" if shutil.which("uv") else os.environ.get("UV", "uv")
    return [uv, "pip", "install", "--python", sys.executable]


def install_command(extra: str) -> str:
    """Return the command that installs what an extra of RemoteClaw requires."""
    return shlex.join((*installer(), *_requirements(extra)))


def missing_packages(extra: str) -> str:
    """Return what doesn't work without an extra and how to install it; empty if it is installed."""
    try:
        for requirement in _requirements(extra):
            version(re.split(r"[^\w.-]", requirement)[0])
    except PackageNotFoundError as missing:
        return (
            f"{EXTRAS[extra]} {missing.name}, which is not installed: "
            f"run `{install_command(extra)}`."
        )
    return ""


def _requirements(extra: str) -> list[str]:
    """Return the requirements of an extra of RemoteClaw."""
    marker = re.compile(rf"\s*;\s*extra == ['\"]{extra}['\"]")
    lines = requires("remoteclaw") or ()
    return [line[: found.start()] for line in lines if (found := marker.search(line))]
