"""A process runs the Lua scripts of its own version."""

import subprocess
import sys

#: A program that can't read its installation any more after its start.
UPGRADED = """
from pathlib import Path
from remoteclaw.fleet.lua import Script
Path.read_text = Path.read_bytes = Path.open = None
assert all([Script.named(name).source for name in Script.names()])
"""


def test_a_running_process_keeps_its_scripts_during_an_upgrade() -> None:
    subprocess.run([sys.executable, "-c", UPGRADED], check=True)
