"""The command `service`."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.output import echo_text
from remoteclaw.host.environment import DIRECTORIES, NETWORK, SESSION

if TYPE_CHECKING:
    from remoteclaw.config.model import Config

UNIT = """\
# Written by `remoteclaw service{argument}` for ~/.config/systemd/user/{name}.service. Then:
#   systemctl --user daemon-reload
#   systemctl --user enable --now {name}
#   loginctl enable-linger          # to start at boot, and stay without a login
{left_out}[Unit]
Description=RemoteClaw: {description}
{after}StartLimitIntervalSec=0

[Service]
Environment={environment}
ExecStart={command}
Restart=always
RestartSec=1
# RemoteClaw itself ends or keeps the processes of its agents.
KillMode=process
OOMPolicy=continue

[Install]
WantedBy=default.target
"""
PARTS = {
    "up": "everything on this machine",
    "worker": "a worker",
    "gateway": "the gateway of this host",
    "sweep": "a sweeper",
}


@click.command()
@click.argument("part", type=click.Choice(list(PARTS)), default="up")
def service(part: str) -> None:
    """Print a systemd unit that runs RemoteClaw, or a PART of it.

    The unit has the paths of this installation and of this state directory, and this shell's
    proxies and certificates. It names other variables that RemoteClaw and its agents get from this
    shell, but has none of their values, which may be secrets.

    \b
        remoteclaw service > ~/.config/systemd/user/remoteclaw.service
    """
    from remoteclaw.config.home import Home
    from remoteclaw.config.load import load_config

    home = Home.default()
    program = Path(sys.executable).with_name("remoteclaw")
    name = "remoteclaw" if part == "up" else f"remoteclaw-{part}"
    # With this PATH, the service finds the same agent CLIs as this shell.
    environment = {"REMOTECLAW_HOME": str(home.path), "PATH": os.environ.get("PATH", "")}
    for variable in (*NETWORK, *DIRECTORIES, "REMOTECLAW_CONFIG"):
        value = os.environ.get(variable, "")
        if value and "@" not in value:  # the address of a proxy may have a password
            environment[variable] = value
    runs_agents = part in ("up", "worker")
    left_out = _left_out(load_config(home.config_file) if runs_agents else None, environment)
    echo_text(
        UNIT.format(
            argument="" if part == "up" else f" {part}",
            name=name,
            left_out=left_out,
            description=PARTS[part],
            after="" if part == "up" else "After=network.target\n",
            environment=" ".join(_quoted(f"{key}={value}") for key, value in environment.items()),
            command=f"{_quoted(str(program)).replace('$', '$$')} {part}",
        ).rstrip("\n")
    )


def _left_out(config: "Config | None", environment: Mapping[str, str]) -> str:
    """Return comments about the variables that are set here and are not in the unit."""
    used = {name for name in os.environ if name in NETWORK or name.startswith("REMOTECLAW_")}
    if config:
        from remoteclaw.up.agents import environment_of

        used |= {name for agent in config.agents.values() for name in environment_of(agent)}
    used &= os.environ.keys() - environment.keys() - {*SESSION}
    names = sorted(name for name in used if not name.startswith("LC_"))
    if not names:
        return ""
    return (
        "# The unit leaves out these variables of this shell, whose values may be secrets. The\n"
        "# first command gives them to the service until you log out; for good, write their lines\n"
        "# to ~/.config/environment.d/remoteclaw.conf, with the mode 0600.\n"
        f"#   systemctl --user import-environment {' '.join(names)}\n"
    )


def _quoted(word: str) -> str:
    """Return a word in quotes for a systemd unit, with quotes, backslashes and `%` escaped."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
