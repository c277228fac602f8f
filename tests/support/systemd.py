"""A systemd manager of a user, as after a login, in a directory of its own.

It is the real program, in a mount namespace in which the machine seems to run systemd, and in a
control group whose processes a test can kill together, as a power failure does.
"""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.support.installed import missing
from tests.support.waiting import HANG_S, eventually_sync

_PROGRAM = Path("/lib/systemd/systemd")
#: Joins the group, pretends that systemd has booted the machine, and becomes the manager.
_START = (
    'echo $$ >"$0/cgroup.procs" && mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && '
    "exec /lib/systemd/systemd --user --log-target=null"
)
#: This machine's logind and journal are not asked. As logind, this one remembers the lingering.
_LOGINCTL = (
    '#!/bin/sh\ncase $1 in enable-linger) echo yes >"$0.state" ;; *) cat "$0.state" ;; esac\n'
)
_JOURNALCTL = '#!/bin/sh\necho "journalctl $*"\n'


class UserManager:
    """The manager, and what a shell needs to talk to it."""

    def __init__(self, directory: Path) -> None:
        if os.geteuid() or not _PROGRAM.exists() or not shutil.which("unshare"):
            missing("only root can start a systemd manager of its own, and needs systemd for that")
        self._group = _unified_groups() / f"remoteclaw-{directory.name}"
        self._process: subprocess.Popen[bytes] | None = None
        self._socket = directory / "runtime" / "systemd" / "private"
        self.units = directory / "user" / ".config" / "systemd" / "user"
        programs = directory / "programs"
        for name, script in (("loginctl", _LOGINCTL), ("journalctl", _JOURNALCTL)):
            programs.mkdir(exist_ok=True)
            (programs / name).write_text(script)
            (programs / name).chmod(0o755)
        self.environment = {
            "HOME": str(directory / "user"),
            "PATH": f"{programs}:/usr/bin:/bin",
            "XDG_RUNTIME_DIR": str(directory / "runtime"),
        }

    def start(self) -> None:
        """Start the manager, which starts the enabled services."""
        self._group.mkdir(exist_ok=True)
        self._socket.parent.parent.mkdir(mode=0o700, exist_ok=True)
        self._process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _START, str(self._group)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
        )
        eventually_sync(self._socket.exists)

    def cut_power(self) -> None:
        """Kill all services and the manager, and wait until nothing is left of them."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._process
        self._process.wait(HANG_S)
        eventually_sync(lambda: not self._pids())
        shutil.rmtree(self._socket.parent.parent)

    def end(self) -> None:
        """End everything, and remove the control groups."""
        self.cut_power()
        # systemd also makes groups of this name in the hierarchies of other controllers.
        for groups in (self._group.parent, *self._group.parent.parent.iterdir()):
            for directory, _, _ in os.walk(groups / self._group.name, topdown=False):
                eventually_sync(partial(_is_removed, directory))

    def _pids(self) -> list[int]:
        files = self._group.rglob("cgroup.procs")
        return [int(pid) for file in files for pid in file.read_text().split()]


def _unified_groups() -> Path:
    """Return the directory of version 2 of the control groups, by which systemd knows processes."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    places = [Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"]
    return places[0] if places else missing("this machine has no control groups of version 2")


@contextlib.contextmanager
def user_manager(directory: Path) -> Iterator[UserManager]:
    """Run a manager for the user whose home is `directory/user`."""
    manager = UserManager(directory)
    manager.start()
    try:
        yield manager
    finally:
        manager.end()


def _is_removed(group: str) -> bool:
    """Remove a control group; return False while init has not reaped its last process."""
    try:
        os.rmdir(group)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
