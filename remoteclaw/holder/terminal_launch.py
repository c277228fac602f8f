"""The launch data of a CLI in a terminal, including the CLI's environment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remoteclaw.holder.wire import encode_fields

#: Variables about the terminal in which RemoteClaw runs: the program would take them for its own.
FOREIGN = ("STY", "TMUX", "TMUX_PANE", "LINES", "COLUMNS", "VTE_VERSION", "LC_TERMINAL")
FOREIGN_PREFIXES = ("TERM_PROGRAM", "LC_TERMINAL_", "KITTY_", "ITERM_", "WEZTERM_", "GHOSTTY_")


@dataclass(frozen=True, slots=True)
class TerminalLaunch:
    """The data with which a holder starts a CLI in a terminal."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    """The path of the CLI's directory, which is also its PWD."""
    cwd_fd: int | None
    """A descriptor of that directory, which the CLI starts in; None to open `cwd` instead."""
    run_dir: Path
    """A new directory of this holder with the mode 0700; the holder removes it at its end."""
    key: str
    """The secret with which clients attach."""
    ended: Path
    """The file, outside of `run_dir`, to which the holder writes the exit status and the last
    output at the end: JSON, with the mode 0600."""
    lifeline: str = ""
    """The path of a FIFO; the terminal ends when its writer is gone. Empty for no lifeline."""
    cols: int = 120
    rows: int = 32
    idle_s: float = 1800.0
    """The terminal ends after this time, in seconds, without a client, output and input."""

    @property
    def socket_path(self) -> Path:
        """The path of the holder's socket."""
        return self.run_dir / "holder.sock"


def start_body(launch: TerminalLaunch, deadline: float) -> bytes:
    """Return the body of START; raises `LaunchFailed` if a field contains a NUL."""
    fields = [str(launch.ended), str(launch.cols), str(launch.rows), str(launch.idle_s)]
    fields += [launch.key, str(launch.socket_path), str(launch.run_dir), launch.lifeline]
    fields += ["0", launch.cwd, "0", str(deadline), str(len(launch.argv)), *launch.argv]
    fields += [f"{name}={value}" for name, value in _environment(launch).items()]
    return encode_fields(fields)


def _environment(launch: TerminalLaunch) -> dict[str, str]:
    """Return the CLI's environment, with the variables of its own terminal."""
    env = {
        name: value
        for name, value in launch.env.items()
        if name not in FOREIGN and not name.startswith(FOREIGN_PREFIXES)
    }
    env |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PWD": launch.cwd}
    if not any(env.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")):
        env["LANG"] = "C.UTF-8"  # without a UTF-8 locale, programs split characters into bytes
    return env
