"""Repair of Redis' file after a power failure, which leaves zeros or half a command at its end."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.home import Home
from remoteclaw.errors import RedisUnavailable
from remoteclaw.fleet.connection import open_redis
from remoteclaw.up import embedded
from remoteclaw.up.embedded import EmbeddedRedis, ServerProgram
from tests.support.servers import installed_servers

each_server = pytest.mark.parametrize(
    "program", installed_servers(), ids=lambda program: program.name
)
#: The bytes that one write and one transaction add to the file.
WRITE = b"*3\r\n$3\r\nSET\r\n$4\r\nlast\r\n$3\r\nyes\r\n"
TRANSACTION = b"*1\r\n$5\r\nMULTI\r\n" + WRITE + b"*1\r\n$4\r\nEXEC\r\n"


@pytest.fixture
async def killed(
    home: Home, program: ServerProgram, monkeypatch: pytest.MonkeyPatch
) -> tuple[EmbeddedRedis, Path]:
    """A server that was killed after some writes, and its file."""
    monkeypatch.setattr(embedded, "find_server", lambda _: program)
    server = EmbeddedRedis(home, appendfsync="always")
    await server.start()
    client = open_redis(f"unix://{home.redis_socket}")
    await client.set("first", b"\0" * 100)
    await client.eval("redis.call('SET', 'a', '1') redis.call('SET', 'b', '2')", 0)
    pid = (await client.info("server"))["process_id"]
    await client.aclose()
    os.kill(pid, signal.SIGKILL)
    await server.wait()
    data = home.redis_data
    (file,) = [*data.glob("appendonly.aof"), *data.glob("*/*.incr.aof")]
    return server, file


async def kept(home: Home, *names: str) -> list[Any]:
    """Return the values of `names`, after a write that must succeed."""
    client = open_redis(f"unix://{home.redis_socket}")
    await client.set("more", "1")
    values = await client.mget(names)
    await client.aclose()
    return list(values)


@each_server
@pytest.mark.parametrize(
    ("tail", "zeros"),
    [(b"", 4096), (WRITE[:9], 4096), (WRITE[:-1], 0), (TRANSACTION[:-1], 4096)],
)
async def test_a_damaged_end_of_the_redis_file_is_cut_off_and_backed_up(
    killed: tuple[EmbeddedRedis, Path], home: Home, tail: bytes, zeros: int
) -> None:
    server, file = killed
    good = file.read_bytes()
    damaged = good + tail + b"\0" * zeros
    file.write_bytes(damaged)

    await server.start()

    assert await kept(home, "first", "a", "b", "last") == [b"\0" * 100, b"1", b"2", None]
    assert server.repaired is not None
    assert f"{len(tail) + zeros:,} bytes after the last complete command" in server.repaired
    (copy,) = file.parent.glob("*.damaged-*")
    assert copy.read_bytes() == damaged
    assert copy.name in server.repaired
    await server.stop()
    await server.start()  # a write after the repair is intact
    assert await kept(home, "more") == [b"1"]
    await server.stop()


@each_server
@pytest.mark.parametrize("damage", [b"garbage\r\n", WRITE.replace(b"$4", b"$91919191")])
async def test_a_redis_file_damaged_elsewhere_is_reported_and_unchanged(
    killed: tuple[EmbeddedRedis, Path], damage: bytes
) -> None:
    """A power failure damages only the end, so damage before intact commands has another cause."""
    server, file = killed
    good = file.read_bytes()
    damaged = good + damage + WRITE
    file.write_bytes(damaged)

    with pytest.raises(RedisUnavailable, match="put a backup of") as error:
        await server.start()

    assert f"{file} is damaged at byte {len(good):,} of {len(damaged):,}" in str(error.value)
    assert file.read_bytes() == damaged
    assert not list(file.parent.glob("*.damaged-*"))


@each_server
async def test_without_disk_space_for_a_backup_the_redis_file_is_unchanged(
    killed: tuple[EmbeddedRedis, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, file = killed
    damaged = file.read_bytes() + b"\0" * 10
    file.write_bytes(damaged)

    def copy(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copy", copy)
    with pytest.raises(RedisUnavailable, match=r"no copy can be kept \(No space left on device\)"):
        await server.start()

    assert file.read_bytes() == damaged


@each_server
async def test_an_intact_redis_file_is_unchanged_after_a_kill(
    killed: tuple[EmbeddedRedis, Path], home: Home
) -> None:
    server, file = killed

    await server.start()

    assert server.repaired is None
    assert await kept(home, "a") == [b"1"]
    assert not list(file.parent.glob("*.damaged-*"))
    await server.stop()
