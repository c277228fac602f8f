"""`remoteclaw up` as a process, and commands beside it."""

import contextlib
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from remoteclaw.config.home import Home
from tests.support.command import REMOTECLAW, run_command
from tests.support.processes import children
from tests.support.terminal import env
from tests.support.waiting import HANG_S


def remoteclaw(home: Home, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, env=env(home, **more))


@contextlib.contextmanager
def running(
    home: Home, shown: list[str] | None = None, /, **more: str
) -> Iterator["subprocess.Popen[str]"]:
    """Have everything running without a console; what it says at its start is added to `shown`."""
    with subprocess.Popen(
        [REMOTECLAW, "up"],
        env=env(home, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as up:
        assert up.stdout is not None
        lines = [] if shown is None else shown
        for line in up.stdout:
            lines.append(line)
            if line.startswith("Ready"):
                break
        assert lines[-1].startswith("Ready"), "".join(lines)
        try:
            yield up
        finally:
            if up.poll() is None:
                up.terminate()
                up.wait(HANG_S)


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def fork_server_of(up_pid: int) -> int:
    """Return the process id of the server that forks the parts of an `up`."""
    (found,) = _named("fork server", children(up_pid))
    return found


def parts_of(up_pid: int, name: str) -> list[int]:
    """Return the process ids of an `up`'s parts of a name: `worker`, `gateway` or `channel`."""
    return _named(name, children(fork_server_of(up_pid)))


def gateway_of(up_pid: int) -> int:
    """Return the process id of an `up`'s gateway."""
    (found,) = parts_of(up_pid, "gateway")
    return found


def _named(name: str, pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                found.append(pid)
    return found


def address(home: Home) -> str:
    found = re.search(r"^gateway   (http://\S+)$", remoteclaw(home, "status").stdout, re.MULTILINE)
    assert found is not None
    return found[1]


def ask(url: str, token: str | None = None, *, tool: str = "sessions_list") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, f'{{"tool":"{tool}"}}'.encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
