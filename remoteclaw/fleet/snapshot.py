"""A consistent snapshot of Redis, fetched from the running server as a replica fetches it.

This works with each server that RemoteClaw can use, also on another machine, and needs no access to
its files. The server writes the snapshot in a fork, so it goes on meanwhile.
"""

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from redis.exceptions import RedisError

from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet.failures import reason
from remoteclaw.host.files import open_new

if TYPE_CHECKING:
    import redis.asyncio

#: A server that sends nothing for this long, in seconds, is away: it sends a line each second while
#: it prepares the snapshot.
SILENT_S = 60.0
#: The size of the parts in which the snapshot is read, in bytes.
PART_BYTES = 1 << 20
_AWAY = "Redis can't be reached ({why}), so there is no backup: try again."


async def save_snapshot(client: "redis.asyncio.Redis", file: Path) -> None:
    """Write a snapshot of the server's data, in Redis' own format (RDB), to a new file.

    Raises `RedisRefused` if the user may not fetch it, and `RedisUnavailable` if the server goes
    away. The file is private, and incomplete after an error.
    """
    pool: Any = client.connection_pool
    connection = pool.make_connection()
    try:
        await connection.connect()
        # SYNC without the handshake of a replica: the server sends the size and then the snapshot.
        await connection.send_command("SYNC", check_health=False)
        with open_new(file) as output:
            await _receive(connection._reader, output)
    except asyncio.IncompleteReadError:
        raise RedisUnavailable(_AWAY.format(why="the connection has ended")) from None
    except (RedisError, OSError) as error:  # includes TimeoutError
        raise RedisUnavailable(_AWAY.format(why=reason(error))) from None
    finally:
        with contextlib.suppress(RedisError, OSError):
            await connection.disconnect(nowait=True)


async def _receive(reader: asyncio.StreamReader, output: BinaryIO) -> None:
    left = await _size(reader)
    while left:
        async with asyncio.timeout(SILENT_S):
            part = await reader.read(min(left, PART_BYTES))
        if not part:
            raise asyncio.IncompleteReadError(b"", left)
        output.write(part)
        left -= len(part)


async def _size(reader: asyncio.StreamReader) -> int:
    """Return the size of the snapshot that follows, in bytes."""
    line = b"\n"
    while line == b"\n":  # the server is still writing the snapshot
        async with asyncio.timeout(SILENT_S):
            line = await reader.readuntil(b"\n")
    if not line.startswith(b"$") or not line[1:].strip().isdigit():
        said = line.decode(errors="replace").strip().removeprefix("-")
        raise RedisRefused(
            f"Redis gives no snapshot ({said}), so there is no backup: its user needs the right to "
            "SYNC, and it must allow replicas."
        )
    return int(line[1:])
