"""The commands `terminals` and `service`."""

import configparser
import json
import re
import shlex
from collections.abc import Iterator

import pytest

from remoteclaw.cli.service import PARTS
from remoteclaw.config.home import Home
from tests.support.cli import refused
from tests.support.command import REMOTECLAW, run_command
from tests.support.remote import SID, RemoteGateway
from tests.support.terminal import env


@pytest.fixture
def gateway(home: Home) -> Iterator[RemoteGateway]:
    gateway = RemoteGateway()
    gateway.show({0: [["a \x1b[2Jscreen"]], 2: [["below"]]})
    gateway.open_privately(home)
    yield gateway
    gateway.close()


def test_terminals_are_listed_and_their_screens_are_printed(
    gateway: RemoteGateway, home: Home
) -> None:
    gateway.record |= {"activity": "waiting", "waitingFor": "Bash: make", "writer": "Ada"}
    listed = run_command("terminals", "list", env=env(home)).stdout
    assert listed.splitlines()[1].split()[:5] == ["5e555e55", "main", "live", "waiting:", "Bash:"]
    screen = run_command("terminals", "screen", "5e55", env=env(home)).stdout
    assert screen == "a \\u001b[2Jscreen\n\nbelow\n"
    for words, expected in (
        (("list",), {"terminals": [gateway.record]}),
        (("screen", SID), gateway.screen_result()),
    ):
        printed = run_command("terminals", *words, "--json", env=env(home)).stdout
        assert json.loads(printed) == expected


def test_terminals_get_keys_and_text_and_are_parked_and_ended(
    gateway: RemoteGateway, home: Home
) -> None:
    for words, stdin in (
        (("key", "5e55", "esc", "ctrl+c"), b""),
        (("input", "5e55", "-"), b"two\nlines\n"),
        (("park", "5e55", "--force"), b""),
        (("end", "5e55"), b""),
    ):
        result = run_command("terminals", *words, env=env(home), stdin=stdin)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert gateway.asked == [
        ("terminals.type", {"sid": "5e55", "keys": ["k:esc", "k:ctrl+c"]}),
        ("terminals.get", {"sid": "5e55"}),
        ("terminals.type", {"sid": SID, "keys": ["p:two\nlines"], "submit": True}),
        ("terminals.park", {"sid": "5e55", "force": True}),
        ("terminals.end", {"sid": "5e55"}),
    ]


def test_a_refusal_of_the_gateway_is_printed_in_one_line(
    gateway: RemoteGateway, home: Home
) -> None:
    gateway.refuses["terminals.end"] = ("NOT_FOUND", "There is no such terminal.")
    refused(run_command("terminals", "end", "x", env=env(home)), "There is no such terminal.")
    gateway.close()
    refused(run_command("terminals", "list", env=env(home)), "start it with `remoteclaw up`")


@pytest.mark.parametrize("part", PARTS)
def test_a_systemd_unit_starts_this_installation_and_spares_its_children(
    part: str, home: Home
) -> None:
    printed = run_command("service", part, env=env(home, REMOTECLAW_HOME='/s p/a"b%c')).stdout
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(printed)

    service = dict(unit["Service"])
    program, *arguments = shlex.split(service["ExecStart"])
    assert program == REMOTECLAW
    assert arguments == [part]
    assert 'REMOTECLAW_HOME=/s p/a"b%%c' in shlex.split(service["Environment"])
    assert service["KillMode"] == "process"
    assert service["Restart"] == "always"
    assert unit["Install"]["WantedBy"] == "default.target"


@pytest.mark.parametrize("part", PARTS)
def test_a_systemd_unit_has_proxies_and_certificates_and_no_secrets(part: str, home: Home) -> None:
    home.config_file.write_text("agents.main.env_pass = ['SSH_AUTH_SOCK', 'NOT_SET']")
    plain = {"https_proxy": "http://proxy:3128", "SSL_CERT_FILE": "/etc/my ca.pem"}
    plain["XDG_CONFIG_HOME"] = "/home/me/settings"
    hidden = {"HTTP_PROXY": "http://me:secret1@proxy", "SSH_AUTH_SOCK": "/secret2"}
    hidden |= {"ANTHROPIC_API_KEY": "secret3", "REMOTECLAW__REDIS__URL": "unix:///secret4"}
    of_agents = {"REMOTECLAW__AGENTS__MAIN__RUNTIME": "claude"}

    printed = run_command("service", part, env=env(home, **plain, **hidden, **of_agents)).stdout

    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(printed)
    written = shlex.split(unit["Service"]["Environment"])
    assert {f"{name}={value}" for name, value in plain.items()} <= {*written}
    assert "secret" not in printed.replace("may be secrets", "")
    (named,) = re.findall("import-environment (.*)", printed)
    expected = {"HTTP_PROXY", "REMOTECLAW__REDIS__URL"}
    expected |= {"SSH_AUTH_SOCK", "ANTHROPIC_API_KEY"} if part in ("up", "worker") else set()
    assert {*named.split()} & {*plain, *hidden, "NOT_SET", "HOME", "PATH"} == expected
