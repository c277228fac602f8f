"""The sockets in the state directory, through which `remoteclaw mcp` finds a gateway."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.model import GatewayConfig
from remoteclaw.connector import connector_launch
from remoteclaw.gateway.address import MIN_DEAD_AGE_S
from remoteclaw.tools.catalog import TOOLS
from tests.support.connector import Pipes, free_port
from tests.support.doors import gateway_process, own_token
from tests.support.restarts import restart, starts
from tests.support.stack import Stack
from tests.support.waiting import HANG_S, eventually


@contextlib.asynccontextmanager
async def connected(home: Home, **env: str) -> AsyncIterator[Pipes]:
    """Start a connector that knows only its state directory."""
    alone = {"REMOTECLAW_HOME": str(home.path), "REMOTECLAW_GATEWAY_TOKEN": ""}
    async with Pipes.of("", {**alone, **env}) as agent:
        yield agent


async def works(home: Home) -> bool:
    if not (home.path / "connector-token").exists():
        return False
    async with connected(home) as agent:
        return is_done(await agent.call("agents_list"))


def is_done(answer: dict[str, Any]) -> bool:
    return not answer["result"]["isError"]


def token(home: Home) -> str:
    return (home.path / "connector-token").read_text().strip()


def text_of(answer: dict[str, Any]) -> str:
    return str(answer["result"]["content"][0]["text"])


@contextlib.contextmanager
def other_program(port: int) -> Iterator[list[bytes]]:
    """Listen at `port` as another program; yield the list of what it receives."""
    received: list[bytes] = []

    def accept_all() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    connection.settimeout(1)
                    received.append(connection.recv(65536))

    with socket.create_server(("127.0.0.1", port)) as listening:
        threading.Thread(target=accept_all, daemon=True).start()
        yield received
        listening.shutdown(socket.SHUT_RDWR)


async def use_without_gateway(home: Home, **env: str) -> None:
    """Use a connector as an agent does, while no gateway runs."""
    async with connected(home, **env) as agent:
        await agent.ask("initialize", 0)
        await agent.ask("tools/list")
        answer = await agent.call("agents_list")
    assert f"gateway at {home.gateways} can't be reached: " in text_of(answer)
    assert "start it with `remoteclaw up`" in text_of(answer)


@pytest.mark.parametrize("where", ["default", "configured"])
async def test_another_program_at_the_gateways_address_receives_nothing(
    stack: Stack, where: str
) -> None:
    """It could be another user's, before a gateway starts or after it was killed."""
    port = GatewayConfig().port if where == "default" else free_port()
    stack.configure(gateway={"port": port if where == "configured" else 0})
    async with gateway_process(stack):
        pass

    try:
        with other_program(port) as received:
            await use_without_gateway(stack.home)
    except OSError:
        pytest.skip("something listens at the default port")

    assert received == []


async def test_the_connector_finds_a_gateway_at_any_port_without_a_setting(stack: Stack) -> None:
    async with gateway_process(stack) as (door, _):
        assert door.port != GatewayConfig().port
        assert await works(stack.home)
        async with connected(stack.home, REMOTECLAW_GATEWAY_TOKEN=own_token(stack)) as agent:
            all_tools = (await agent.ask("tools/list"))["result"]["tools"]
        async with connected(stack.home) as agent:
            tools = (await agent.ask("tools/list"))["result"]["tools"]
            job = {"name": "tea", "schedule": {"every": 3600}, "message": "tea"}
            refused = await agent.call("cron_add", job=job)

    assert {tool["name"] for tool in all_tools} == set(TOOLS)
    assert {tool["name"] for tool in tools} == {
        name for name, tool in TOOLS.items() if tool.scope != "admin"
    }
    assert "needs a token with the scope admin; this one has write" in text_of(refused)


async def test_an_older_installation_gets_a_connector_token(stack: Stack) -> None:
    old = "x" * 64
    own = stack.home.path / "gateway-token"
    own.touch(0o600)
    own.write_text(old)
    async with gateway_process(stack) as (door, _):
        assert (await door.invoke(old, "cron_list")).status == 200
        assert (await door.invoke(token(stack.home), "sessions_list")).status == 200
        assert (await door.invoke(token(stack.home), "gateway_restart")).status == 403

    assert (stack.home.path / "connector-token").stat().st_mode & 0o777 == 0o600
    assert own.read_text() == old


async def test_the_connector_uses_any_living_gateway_of_its_state_directory(stack: Stack) -> None:
    """Each gateway has its own socket. The socket that a killed gateway leaves is ignored."""
    async with gateway_process(stack) as (_, first):
        async with gateway_process(stack) as (_, second):
            assert len(os.listdir(stack.home.gateways)) == 2
            second.kill()
            second.wait()
            assert await works(stack.home)
        async with gateway_process(stack) as (_, third):
            first.kill()
            first.wait()
            assert await works(stack.home)
            third.terminate()
            third.wait()
        left = os.listdir(stack.home.gateways)
        assert len(left) == 2
        await use_without_gateway(stack.home)

    for name in left:
        os.utime(stack.home.gateways / name, (0, time.time() - MIN_DEAD_AGE_S - 1))
    elsewhere = stack.home.gateways / "00000000-another-machine"
    elsewhere.touch()
    async with gateway_process(stack):
        assert not set(left) & set(os.listdir(stack.home.gateways))
        assert elsewhere.exists()


async def test_a_socket_directory_that_others_can_use_is_refused(stack: Stack) -> None:
    async with gateway_process(stack):
        stack.home.gateways.chmod(0o755)
        async with connected(stack.home) as agent:
            answer = await agent.call("agents_list")

    assert "can't be reached: others can use this directory" in text_of(answer)


async def test_calls_of_a_connector_wait_while_the_gateway_restarts(stack: Stack) -> None:
    async with gateway_process(stack) as (door, _), connected(stack.home) as agent:
        await restart(stack, door)
        count = 0
        while starts(stack) == 1 or count < 6:
            assert is_done(await agent.call("agents_list"))
            assert await works(stack.home)
            count += 1
        await eventually(lambda: len(os.listdir(stack.home.gateways)) == 1)


async def test_the_path_of_the_state_directory_may_be_long(stack: Stack, directory: Path) -> None:
    long = directory / ("long" * 30)
    Home(long).create()
    (long / "remoteclaw.toml").write_text(stack.home.config_file.read_text())
    async with gateway_process(stack, REMOTECLAW_HOME=str(long)):
        assert await works(Home(long))


async def test_a_refused_connector_token_is_reported_with_its_file(stack: Stack) -> None:
    async with gateway_process(stack):
        file = stack.home.path / "connector-token"
        file.write_text("another")
        async with connected(stack.home) as agent:
            refused = await agent.call("agents_list")

    assert f"doesn't accept the token from the file {file}" in text_of(refused)


async def test_the_token_of_the_state_directory_is_not_sent_to_a_configured_url(
    stack: Stack,
) -> None:
    async with gateway_process(stack):
        pass
    port = free_port()
    with other_program(port) as received:
        env = {"REMOTECLAW_GATEWAY_URL": f"http://127.0.0.1:{port}"}
        async with connected(stack.home, **env) as agent:
            await asyncio.wait_for(agent.process.wait(), HANG_S)

    assert agent.process.returncode == 1
    assert "REMOTECLAW_GATEWAY_URL is set without REMOTECLAW_GATEWAY_TOKEN" in agent.errors
    assert received == []


@pytest.mark.parametrize("is_dropped", [False, True])
async def test_the_connector_gives_remoteclaws_agents_no_rights_of_the_person(
    stack: Stack, is_dropped: bool
) -> None:
    """Agents inherit the person's MCP servers, and some CLIs drop environment variables."""
    launch = connector_launch()
    if is_dropped:
        drop = "import os, subprocess, sys; del os.environ['REMOTECLAW_HOLDER']; "
        launch = [sys.executable, "-c", f"{drop}subprocess.run(sys.argv[1:])", *launch]
    async with gateway_process(stack):
        env = {**os.environ, "REMOTECLAW_HOME": str(stack.home.path), "REMOTECLAW_HOLDER": "1:2:3"}
        ended = await asyncio.create_subprocess_exec(
            *launch, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        _, stderr = await ended.communicate()

    assert b"RemoteClaw's agents have its tools already" in stderr
