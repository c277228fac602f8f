"""The embedded Redis server: durable, private, and the only one on its data."""

import asyncio
import os
import signal
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import RedisUnavailable, StateDirectoryError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.connection import open_redis
from remoteclaw.fleet.fitness import check_fitness
from remoteclaw.up import embedded as module
from remoteclaw.up.embedded import EmbeddedRedis, bundled_server, find_server
from tests.support.stack import message


@pytest.fixture
async def fleet(home: Home) -> Fleet:
    return Fleet.open(f"unix://{home.redis_socket}")


async def test_the_embedded_redis_is_fit_and_only_its_user_can_connect(
    home: Home, fleet: Fleet
) -> None:
    server = EmbeddedRedis(home)
    await server.start()

    await check_fitness(fleet.scripts.client, "it")
    assert stat.S_IMODE(home.redis_socket.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.redis_socket.parent.stat().st_mode) == 0o700
    info = await fleet.scripts.client.info("server")
    assert info["tcp_port"] == 0

    await fleet.aclose()
    await server.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_an_accepted_message_survives_the_end_of_the_embedded_redis(
    home: Home, fleet: Fleet, number: signal.Signals
) -> None:
    server = EmbeddedRedis(home)
    await server.start()
    accepted = await fleet.inbound.append(message("hello"), agent="main")
    os.kill((await fleet.scripts.client.info("server"))["process_id"], number)
    await server.wait()

    await server.start()

    view = await fleet.sessions.view(accepted.session.sid)
    assert view is not None
    assert view.waiting == 1
    await fleet.aclose()
    await server.stop()


async def test_the_embedded_redis_can_sync_every_write_to_the_disk(home: Home) -> None:
    server = EmbeddedRedis(home, appendfsync="always")
    await server.start()
    client = open_redis(home.redis_url(Config()))

    assert (await client.config_get("appendfsync"))["appendfsync"] == "always"

    await client.aclose()
    await server.stop()


async def test_an_embedded_redis_over_its_memory_limit_starts_with_a_higher_one(home: Home) -> None:
    server = EmbeddedRedis(home, memory_limit=64_000_000)
    await server.start()
    client = open_redis(home.redis_url(Config()))
    assert (await client.config_get("maxmemory"))["maxmemory"] == "64000000"
    await client.set("ballast", b"x" * 30_000_000)
    await server.stop()

    server = EmbeddedRedis(home, memory_limit=20_000_000)
    await server.start()

    await client.sadd("rq:workers", "one")  # RQ writes this when a worker starts
    await client.aclose()
    await server.stop()


async def test_a_second_server_on_the_same_data_is_refused(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_S", 0.1)
    server = EmbeddedRedis(home)
    await server.start()

    with pytest.raises(StateDirectoryError, match="Another Redis server still uses"):
        await EmbeddedRedis(home).start()

    await server.stop()


async def test_a_server_can_start_right_after_the_previous_one_stops(home: Home) -> None:
    server = EmbeddedRedis(home)
    await server.start()
    ending = asyncio.create_task(server.stop())

    second = EmbeddedRedis(home)  # as if `up` is started right after another one
    await second.start()

    await ending
    await second.stop()


async def test_a_server_that_does_not_start_names_its_log_or_its_full_disk(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedRedis(home)
    (home.redis_data / "appendonlydir").write_text("not a directory")

    with pytest.raises(RedisUnavailable, match=r"did not start: .*/redis\.log"):
        await server.start()
    monkeypatch.setattr("remoteclaw.config.home.MIN_ROOM_BYTES", 1 << 60)
    with pytest.raises(RedisUnavailable, match=r"did not start: The disk with .* is full"):
        await server.start()


async def test_a_server_that_accepts_connections_and_never_answers_is_given_up(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = tmp_path / "silent"
    silent.write_text(
        f"#!{sys.executable}\nimport socket, sys, threading\n"
        "server = socket.socket(socket.AF_UNIX)\n"
        "server.bind(sys.argv[sys.argv.index('--unixsocket') + 1])\n"
        "server.listen()\nthreading.Event().wait()\n"
    )
    silent.chmod(0o700)
    monkeypatch.setattr(module, "READY_S", 1.0)
    server = EmbeddedRedis(home)
    server.program = replace(server.program, path=str(silent))

    with pytest.raises(RedisUnavailable, match="did not start"):
        await server.start()
    await server.stop()


def test_the_bundled_server_is_used_if_path_has_none(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    assert find_server(home.redis_data).path == bundled_server()


def test_data_is_opened_by_the_server_program_that_wrote_it(home: Home) -> None:
    """Redis can't read a newer Valkey's file, so an installed server must not take over."""
    bundled = bundled_server()
    assert bundled is not None
    (home.redis_data / "server").write_text(bundled)

    assert find_server(home.redis_data).path == bundled


def test_a_server_program_that_is_too_old_is_not_used(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = directory / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=5.0.7 sha=00000000:0'\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/bin")

    assert find_server(home.redis_data).path == bundled_server()
