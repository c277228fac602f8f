"""The launch of a CLI in a terminal: what its holder is started with, and the CLI's environment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remoteclaw.holder.wire import joined

#: What a program has no use for, or would take for its terminal's although it is another one's.
FOREIGN = ("STY", "TMUX", "TMUX_PANE", "LINES", "COLUMNS", "VTE_VERSION", "LC_TERMINAL")
FOREIGN_PREFIXES = ("TERM_PROGRAM", "LC_TERMINAL_", "KITTY_", "ITERM_", "WEZTERM_", "GHOSTTY_")


@dataclass(frozen=True, slots=True)
class TerminalLaunch:
    """The data with which a holder starts a CLI in a terminal."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    """Where it works, for people and as PWD."""
    cwd_fd: int | None
    """A descriptor of that directory, in which it then is; None to look the path up."""
    run_dir: Path
    """A 0700 directory of this terminal alone; the holder removes it when it ends."""
    key: str
    """The secret that clients attach with."""
    ended: Path
    """The file, outside `run_dir`, in which the holder leaves what remains; 0600, JSON."""
    lifeline: str = ""
    """Path of a FIFO; when its writer is gone, the terminal ends. Empty for none."""
    cols: int = 120
    rows: int = 32
    idle_s: float = 1800.0
    """How long it lives without an attached client and without any output or input."""

    @property
    def socket_path(self) -> Path:
        """The path of the holder's socket."""
        return self.run_dir / "holder.sock"


def start_body(launch: TerminalLaunch, deadline: float) -> bytes:
    """Return the body of START. Raises `LaunchFailed` for a field with a NUL."""
    fields = [str(launch.ended), str(launch.cols), str(launch.rows), str(launch.idle_s)]
    fields += [launch.key, str(launch.socket_path), str(launch.run_dir), launch.lifeline]
    fields += [launch.cwd, "0", str(deadline), str(len(launch.argv)), *launch.argv]
    return joined([*fields, *(f"{name}={value}" for name, value in _environment(launch).items())])


def _environment(launch: TerminalLaunch) -> dict[str, str]:
    """Return the program's variables, which say what its terminal is and nothing of another."""
    env = {
        name: value
        for name, value in launch.env.items()
        if name not in FOREIGN and not name.startswith(FOREIGN_PREFIXES)
    }
    env |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PWD": launch.cwd}
    if not any(env.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")):
        env["LANG"] = "C.UTF-8"  # without one, characters are halved
    return env
