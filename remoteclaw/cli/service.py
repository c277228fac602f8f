"""The commands `service`: RemoteClaw, or a part of it, as a systemd user service."""

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import call_method, load, on_fleet
from remoteclaw.cli.output import echo, echo_text, echo_wrapped, print_table
from remoteclaw.clock import boottime
from remoteclaw.errors import RemoteClawError

if TYPE_CHECKING:
    from remoteclaw.config.home import Home
    from remoteclaw.up.systemd import Systemd
    from remoteclaw.up.unit import Unit

#: Time limit for a service to be ready, in seconds: longer than `up` itself waits for its parts.
READY_S = 90.0
#: A service that systemd has started again this often does not become ready by itself.
MAX_RESTARTS = 3
#: A part whose answers don't tell that it works is ready once it has run this long, in seconds.
STEADY_S = 3.0
#: The interval between two looks at a service, in seconds.
LOOK_S = 0.5
#: How many of its last lines are printed of a service that is not ready.
LINES = 10

_PART = click.Choice(["up", "worker", "gateway", "sweep", "channels"])


@click.group()
def service() -> None:
    """Run RemoteClaw as a systemd service.

    The service is this user's, and runs all of it or a part.

    It starts with the computer, without a login, and is started again whenever it ends.
    """


@service.command("show")
@click.argument("part", type=_PART, default="up")
def show_unit(part: str) -> None:
    """Print the systemd unit that runs RemoteClaw, or a PART of it.

    The unit has the paths of this installation and of this state directory, and this shell's
    proxies and certificates. It names other variables that RemoteClaw and its agents get from this
    shell, but has none of their values, which may be secrets.
    """
    from remoteclaw.config.home import Home
    from remoteclaw.config.load import load_config
    from remoteclaw.up.unit import Unit

    home = Home.default()
    echo_text(Unit.of(part, home, load_config(home.config_file)).text.rstrip("\n"))


@service.command("install")
@click.argument("part", type=_PART, default="up")
@click.option("--count", type=click.IntRange(1, 64), default=1, help="How many workers.")
@click.option(
    "--secrets/--no-secrets",
    "with_secrets",
    default=None,
    help="Write variables that may be secrets to a file that only you can read, or leave them out.",
)
def install_service(part: str, count: int, with_secrets: bool | None) -> None:
    """Install the service, start it, and wait until it is ready.

    A second time, it updates the unit; a service whose unit or version has changed is restarted,
    after its running turns.
    """
    from remoteclaw.up.systemd import Systemd
    from remoteclaw.up.unit import Unit

    if count > 1 and part != "worker":
        raise click.UsageError("--count is for `service install worker`.")
    home, config = load()
    systemd = Systemd.of_this_user()
    unit = Unit.of(part, home, config)
    path = systemd.file(unit.name)
    if path.exists() and not systemd.is_ours(unit.name):
        raise RemoteClawError(f"{path} was not written by this command: move it away first.")
    lingers = systemd.lingers(enable=True)  # this also starts the manager of a user without a login
    _refuse_a_second_up(part, home, systemd)
    with_secrets = _wants_secrets(unit, with_secrets)
    home.create()
    has_changed = _write_environment(unit, with_secrets)
    has_changed |= _write(path, unit.text)
    systemd.call("daemon-reload")
    names = [path.name]
    if part == "worker":
        names = [f"{unit.name}{number}.service" for number in range(1, count + 1)]
        _remove_instances(systemd, {*systemd.instances(unit.name)} - {*names})
    running = [name for name in names if systemd.state(name).active == "active"]
    systemd.call("enable", "--now", *names)
    if outdated := running if has_changed else _outdated(running, home, systemd):
        _restart(systemd, outdated)
    for name in names:
        _wait_until_ready(part, name, home, systemd)
        echo(f"{name} runs (process {systemd.state(name).pid}).")
    if lingers:
        echo("It starts with this computer, also without a login.")
    else:
        echo_wrapped(
            "It ends when you log out, and starts when you log in, until an administrator runs "
            f"`loginctl enable-linger {os.getuid()}`."
        )


@service.command("status")
def show_services() -> None:
    """List the installed services.

    Also how often each was started again after it had ended.

    Exit status: 0 all run, 1 one does not, or none is installed.
    """
    from remoteclaw.up.systemd import Systemd

    systemd = Systemd.of_this_user()
    names = [name for unit in _installed(systemd) for name in systemd.instances(unit)]
    states = {name: systemd.state(name) for name in names}
    rows = [
        (
            name,
            state.active,
            str(state.pid or ""),
            "yes" if state.is_enabled else "no",
            state.restarts,
        )
        for name, state in states.items()
    ]
    print_table(
        ("UNIT", "STATE", "PROCESS", "ENABLED", "RESTARTS"), rows, empty="No service is installed."
    )
    if names and not systemd.lingers():
        echo_wrapped(
            "They run only while you are logged in: `loginctl enable-linger` changes that."
        )
    sys.exit(0 if names and all(state.active == "active" for state in states.values()) else 1)


@service.command("logs")
@click.argument("part", type=_PART, required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0), default=100, help="The number of lines.")
def show_logs(part: str | None, follow: bool, lines: int) -> None:
    """Show the log of the services.

    It is in the journal. With PART, only that service's.

    The processes of `up` also write to the directory `logs` of the state directory.
    """
    from remoteclaw.host.process import exec_program
    from remoteclaw.up.systemd import Systemd
    from remoteclaw.up.unit import unit_name

    systemd = Systemd.of_this_user()
    names = _installed(systemd, part)
    if not names:
        raise RemoteClawError("No such service is installed: `remoteclaw service install` does it.")
    units = [f"{name}*" if name == unit_name("worker") else name for name in names]
    argv = ["journalctl", "--user", *(f"--unit={unit}" for unit in units), f"--lines={lines}"]
    exec_program([*argv, *(["--follow"] if follow else [])], systemd.environment)


@service.command("uninstall")
@click.argument("part", type=_PART, required=False)
def uninstall_service(part: str | None) -> None:
    """Stop the services and remove them.

    Only what `install` has written is removed. With PART, only that service.

    Running turns are finished first. The state directory and the lingering of this user stay.
    """
    from remoteclaw.up.systemd import STOP_S, Systemd

    systemd = Systemd.of_this_user()
    names = _installed(systemd, part)
    if not names:
        echo("No such service is installed.")
    for name in names:
        units = systemd.instances(name)
        if units:
            echo(f"Stopping {', '.join(units)}, after running turns.")
            sys.stdout.flush()
            systemd.call("disable", "--now", *units, timeout_s=STOP_S)
        for file in (systemd.environment_file(name), systemd.file(name)):
            if file and file.exists():
                file.unlink()
                echo(f"Removed {file}.")
    if names:
        systemd.call("daemon-reload")


def _installed(systemd: "Systemd", part: str | None = None) -> list[str]:
    """Return the names of the installed units, or that of PART's unit if it is installed."""
    from remoteclaw.up.unit import PARTS, unit_name

    names = [unit_name(each) for each in ([part] if part else PARTS)]
    return [name for name in names if systemd.is_ours(name)]


def _refuse_a_second_up(part: str, home: "Home", systemd: "Systemd") -> None:
    """Raise `RemoteClawError` if an `up` runs that is not the service and has the same gateway."""
    from remoteclaw.up.lock import running_pid
    from remoteclaw.up.unit import unit_name

    pid = running_pid(home) if part in ("up", "gateway") else None
    if pid is not None and pid != systemd.state(f"{unit_name(part)}.service").pid:
        raise RemoteClawError(
            f"RemoteClaw already runs in {home.path} (process {pid}): leave it with Ctrl-D, or end "
            "its service with `remoteclaw service uninstall up`, and install this one then."
        )


def _wants_secrets(unit: "Unit", with_secrets: bool | None) -> bool:
    """Return whether the secrets of this shell are to be written; ask if it is not known."""
    if with_secrets is not None or not unit.secrets:
        return with_secrets is not False
    names = ", ".join(unit.secrets)
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"These variables may be secrets: {names}. Add --secrets to write them to "
            f"{unit.environment_file}, or --no-secrets to leave them out."
        )
    echo_wrapped(f"The service needs these variables of this shell, which may be secrets: {names}.")
    return click.confirm(
        f"Write them to {unit.environment_file}, which only you can read?", default=True
    )


def _write_environment(unit: "Unit", with_secrets: bool) -> bool:
    """Write or remove the file of secret variables; return whether it has changed.

    Variables that an earlier shell had and this one has not stay in it.
    """
    from remoteclaw.up.unit import environment_lines, read_environment

    file = unit.environment_file
    if not with_secrets:
        is_there = file.exists()
        file.unlink(missing_ok=True)
        return is_there
    try:
        kept = read_environment(file.read_text(encoding="utf-8")) if file.exists() else {}
    except ValueError as error:
        raise RemoteClawError(f"{file} can't be read ({error}): correct or remove it.") from None
    variables = {**kept, **unit.secrets}
    if not variables:
        return False
    echo(f"In {file}, which only you can read: {', '.join(variables)}")
    return _write(file, environment_lines(variables))


def _write(path: "os.PathLike[str]", text: str) -> bool:
    """Write a file with the mode 0600; return whether its content has changed."""
    from pathlib import Path

    from remoteclaw.host.locks import replace_file

    path = Path(path)
    try:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            path.chmod(0o600)
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        raise RemoteClawError(f"{path} can't be written ({error.strerror}).") from None
    echo(f"Written: {path}")
    return True


def _remove_instances(systemd: "Systemd", names: "set[str]") -> None:
    """End the workers beyond the wanted number."""
    from remoteclaw.up.systemd import STOP_S

    if names:
        echo(f"Stopping {', '.join(sorted(names))}, after running turns.")
        systemd.call("disable", "--now", *sorted(names), timeout_s=STOP_S)


def _outdated(names: Sequence[str], home: "Home", systemd: "Systemd") -> list[str]:
    """Return the running services whose code is of another version than this command's."""
    from remoteclaw.host.version import VERSION

    try:
        processes = on_fleet(lambda fleet: fleet.processes.list()) if names else ()
    except RemoteClawError:  # the service is not ready, which its reason will say
        return []
    versions = {each.pid: each.version for each in processes if each.host_id == home.host_id}
    return [name for name in names if versions.get(systemd.state(name).pid, VERSION) != VERSION]


def _restart(systemd: "Systemd", names: Sequence[str]) -> None:
    from remoteclaw.up.systemd import STOP_S

    echo(f"Restarting {', '.join(names)}, after running turns.")
    sys.stdout.flush()
    systemd.call("restart", *names, timeout_s=STOP_S)


def _wait_until_ready(part: str, name: str, home: "Home", systemd: "Systemd") -> None:
    """Return once a service is ready. Raises `RemoteClawError`, and prints its last lines."""
    until, since, why, process = boottime() + READY_S, boottime(), "it has not started", 0
    earlier = systemd.state(name).restarts  # systemd counts those of months
    while boottime() < until:
        state = systemd.state(name)
        if state.pid != process or state.active != "active":
            process, since = state.pid, boottime()
        if state.restarts >= earlier + MAX_RESTARTS or state.active == "failed":
            why = "it ends again and again"
            break
        if state.active == "active" and state.pid:
            why = _unready(part, home, state.pid, boottime() - since)
            if not why:
                return
        time.sleep(LOOK_S)
    for line in systemd.last_lines(name, LINES):
        echo(f"  {line}", err=True)
    raise RemoteClawError(
        f"{name} is installed and not ready: {why.rstrip('.')}. `remoteclaw service logs {part}` "
        f"shows more, and `remoteclaw service uninstall {part}` ends it."
    )


def _unready(part: str, home: "Home", pid: int, age_s: float) -> str:
    """Return why the process of a service is not ready; empty if it is.

    `remoteclaw status` asks the same.
    """
    from remoteclaw.up.lock import running_pid

    # Another gateway at the same address looks like ours, until ours ends.
    if part in ("channels", "gateway") and age_s < STEADY_S:
        return "it has just started"
    if part == "channels":
        return ""
    if part == "up" and running_pid(home) != pid:
        return "it is starting"
    try:
        fleet = call_method("fleet.status")
    except RemoteClawError as error:
        return str(error)
    ours = [worker["pid"] for worker in fleet["workers"] if worker["isOurs"]]
    problems = {problem["subject"] for problem in fleet["problems"]}
    is_ready = {
        "up": bool(ours) and bool(fleet["gateway"]),
        "worker": pid in ours,
        "gateway": bool(fleet["gateway"]),
        "sweep": "sweeper" not in problems,
    }
    return "" if is_ready[part] else f"`remoteclaw status` does not show the {part} yet"
