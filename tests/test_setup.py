"""`scripts/setup`: which Python it takes, and what it says when it can't set up."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agents import ROOT


@pytest.fixture
def checkout(directory: Path) -> Path:
    """Return a directory, with a space in its name, that has what `scripts/setup` reads."""
    checkout = directory / "my checkout"
    (checkout / "scripts").mkdir(parents=True)
    for file in [*ROOT.glob("requirements*.txt"), ROOT / "pyproject.toml", ROOT / "scripts/setup"]:
        shutil.copy(file, checkout / file.relative_to(ROOT))
    return checkout


def setup(checkout: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `scripts/setup` without uv, and with an index that can't be reached."""
    offline = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:1",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_RETRIES": "1",
    }
    return subprocess.run(
        [checkout / "scripts/setup"],
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, **offline, **env},
        capture_output=True,
        check=False,
        text=True,
    )


def test_setup_without_a_network_says_so_instead_of_pip(checkout: Path) -> None:
    result = setup(checkout)

    assert result.returncode == 1
    creating, installing, sentence = result.stderr.splitlines()
    version = sys.version.split()[0]
    assert creating.startswith(f"Creating .venv with Python {version} ({sys.executable}) ")
    assert installing.startswith("Installing ")
    assert sentence == (
        f"RemoteClaw could not be set up in {checkout}, because the package index can't be reached:"
        " connect to the network, or set PIP_INDEX_URL to an index that you can reach. Then run"
        " this again."
    )


def test_setup_names_a_python_that_it_cannot_take(checkout: Path) -> None:
    result = setup(checkout, PYTHON="/bin/false")

    assert result.returncode == 1
    assert result.stderr == (
        "RemoteClaw needs Python 3.11 or newer, and PYTHON=/bin/false is none: set it to another"
        " one, or unset it.\n"
    )
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("arguments", [["{}"], ["--no-chat", "--agent", "a", "{}"]])
def test_start_reports_a_missing_directory_before_it_installs(
    checkout: Path, arguments: list[str]
) -> None:
    missing = f"{checkout}/my project"
    shutil.copy(ROOT / "scripts/start", checkout / "scripts")

    result = subprocess.run(
        [checkout / "scripts/start", *(each.format(missing) for each in arguments)],
        capture_output=True,
        check=False,
        text=True,
    )

    assert result.returncode == 2
    assert result.stderr == (
        f"There is no directory {missing} in which the agent could work. To make it: mkdir -p "
        f'"{missing}"\n'
    )
    assert not (checkout / ".venv").exists()
