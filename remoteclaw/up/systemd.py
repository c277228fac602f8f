"""The systemd manager of this user, through `systemctl --user`, and the units that we wrote."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from remoteclaw.errors import RemoteClawError
from remoteclaw.host.process import run_program
from remoteclaw.host.terminal import one_line
from remoteclaw.up.unit import ENVIRONMENT_FILE, MARK

#: Time limit for a call that waits for no process to end, in seconds.
CALL_S = 30.0
#: Time limit for a call that waits for running turns, in seconds: more than systemd itself waits.
STOP_S = 1e9
NO_SYSTEMD = (
    "This machine does not run systemd: let the supervisor that you have run `remoteclaw up`, "
    "restart it when it ends, and wait for it after SIGTERM."
)


@dataclass(frozen=True, slots=True)
class UnitState:
    """The state of a unit, as systemd reports it."""

    active: str
    """`active`, `activating`, `failed`, `inactive` and so on."""
    pid: int
    """The main process; 0 if none runs."""
    restarts: int
    """How often systemd has started it again by itself."""
    is_enabled: bool
    """Whether it starts with the user's manager."""


@dataclass(frozen=True, slots=True)
class Systemd:
    """The systemd manager of this user."""

    directory: Path
    """The directory of the user's own units."""
    environment: Mapping[str, str]

    @classmethod
    def of_this_user(cls) -> "Systemd":
        """Return the manager. Raises `RemoteClawError` if this machine has no systemd."""
        if not shutil.which("systemctl"):
            raise RemoteClawError(NO_SYSTEMD)
        # Absent after `su`; systemctl needs it, and it is the same for each login.
        runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
        settings = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        environment = {**os.environ, "XDG_RUNTIME_DIR": runtime, "SYSTEMD_COLORS": "0"}
        return cls(Path(settings) / "systemd" / "user", environment)

    # -- calls ---------------------------------------------------------------------------------

    def call(self, *arguments: str, timeout_s: float = CALL_S) -> str:
        """Run `systemctl --user`; return its output.

        Raises `RemoteClawError` with the last line of its output if it fails.
        """
        try:
            status, output = self._run("systemctl", "--user", *arguments, timeout_s=timeout_s)
        except OSError as error:
            status, output = 1, str(error) or "it takes too long"
        if status:
            why = one_line((output.strip() or "it printed nothing").splitlines()[-1])
            is_unreachable = "connect to bus" in output.lower()
            if is_unreachable and not Path("/run/systemd/system").is_dir():
                raise RemoteClawError(NO_SYSTEMD)
            hint = ": log in as this user over SSH or on the console" if is_unreachable else ""
            raise RemoteClawError(f"`systemctl --user {arguments[0]}` failed ({why}){hint}.")
        return output

    def state(self, unit: str) -> UnitState:
        """Return the state of a unit, also of one that is not installed."""
        names = ("ActiveState", "MainPID", "NRestarts", "UnitFileState")
        output = self.call("show", unit, *(f"--property={name}" for name in names))
        values = dict(line.partition("=")[::2] for line in output.splitlines())
        return UnitState(
            active=values.get("ActiveState", "inactive"),
            pid=int(values.get("MainPID") or 0),
            restarts=int(values.get("NRestarts") or 0),
            is_enabled=values.get("UnitFileState") == "enabled",
        )

    def last_lines(self, unit: str, count: int) -> list[str]:
        """Return the last lines that a unit has logged; none if the journal can't be read."""
        argv = ("journalctl", "--user", "-u", unit, "-o", "cat", "--no-pager", "-n", str(count))
        try:
            status, output = self._run(*argv, timeout_s=CALL_S)
        except OSError:
            return []
        return [] if status else output.splitlines()

    def lingers(self, *, enable: bool = False) -> bool:
        """Whether this user's services run without a login; `enable` first asks for that."""
        user = str(os.getuid())
        try:
            if enable:
                self._run("loginctl", "enable-linger", user, timeout_s=CALL_S)
            _, output = self._run(
                *("loginctl", "show-user", user, "--property=Linger", "--value"), timeout_s=CALL_S
            )
        except OSError:
            return False
        return output.strip() == "yes"

    def _run(self, *argv: str, timeout_s: float) -> tuple[int, str]:
        return run_program(argv, env=self.environment, timeout_s=timeout_s)

    # -- files ---------------------------------------------------------------------------------

    def file(self, name: str) -> Path:
        """Return the file of a unit, which may be absent."""
        return self.directory / f"{name}.service"

    def is_ours(self, name: str) -> bool:
        """Whether a unit's file was written by `remoteclaw service`."""
        try:
            return self.file(name).read_text(encoding="utf-8", errors="replace").startswith(MARK)
        except OSError:
            return False

    def instances(self, name: str) -> list[str]:
        """Return the units that start by a file: itself, or the enabled instances of a template."""
        if not name.endswith("@"):
            return [f"{name}.service"]
        wanted = self.directory / "default.target.wants"
        return sorted(path.name for path in wanted.glob(f"{name}*.service"))

    def environment_file(self, name: str) -> Path | None:
        """Return the file with the secret variables that a unit of ours names."""
        for line in self.file(name).read_text(encoding="utf-8").splitlines():
            if line.startswith(ENVIRONMENT_FILE):
                return Path(line.removeprefix(ENVIRONMENT_FILE).replace("%%", "%"))
        return None
