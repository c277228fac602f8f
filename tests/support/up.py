"""`remoteclaw up` as a process, and access to its parts."""

import contextlib
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile

from remoteclaw.config.home import Home
from tests.support.command import REMOTECLAW, Process, run_command, start_program
from tests.support.processes import children, name_of
from tests.support.terminal import env
from tests.support.waiting import HANG_S, eventually_sync


def remoteclaw(home: Home, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, env=env(home, **more))


@contextlib.contextmanager
def running(
    home: Home, shown: list[str] | None = None, /, *options: str, **more: str
) -> Iterator[Process]:
    """Run `up` without a console; its output is added to `shown`.

    The output of the start is there at once, and the rest after its end.
    """
    with NamedTemporaryFile() as file:
        log, lines = Path(file.name), [] if shown is None else shown
        up = start_program((REMOTECLAW, "up", *options), env=env(home, **more), log=log)

        def is_ready() -> bool:
            is_ended = up.poll() is not None
            lines[:] = log.read_text().splitlines(keepends=True)
            assert not is_ended, "".join(lines)
            return any(line.startswith("Ready") for line in lines)

        try:
            eventually_sync(is_ready)
            yield up
        finally:
            up.terminate()
            up.wait()
            lines[:] = log.read_text().splitlines(keepends=True)


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def fork_server_of(up_pid: int) -> int:
    """Return the process id of the fork server of an `up`."""
    (found,) = _named("fork-server", children(up_pid))
    return found


def parts_of(up_pid: int, name: str) -> list[int]:
    """Return the process ids of an `up`'s parts called `name`: `worker`, `gateway` or `channel`."""
    return _named(name, children(fork_server_of(up_pid)))


def gateway_of(up_pid: int) -> int:
    """Return the process id of an `up`'s gateway."""
    (found,) = parts_of(up_pid, "gateway")
    return found


def _named(name: str, pids: list[int]) -> list[int]:
    # One that has restarted itself has its name in its command line only.
    return [pid for pid in pids if name_of(pid) == name or f"\0{name}\0" in command_line(pid)]


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
