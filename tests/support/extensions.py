"""Packages of others, as they are installed: the example, and packages with some entry points."""

import functools
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from remoteclaw import extensions, profiles
from tests.support.agents import ROOT

#: The directory of the example.
EXAMPLE = ROOT / "examples" / "package"


def install_example(directory: Path) -> None:
    """Build the example, and install it into a directory of modules."""
    built = directory / "built"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(command, cwd=EXAMPLE, check=True, capture_output=True)
    (wheel,) = built.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)


def look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the entry points of packages looked up anew, both now and after the test."""
    for module in (extensions, profiles):
        for name in ("extensions", "load_extension"):
            if hasattr(module, name):
                again = functools.cache(getattr(extensions, name).__wrapped__)
                monkeypatch.setattr(module, name, again)


def register(directory: Path, name: str, entry_points: str, *requires: str) -> None:
    """Install a package of the version 1 that has only entry points and requirements."""
    about = directory / f"{name}-1.dist-info"
    about.mkdir(parents=True)
    lines = ("Metadata-Version: 2.1", f"Name: {name}", "Version: 1")
    needs = (f"Requires-Dist: {each}" for each in requires)
    (about / "METADATA").write_text("\n".join((*lines, *needs, "")))
    (about / "entry_points.txt").write_text(entry_points)
