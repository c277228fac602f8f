"""The command `service`."""

import os
import sys
from pathlib import Path

import click

from remoteclaw.cli.output import echo_text

UNIT = """\
# Written by `remoteclaw service{argument}` for ~/.config/systemd/user/{name}.service. Then:
#   systemctl --user daemon-reload
#   systemctl --user enable --now {name}
#   loginctl enable-linger          # to start at boot, and stay without a login
[Unit]
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

    The unit has the paths of this installation and of this state directory:

    \b
        remoteclaw service > ~/.config/systemd/user/remoteclaw.service
    """
    from remoteclaw.config.home import Home

    home = Home.default()
    program = Path(sys.executable).with_name("remoteclaw")
    name = "remoteclaw" if part == "up" else f"remoteclaw-{part}"
    # With this PATH, the service finds the same agent CLIs as this shell.
    environment = {"REMOTECLAW_HOME": str(home.path), "PATH": os.environ.get("PATH", "")}
    echo_text(
        UNIT.format(
            argument="" if part == "up" else f" {part}",
            name=name,
            description=PARTS[part],
            after="" if part == "up" else "After=network.target\n",
            environment=" ".join(_quoted(f"{key}={value}") for key, value in environment.items()),
            command=f"{_quoted(str(program)).replace('$', '$$')} {part}",
        ).rstrip("\n")
    )


def _quoted(word: str) -> str:
    """Return a word in quotes for a systemd unit, with quotes, backslashes and `%` escaped."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
