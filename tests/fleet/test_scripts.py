"""The Lua scripts are those of the process' own version."""

import subprocess
import sys

#: A process has been started; then its installation is replaced.
UPGRADED = """
from pathlib import Path
from remoteclaw.fleet.lua import Script
Path.read_text = Path.read_bytes = Path.open = None
assert all([Script.named(name).source for name in Script.names()])
"""


def test_an_upgrade_beneath_a_process_changes_none_of_its_scripts() -> None:
    subprocess.run([sys.executable, "-c", UPGRADED], check=True)
