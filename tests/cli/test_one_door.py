"""The door of commands: the gateway of the state directory, or the same method in this process."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from remoteclaw import __version__
from remoteclaw.cli.access import call_method
from remoteclaw.client import own
from remoteclaw.config.home import Home
from remoteclaw.errors import RemoteClawError
from tests.support.cli import loaded_by, refused, run, without_stack
from tests.support.doors import gateway_process
from tests.support.remote import RemoteGateway
from tests.support.stack import Stack
from tests.support.up import remoteclaw

#: Libraries that a command loads to run a method itself.
OF_METHODS = {"pydantic", "redis", "rq", "starlette"}


async def test_a_command_asks_the_gateway_and_loads_no_slow_library(stack: Stack) -> None:
    session = (await stack.append("hello")).session

    async with gateway_process(stack):
        for words in (
            *(("sessions", "list"), ("usage",), ("cron", "list"), ("deadletters", "list")),
            *(("sessions", "show", session.sid), ("sessions", "tree", session.sid)),
            *(("token", "list"), ("pairing", "list"), ("audit",), ("terminals", "list")),
            ("stop", session.sid),
        ):
            assert not loaded_by(*words, env=stack.env()) & OF_METHODS, words


async def test_a_command_does_not_hang_on_a_frozen_gateway(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = (await stack.append("hello")).session
    monkeypatch.setattr(own, "GREETING_S", 0.2)

    async with gateway_process(stack) as (_, gateway):
        os.kill(gateway.pid, signal.SIGSTOP)
        listed = run(stack, "sessions", "list")

    assert session.sid[:8] in listed.stdout
    assert listed.stderr == ""


async def test_status_works_on_a_host_where_nothing_was_started(
    stack: Stack, directory: Path
) -> None:
    await stack.start_worker()
    (directory / "new").mkdir(mode=0o700)

    shown = without_stack(directory / "new", "status", REMOTECLAW__REDIS__URL=stack.redis.url)

    assert (shown.returncode, shown.stderr) == (0, "")


async def test_the_socket_of_a_killed_gateway_is_no_gateway(stack: Stack) -> None:
    async with gateway_process(stack) as (_, gateway):
        gateway.kill()
        gateway.wait()
        assert [*stack.home.gateways.iterdir()]

        refused(run(stack, "sessions", "show", "nobody"), "'nobody' is no session")


def test_a_gateway_of_another_version_is_not_asked(remote: RemoteGateway, home: Home) -> None:
    remote.version = "0.0.9"

    refused(
        remoteclaw(home, "terminals", "end", "x"),
        f"The gateway that runs here has version 0.0.9, and this command has {__version__}: "
        "restart RemoteClaw.",
    )
    assert remote.asked == []


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("UNAUTHORIZED", "refuses the token "),
        ("INVALID_REQUEST", "has another version, and this command has "),
        ("UNAVAILABLE", "Redis can't be reached."),
    ],
)
def test_a_gateway_that_refuses_the_command_is_not_bypassed(
    remote: RemoteGateway, home: Home, code: str, why: str
) -> None:
    remote.refuses["connect"] = (code, "Redis can't be reached.")

    refused(remoteclaw(home, "sessions", "list"), why)


def test_a_command_gives_up_if_the_gateway_is_gone_during_the_call(
    remote: RemoteGateway, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "AWAY_S", 0.2)
    remote.leaves_at = "terminals.end"

    with pytest.raises(RemoteClawError, match="Whether the command took effect is unknown"):
        call_method("terminals.end", sid="x")


@pytest.fixture
def remote(home: Home) -> Any:
    gateway = RemoteGateway()
    gateway.open_privately(home.create())
    yield gateway
    gateway.close()


async def test_a_state_directory_of_others_gets_no_token(stack: Stack) -> None:
    """Its socket may be another user's, who would receive the token."""
    async with gateway_process(stack):
        stack.home.path.chmod(0o777)
        try:
            refused(run(stack, "sessions", "list"), "chmod 700")
        finally:
            stack.home.path.chmod(0o700)
