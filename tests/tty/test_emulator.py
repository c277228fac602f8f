"""The emulator's library: it is loaded only when needed, and its absence is explained."""

import subprocess
import sys

from remoteclaw.host.installation import install_command
from remoteclaw.tty import ghostty


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_emulator_is_not_loaded_before_the_first_screen() -> None:
    """Loading takes 0.2 s and 10 MB, which work-horses and commands don't need."""
    code = (
        "import sys, remoteclaw.tty.screen, remoteclaw.tty.keys, remoteclaw.tty.ghostty as e;"
        "e.problem(); print([name for name in ('pyghostty', 'cffi') if name in sys.modules])"
    )

    assert python(code) == "[]"
    assert ghostty.problem() is None


def test_without_the_emulator_terminals_are_off_with_an_explanation() -> None:
    code = """
import sys
class Absent:
    def find_spec(self, name, *more):
        if name.startswith("pyghostty"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "pyghostty" else find_spec(name)
from remoteclaw.errors import TerminalsOff
from remoteclaw.tty import ghostty, keys
from remoteclaw.tty.screen import Screen
try:
    Screen(20, 5)
except TerminalsOff as error:
    assert str(error) == ghostty.problem()
    print(error)
"""

    assert python(code) == (
        "Terminals are off, because the emulator that reads their screens is not installed: run"
        f" `{install_command('terminals')}`; it needs Linux with glibc on x86-64 or aarch64."
    )
