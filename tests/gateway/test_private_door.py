"""The sockets in the state directory: `remoteclaw mcp` finds a gateway there, and nobody else."""

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
from remoteclaw.gateway.address import DEAD_S
from remoteclaw.tools.catalog import TOOLS
from tests.support.connector import Pipes, free_port
from tests.support.doors import gateway_process, own_token
from tests.support.restarts import restart, starts
from tests.support.stack import Stack
from tests.support.waiting import HANG_S, eventually


@contextlib.asynccontextmanager
async def connected(home: Home, **env: str) -> AsyncIterator[Pipes]:
    """Have a connector that is told its state directory alone."""
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
def stranger(port: int) -> Iterator[list[bytes]]:
    """Have another program listen where a gateway is looked for; what it gets is returned."""
    got: list[bytes] = []

    def take() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    connection.settimeout(1)
                    got.append(connection.recv(65536))

    with socket.create_server(("127.0.0.1", port)) as listening:
        threading.Thread(target=take, daemon=True).start()
        yield got
        listening.shutdown(socket.SHUT_RDWR)


async def tries_everything(home: Home, **env: str) -> None:
    """Use a connector as an agent does, without a gateway."""
    async with connected(home, **env) as agent:
        await agent.ask("initialize", 0)
        await agent.ask("tools/list")
        told = await agent.call("agents_list")
    assert f"gateway at {home.gateways} can't be reached: " in text_of(told)
    assert "start it with `remoteclaw up`" in text_of(told)


@pytest.mark.parametrize("where", ["default", "configured"])
async def test_a_stranger_who_listens_at_the_address_gets_nothing(stack: Stack, where: str) -> None:
    """Another user of the machine, before a gateway starts or after it was killed."""
    port = GatewayConfig().port if where == "default" else free_port()
    stack.configure(gateway={"port": port if where == "configured" else 0})
    async with gateway_process(stack):
        pass

    try:
        with stranger(port) as got:
            await tries_everything(stack.home)
    except OSError:
        pytest.skip("something listens at the default port")

    assert got == []


async def test_a_gateway_at_any_port_is_found_without_a_setting(stack: Stack) -> None:
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


async def test_an_older_installation_gets_the_connectors_token(stack: Stack) -> None:
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


async def test_several_gateways_of_one_state_directory(stack: Stack) -> None:
    """Each has a socket of its own; who was killed has left one, which counts for nothing."""
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
        await tries_everything(stack.home)

    for name in left:
        os.utime(stack.home.gateways / name, (0, time.time() - DEAD_S - 1))
    elsewhere = stack.home.gateways / "00000000-another-machine"
    elsewhere.touch()
    async with gateway_process(stack):
        assert not set(left) & set(os.listdir(stack.home.gateways))
        assert elsewhere.exists()


async def test_a_directory_in_which_others_could_listen_is_not_used(stack: Stack) -> None:
    async with gateway_process(stack):
        stack.home.gateways.chmod(0o755)
        async with connected(stack.home) as agent:
            told = await agent.call("agents_list")

    assert "can't be reached: others can use this directory" in text_of(told)


async def test_who_asks_while_it_is_restarted_waits(stack: Stack) -> None:
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


async def test_a_token_of_the_file_that_is_not_accepted_is_named(stack: Stack) -> None:
    async with gateway_process(stack):
        file = stack.home.path / "connector-token"
        file.write_text("another")
        async with connected(stack.home) as agent:
            refused = await agent.call("agents_list")

    assert f"doesn't accept the token from the file {file}" in text_of(refused)


async def test_the_token_of_the_state_directory_goes_to_no_address(stack: Stack) -> None:
    async with gateway_process(stack):
        pass
    port = free_port()
    with stranger(port) as got:
        env = {"REMOTECLAW_GATEWAY_URL": f"http://127.0.0.1:{port}"}
        async with connected(stack.home, **env) as agent:
            await asyncio.wait_for(agent.process.wait(), HANG_S)

    assert agent.process.returncode == 1
    assert "REMOTECLAW_GATEWAY_URL is set without REMOTECLAW_GATEWAY_TOKEN" in agent.errors
    assert got == []


@pytest.mark.parametrize("is_dropped", [False, True])
async def test_it_gives_agents_of_remoteclaw_no_rights_of_the_person(
    stack: Stack, is_dropped: bool
) -> None:
    """They inherit the person's MCP servers, and some CLIs drop what they have in their own."""
    launch = connector_launch()
    if is_dropped:
        drop = "import os, subprocess, sys; del os.environ['REMOTECLAW_HOLDER']; "
        launch = [sys.executable, "-c", f"{drop}subprocess.run(sys.argv[1:])", *launch]
    async with gateway_process(stack):
        env = {**os.environ, "REMOTECLAW_HOME": str(stack.home.path), "REMOTECLAW_HOLDER": "1:2:3"}
        ended = await asyncio.create_subprocess_exec(
            *launch, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        _, told = await ended.communicate()

    assert b"RemoteClaw's agents have its tools already" in told
