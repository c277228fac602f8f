"""The time from a clone to the first reply: `python -m tests.bench.newcomer`.

It uses a fresh clone of this checkout, an empty home directory and a project.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.terminal import Terminal

ROOT = Path(__file__).parents[2]
#: Variables that pip may need on this machine.
KEPT = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "SSL_CERT_FILE")
#: The time without output on the screen after which it counts as silence, in seconds.
QUIET_S = 1.5
#: The end of the demo agent's answer.
ANSWER_END = "what happens when an agent dies."


class Watched:
    """Waits for texts on a screen, and adds up the times without output."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self.silent_s = 0.0
        self._size = 0
        self._moved = time.monotonic()

    def until(self, text: str) -> float:
        """Wait for a text; return the time at which it was shown."""
        while text not in self._terminal.shown():
            self._terminal.look()
            now = time.monotonic()
            if len(self._terminal.raw) > self._size:
                self.silent_s += max(0.0, now - self._moved - QUIET_S)
                self._size, self._moved = len(self._terminal.raw), now
        return time.monotonic()


def main() -> None:
    """Print the time of each part, and the time without output on the screen."""
    directory = Path(tempfile.mkdtemp(prefix="rc-"))
    try:
        home, project = directory / "home", directory / "project"
        home.mkdir()
        project.mkdir()
        (project / "plan.txt").touch()
        env = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
        env |= {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHON": sys.executable}
        env["REMOTECLAW__GATEWAY__PORT"] = "0"
        started = time.monotonic()
        subprocess.run(["git", "clone", "-q", ROOT, directory / "remoteclaw"], check=True)
        cloned = time.monotonic()
        start = (str(directory / "remoteclaw/scripts/start"), str(project), "--runtime", "demo")
        with Terminal.running(*start, env=env) as terminal:
            watched = Watched(terminal)
            set_up = watched.until("/remoteclaw up")
            ready = watched.until("Ready in")
            watched.until("›")
            terminal.type("hello\r")
            replied = watched.until(ANSWER_END)
            assert "plan.txt" in terminal.shown()
            terminal.type("exit\r")
            terminal.leave()
    finally:
        shutil.rmtree(directory)
    for name, seconds in (
        ("clone", cloned - started),
        ("setup", set_up - cloned),
        ("ready", ready - set_up),
        ("first reply", replied - ready),
        ("all", replied - started),
        (f"without output for more than {QUIET_S} s", watched.silent_s),
    ):
        sys.stdout.write(f"{name:40} {seconds:6.1f} s\n")


if __name__ == "__main__":
    main()
