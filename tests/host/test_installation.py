"""How packages are added to the installation that runs."""

import importlib.util
import sys
from pathlib import Path

import pytest

from remoteclaw.host.installation import install_command


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of an environment without pip."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "remoteclaw"))
    monkeypatch.setattr(sys, "executable", "/tool/bin/python")
    (tmp_path / "remoteclaw").mkdir()
    return tmp_path / "remoteclaw"


def test_with_pip_an_extra_is_installed_by_this_python() -> None:
    expected = f"{sys.executable} -m pip install pyghostty==0.1.3"

    assert install_command("terminals") == expected


def test_pipx_installs_it_with_a_pip_of_its_own(prefix: Path) -> None:
    (prefix / "pipx_metadata.json").touch()

    assert install_command("terminals") == "pipx runpip remoteclaw install pyghostty==0.1.3"


@pytest.mark.usefixtures("prefix")
def test_uv_installs_it_where_there_is_no_pip() -> None:
    expected = "pip install --python /tool/bin/python pyghostty==0.1.3"

    assert install_command("terminals").partition(" ")[2] == expected
