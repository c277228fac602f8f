"""The time from a clone to the first reply: `python -m tests.bench.newcomer [wheel]`.

It uses a fresh clone of this checkout, an empty home directory and a project. With `wheel`, it
measures the time from `pip install` of the wheel to the first reply, in a new environment.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
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
        measure = from_wheel if sys.argv[1:] == ["wheel"] else from_clone
        for name, seconds in measure(directory, project, env).items():
            sys.stdout.write(f"{name:40} {seconds:6.1f} s\n")
    finally:
        shutil.rmtree(directory)


def from_clone(directory: Path, project: Path, env: Mapping[str, str]) -> dict[str, float]:
    """Return the times of the parts of the way that the README names first."""
    started = time.monotonic()
    subprocess.run(["git", "clone", "-q", ROOT, directory / "remoteclaw"], check=True)
    cloned = time.monotonic()
    start = (str(directory / "remoteclaw/scripts/start"), str(project), "--runtime", "demo")
    watched, set_up, ready, replied = talk(*start, env=env, set_up_by="/remoteclaw up")
    return {
        "clone": cloned - started,
        "setup": set_up - cloned,
        "ready": ready - set_up,
        "first reply": replied - ready,
        "all": replied - started,
        f"without output for more than {QUIET_S} s": watched.silent_s,
    }


def from_wheel(directory: Path, project: Path, env: Mapping[str, str]) -> dict[str, float]:
    """Return the times of the parts of the way from a release's wheel."""
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory / "built")
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (directory / "built").iterdir()
    started = time.monotonic()
    python = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([python, "-m", "venv", directory / "venv"], check=True, env=env)
    created = time.monotonic()
    install = (directory / "venv/bin/pip", "install", "-q", f"{wheel}[terminals]")
    subprocess.run(install, check=True, env=env)
    installed = time.monotonic()
    start = (str(directory / "venv/bin/remoteclaw"), "up", str(project), "--runtime", "demo")
    _, _, ready, replied = talk(*start, env=env, set_up_by="RemoteClaw")
    return {
        "venv": created - started,
        "pip install": installed - created,
        "ready": ready - installed,
        "first reply": replied - ready,
        "all": replied - started,
    }


def talk(
    *start: str, env: Mapping[str, str], set_up_by: str
) -> tuple[Watched, float, float, float]:
    """Start RemoteClaw and have a message answered; return when it was set up, ready and done."""
    with Terminal.running(*start, env=env) as terminal:
        watched = Watched(terminal)
        set_up = watched.until(set_up_by)
        ready = watched.until("Ready in")
        watched.until("›")
        terminal.type("hello\r")
        replied = watched.until(ANSWER_END)
        assert "plan.txt" in terminal.shown()
        terminal.type("exit\r")
        terminal.leave()
    return watched, set_up, ready, replied


if __name__ == "__main__":
    main()
