"""The commands `service`: the units, and what a real systemd makes of them."""

import configparser
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from remoteclaw.config.home import Home
from remoteclaw.fleet import keys
from remoteclaw.up.lock import locked
from remoteclaw.up.unit import PARTS, environment_lines, read_environment, unit_name
from tests.support.bridges import WAITING, script
from tests.support.cli import refused
from tests.support.command import REMOTECLAW, run_command, start_program
from tests.support.installed import missing
from tests.support.stack import Stack, said
from tests.support.systemd import UserManager, user_manager
from tests.support.terminal import env
from tests.support.waiting import eventually


@pytest.fixture
def manager(directory: Path, home: Home) -> Iterator[UserManager]:
    """A systemd manager of the user who has the state directory."""
    with user_manager(directory) as running:
        yield running


def service(
    manager: UserManager, home: Home, *arguments: str, **more: str
) -> "subprocess.CompletedProcess[str]":
    return run_command("service", *arguments, env=env(home, **manager.environment, **more))


def unit_of(printed: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(printed)
    return unit


async def test_a_service_outlives_a_power_failure(stack: Stack, manager: UserManager) -> None:
    """The unit alone brings the conversation back, and the message that came meanwhile."""
    stack.configure({"runtime": "demo", "env_pass": ["KEY"]})
    shell = stack.env(**manager.environment, KEY='it\'s a $ecret \\ "x" `y`')
    installed = run_command("service", "install", "--secrets", env=shell)
    assert installed.returncode == 0, installed.stderr
    assert "also without a login" in installed.stdout
    (pid,) = re.findall(r"remoteclaw.service runs \(process (\d+)\)", installed.stdout)
    environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
    assert f"KEY={shell['KEY']}" in environment
    assert stat.S_IMODE((stack.home.path / "remoteclaw.env").stat().st_mode) == 0o600
    assert await stack.ask("the first words")

    manager.cut_power()
    accepted = await stack.append("memory")
    manager.start()

    assert "the first words" in said(await stack.outcome(accepted))
    listed = run_command("service", "status", env=shell)
    assert listed.returncode == 0
    assert re.search(r"remoteclaw\.service +active +\d+ +yes", listed.stdout)
    beside = run_command("service", "install", "gateway", "--secrets", env=shell)
    assert beside.returncode == 1
    assert "already runs" in beside.stderr
    again = run_command("service", "install", "--secrets", env=shell)
    assert again.returncode == 0, again.stderr
    assert "Written" not in again.stdout
    assert "Restarting" not in again.stdout


async def test_an_uninstalled_worker_finishes_its_turn_and_leaves_other_files(
    stack: Stack, manager: UserManager, directory: Path
) -> None:
    stack.configure({"runtime": "demo", "command": list(script(directory, WAITING))})
    shell = stack.env(**manager.environment)
    foreign = manager.units / "default.target.wants" / "mine.service"
    foreign.parent.mkdir(parents=True)
    foreign.touch()

    def install(count: int) -> list[int]:
        options = ("worker", "--count", str(count), "--secrets")
        installed = run_command("service", "install", *options, env=shell)
        assert installed.returncode == 0, installed.stderr
        pids = re.findall(r"remoteclaw-worker@\d.service runs \(process (\d+)\)", installed.stdout)
        return list(map(int, pids))

    (first, _), (only,) = install(2), install(1)
    assert first == only
    (worker,) = await stack.fleet.workers.list()
    assert worker.pid == only
    accepted = await stack.append("one")
    await stack.reached(accepted, "output")
    log = directory / "uninstall"
    uninstall = start_program((REMOTECLAW, "service", "uninstall"), env=shell, log=log)
    client = stack.fleet.scripts.client
    key = f"rq:worker:{worker.name}"
    await eventually(lambda: client.hexists(key, "shutdown_requested_date"))
    (stack.home.path / "workspaces" / "main" / "go").touch()

    assert uninstall.wait() == 0, log.read_text()
    assert said(await stack.outcome(accepted)) == "heard one"
    steps = (await stack.outcome_so_far(accepted)).steps
    assert {step.attempt for step in steps if step.attempt} == {1}
    assert [path for path in manager.units.rglob("*") if not path.is_dir()] == [foreign]
    assert not list(stack.home.path.glob("*.env"))


async def test_an_installation_restarts_a_service_that_runs_another_version(
    stack: Stack, manager: UserManager
) -> None:
    """As after `git pull`, which changes nothing in the unit."""
    shell = stack.env(**manager.environment)

    def install() -> str:
        installed = run_command("service", "install", "sweep", "--secrets", env=shell)
        assert installed.returncode == 0, installed.stderr
        return installed.stdout

    install()
    client = stack.fleet.scripts.client
    (field,) = await client.hkeys(keys.PROCESSES)
    facts = orjson.loads(await client.hget(keys.PROCESSES, field) or b"")
    await client.hset(keys.PROCESSES, field, orjson.dumps({**facts, "version": "0.0.9"}))

    assert "Restarting remoteclaw-sweep.service" in install()
    assert "Restarting" not in install()


def test_a_service_that_is_not_ready_is_named_with_its_reason_until_it_is_mended(
    stack: Stack, manager: UserManager
) -> None:
    """A sweeper needs a Redis, and this one has none at first."""
    home = stack.home
    home.config_file.unlink()
    installed = service(manager, home, "install", "sweep", "--secrets")

    assert installed.returncode == 1
    *lines, why = installed.stderr.splitlines()
    assert lines == ["  journalctl --user -u remoteclaw-sweep.service -o cat --no-pager -n 10"]
    assert "remoteclaw-sweep.service is installed and not ready: it ends again and again" in why
    listed = service(manager, home, "status").stdout
    assert re.search(r"remoteclaw-sweep\.service .* [3-9]\n", listed), listed
    stack.configure()
    mended = service(manager, home, "install", "sweep", "--secrets")
    assert mended.returncode == 0, mended.stderr


def test_nothing_is_installed_while_another_up_or_unit_is_in_the_way(
    manager: UserManager, home: Home
) -> None:
    with locked(home):
        refused(service(manager, home, "install", "--secrets"), f"(process {os.getpid()})")
    unit = manager.units / "remoteclaw.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    refused(service(manager, home, "install", "--secrets"), "was not written by this command")

    assert service(manager, home, "uninstall").stdout == "No such service is installed.\n"
    assert list(manager.units.rglob("*")) == [unit]
    assert not list(home.path.glob("*.env"))


def test_without_a_terminal_secrets_need_an_option(directory: Path, home: Home) -> None:
    """The command stops before it asks systemd for anything."""
    systemctl = directory / "systemctl"
    systemctl.write_text("#!/bin/sh\n")
    systemctl.chmod(0o755)
    shell = env(home, PATH=str(directory), HTTP_PROXY="http://me:secret1@proxy")

    asked = run_command("service", "install", env=shell)

    assert asked.returncode == 2
    assert "REMOTECLAW__GATEWAY__PORT" in asked.stderr
    assert "Add --secrets" in asked.stderr
    assert "secret1" not in asked.stderr
    assert not (directory / "user" / ".config").exists()


def test_without_systemd_the_command_says_what_to_do(directory: Path, home: Home) -> None:
    absent = run_command("service", "install", env=env(home, PATH=str(directory)))
    refused(absent, "let the supervisor that you have run `remoteclaw up`")


def test_secrets_are_read_as_they_were_written_and_those_of_an_earlier_shell_stay() -> None:
    variables = {"A": 'it\'s $HOME `x` "y" \\ ', "B": "two\nlines", "C": ""}

    assert read_environment(environment_lines(variables)) == variables


@pytest.mark.parametrize("part", PARTS)
def test_a_systemd_unit_starts_this_installation_and_spares_its_children(
    part: str, home: Home
) -> None:
    shell = env(home, REMOTECLAW_HOME='/s p/a"b%c', REMOTECLAW__FLEET__STOP_S="900")
    unit = unit_of(run_command("service", "show", part, env=shell).stdout)

    options = dict(unit["Service"])
    program, *arguments = shlex.split(options["ExecStart"])
    assert program == REMOTECLAW
    assert arguments == {"channels": ["channel", "run"]}.get(part, [part])
    assert 'REMOTECLAW_HOME=/s p/a"b%%c' in shlex.split(options["Environment"])
    assert options["EnvironmentFile"].startswith('-/s p/a"b%%c/remoteclaw')
    assert options["KillMode"] == "process"
    assert options["Restart"] == "always"
    assert int(options["TimeoutStopSec"]) > {"up": 900, "worker": 21_600}.get(part, 0)
    assert unit["Install"]["WantedBy"] == "default.target"


@pytest.mark.parametrize("part", PARTS)
def test_a_systemd_unit_has_proxies_and_certificates_and_no_secrets(part: str, home: Home) -> None:
    home.config_file.write_text(
        "agents.main.env_pass = ['SSH_AUTH_SOCK', 'NOT_SET']\n"
        "channels.telegram.token_env = 'BOT'\nchannels.telegram.owners = ['1']\n"
    )
    plain = {"https_proxy": "http://proxy:3128", "SSL_CERT_FILE": "/etc/my ca.pem"}
    plain["XDG_CONFIG_HOME"] = "/home/me/settings"
    hidden = {"HTTP_PROXY": "http://me:secret1@proxy", "SSH_AUTH_SOCK": "/secret2"}
    hidden |= {"ANTHROPIC_API_KEY": "secret3", "REMOTECLAW__REDIS__URL": "unix:///secret4"}
    hidden["BOT"] = "secret5"
    of_agents = {"REMOTECLAW__AGENTS__MAIN__RUNTIME": "claude"}

    shell = env(home, **plain, **hidden, **of_agents)
    printed = run_command("service", "show", part, env=shell).stdout

    written = shlex.split(unit_of(printed)["Service"]["Environment"])
    assert {f"{name}={value}" for name, value in plain.items()} <= {*written}
    assert not re.search(r"secret\d", printed)
    (named,) = re.findall(r"^#   (.*)", printed, re.MULTILINE)
    expected = {"HTTP_PROXY", "REMOTECLAW__REDIS__URL"}
    expected |= {"SSH_AUTH_SOCK", "ANTHROPIC_API_KEY"} if part in ("up", "worker") else set()
    expected |= {"BOT"} if part in ("up", "channels", "gateway") else set()
    assert {*named.split()} & {*plain, *hidden, "NOT_SET", "HOME", "PATH"} == expected


def test_systemd_finds_no_fault_in_the_units(directory: Path, home: Home) -> None:
    if not shutil.which("systemd-analyze"):
        missing("systemd-analyze is not installed")
    shell = env(home, XDG_RUNTIME_DIR=str(directory))
    files = [directory / f"{unit_name(part)}.service" for part in PARTS]
    for part, file in zip(PARTS, files, strict=True):
        file.write_text(run_command("service", "show", part, env=shell).stdout)

    command = ["systemd-analyze", "verify", "--user", *map(str, files)]
    checked = subprocess.run(command, env=shell, capture_output=True, text=True, check=False)

    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
