"""The systemd user units of `remoteclaw service`, and the files with their secret variables."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.config.model.channels import SecretsConfig, accounts_of
from remoteclaw.host.environment import DIRECTORIES, NETWORK, SESSION
from remoteclaw.up.agents import environment_of

#: The first words of each unit. A unit without them is not of RemoteClaw, and is left as it is.
MARK = "# Written by `remoteclaw service"
#: What stands in a unit before the path of its file with secret variables, which may be absent.
ENVIRONMENT_FILE = "EnvironmentFile=-"
#: The seconds between the end of the last turn and that of its process, at most. After that,
#: systemd kills the process.
END_S = 60
#: What ends after RemoteClaw when the computer shuts down: the units of docs/operations.md.
AFTER = "fleet-redis.service fleet-tunnel.service"
#: The parts, with a description and the arguments of `remoteclaw`.
PARTS = {
    "up": ("everything on this machine", "up"),
    "worker": ("worker %i", "worker"),
    "gateway": ("the gateway of this host", "gateway"),
    "sweep": ("a sweeper", "sweep"),
    "channels": ("the adapters of chat platforms", "channel run"),
}
_UNIT = """\
{mark}` for ~/.config/systemd/user/{name}.service.
{left_out}[Unit]
Description=RemoteClaw: {description}
After={after}
StartLimitIntervalSec=0

[Service]
Environment={environment}
# Variables that may be secrets. No other user can read the file, which may be absent.
{environment_file}{file}
ExecStart={command}
Restart=always
RestartSec=1
# RemoteClaw itself ends or keeps the processes of its agents.
KillMode=process
# Longer than a turn: on SIGTERM, the turns that run are finished first.
TimeoutStopSec={stop_s}
OOMPolicy=continue

[Install]
WantedBy=default.target
"""


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a part, for the environment of this process."""

    part: str
    name: str
    """The name of the unit without `.service`; that of workers is a template and ends with `@`."""
    text: str
    environment_file: Path
    secrets: Mapping[str, str]
    """The variables of this process that the part uses and the unit leaves out."""

    @classmethod
    def of(cls, part: str, home: Home, config: Config) -> "Unit":
        """Return the unit that runs this installation's `part` on the state directory `home`."""
        description, arguments = PARTS[part]
        name = unit_name(part)
        environment = _environment(home)
        secrets = {
            variable: os.environ[variable]
            for variable in sorted({*_used(part, config)} & {*os.environ})
            if variable not in environment
        }
        file = home.path / f"{name.rstrip('@')}.env"
        after = f"{AFTER} remoteclaw-gateway.service remoteclaw-sweep.service"
        program = Path(sys.executable).with_name("remoteclaw")
        text = _UNIT.format(
            mark=MARK,
            environment_file=ENVIRONMENT_FILE,
            name=name,
            left_out=_left_out(secrets, file),
            description=description,
            # So that the last turn of a worker has its tools when everything ends at once.
            after=after if part == "worker" else AFTER,
            environment=" ".join(_quoted(f"{key}={value}") for key, value in environment.items()),
            file=str(file).replace("%", "%%"),
            command=f"{_quoted(str(program)).replace('$', '$$')} {arguments}",
            stop_s=_stop_s(part, config),
        )
        return cls(part, name, text, file, secrets)


def unit_name(part: str) -> str:
    """Return the name of a part's unit, without `.service`."""
    suffix = {"up": "", "worker": "-worker@"}.get(part, f"-{part}")
    return f"remoteclaw{suffix}"


def environment_lines(variables: Mapping[str, str]) -> str:
    """Return the content of an environment file, which systemd and a shell read alike."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())


def read_environment(text: str) -> dict[str, str]:
    """Return the variables of an environment file that `environment_lines()` has made.

    Raises `ValueError` for a text with an open quote.
    """
    words = (word.partition("=") for word in shlex.split(text, comments=True))
    return {name: value for name, _, value in words}


def _environment(home: Home) -> dict[str, str]:
    """Return the variables that are no secret."""
    # With this PATH, the service finds the same agent CLIs as this shell.
    environment = {"REMOTECLAW_HOME": str(home.path), "PATH": os.environ.get("PATH", "")}
    for variable in (*NETWORK, *DIRECTORIES, "REMOTECLAW_CONFIG"):
        value = os.environ.get(variable, "")
        if value and "@" not in value:  # the address of a proxy may have a password
            environment[variable] = value
    return environment


def _used(part: str, config: Config) -> Iterator[str]:
    """Yield the variables that a part uses besides those of each session, set or not."""
    yield from NETWORK
    yield from (name for name in os.environ if name.startswith("REMOTECLAW_"))
    if part in ("up", "worker"):
        names = chain.from_iterable(map(environment_of, config.agents.values()))
        yield from (name for name in names if name not in SESSION and not name.startswith("LC_"))
    if part in ("up", "channels", "gateway"):
        for channel in config.channels.values():
            for account in accounts_of(channel).values():
                if isinstance(account, SecretsConfig):
                    yield from (getattr(account, f"{name}_env") or "" for name in account.secrets)


def _left_out(secrets: Mapping[str, str], file: Path) -> str:
    """Return comments about the variables that are set here and are not in the unit."""
    if not secrets:
        return ""
    return (
        "# The unit leaves out these variables of this shell, whose values may be secrets.\n"
        f"# `remoteclaw service install` writes them to {file}:\n"
        f"#   {' '.join(secrets)}\n"
    )


def _stop_s(part: str, config: Config) -> int:
    """Return how many seconds systemd gives a part to end after SIGTERM."""
    longest = {
        "up": config.fleet.stop_s,
        "worker": max(agent.turn_s for agent in config.agents.values()),
    }
    return int(longest.get(part, 0)) + END_S


def _quoted(word: str) -> str:
    """Return a word in quotes for a systemd unit, with quotes, backslashes and `%` escaped."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
