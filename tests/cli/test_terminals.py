"""The commands `terminals`."""

import json
from collections.abc import Iterator

import pytest

from remoteclaw.config.home import Home
from tests.support.cli import refused
from tests.support.command import run_command
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
