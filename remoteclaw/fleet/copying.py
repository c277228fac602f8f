"""Copies a fleet's data from one Redis to another, whatever their kinds and versions."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

#: How many keys are copied to another Redis at once, and how long that may take, in seconds: each
#: may have a file of 20 MB.
COPIED_KEYS, COPY_S = 50, 600.0
#: A key that expires so soon is not copied, in milliseconds: it could expire in the middle.
EXPIRING_MS = 60_000

#: How a key of each type is read. `RESTORE` would refuse what a server of another kind has dumped.
_READ: Mapping[bytes, Callable[[Any, bytes], object]] = {
    b"string": lambda ask, name: ask.get(name),
    b"hash": lambda ask, name: ask.hgetall(name),
    b"list": lambda ask, name: ask.lrange(name, 0, -1),
    b"set": lambda ask, name: ask.smembers(name),
    b"zset": lambda ask, name: ask.zrange(name, 0, -1, withscores=True),
    b"stream": lambda ask, name: ask.xrange(name),
}


async def copy_data(source: Scripts, target: Scripts) -> None:
    """Copy the data of a paused fleet from one Redis to another, and the pause first.

    Raises `RedisRefused` if the target isn't empty or can't take the data, and
    `RedisUnavailable` if it goes away. Then, or when cancelled, it is empty again if it can be
    reached.
    """
    # A user with the smallest rights may not run DBSIZE, and EXISTS removes an expired key.
    probes, held = await target.run_pipeline(
        lambda ask: (ask.exists(keys.PROBE), ask.info("keyspace"))
    )
    if count := held.get(f"db{target.database}", {"keys": probes})["keys"] - probes:
        raise RedisRefused(
            f"That Redis has {count} keys, and a backup needs an empty database: name "
            "another one, such as redis://host:6379/1."
        )
    names = [keys.RESTORED.encode()]
    try:
        await _copy(source, target, names)
        cursor = None
        while cursor != 0:
            client = source.client
            cursor, some = await source.call(client.scan, cursor or 0, count=COPIED_KEYS)
            names += some
            await _copy(source, target, some)
    except BaseException:
        with contextlib.suppress(RedisRefused, RedisUnavailable):
            await target.call(target.client.unlink, *names)
        raise


async def _copy(source: Scripts, target: Scripts, names: Sequence[bytes]) -> None:
    found = await source.run_pipeline(
        lambda ask: [(ask.type(name), ask.pttl(name)) for name in names]
    )
    kept = [
        (name, kind, ttl_ms)
        for name, kind, ttl_ms in zip(names, found[::2], found[1::2], strict=True)
        if ttl_ms == -1 or ttl_ms > EXPIRING_MS
    ]

    def read(ask: Any) -> None:
        for name, kind, _ in kept:
            _read(ask, name, kind)

    def write(ask: Any) -> None:
        for (name, kind, ttl_ms), value, info in zip(kept, values[::2], values[1::2], strict=True):
            _write(ask, name, kind, value, info)
            if ttl_ms > 0:
                ask.pexpire(name, ttl_ms)

    values = await source.run_pipeline(read, limit_s=COPY_S)
    await target.run_pipeline(write, limit_s=COPY_S)


def _read(ask: Any, name: bytes, kind: bytes) -> None:
    """Ask for a key's value, and for what else a stream needs."""
    _READ[kind](ask, name)
    if kind == b"stream":
        ask.xinfo_stream(name)
    else:
        ask.exists(name)


def _write(ask: Any, name: bytes, kind: bytes, value: Any, info: Any) -> None:
    """Write a key as it was read; a retry finds what it has stored already."""
    match kind:
        case b"string":
            ask.set(name, value)
        case b"hash":
            ask.hset(name, mapping=value)
        case b"list":
            ask.unlink(name)
            ask.rpush(name, *value)
        case b"set":
            ask.sadd(name, *value)
        case b"zset":
            ask.zadd(name, dict(value))
        case b"stream":
            ask.unlink(name)
            for entry, fields in value:
                ask.xadd(name, fields, id=entry)
            last = info["last-generated-id"]
            if last not in (b"0-0", *(entry for entry, _ in value[-1:])):
                # Its last entries were removed, and later ids must be greater.
                ask.xadd(name, {"": ""}, id=last)
                ask.xdel(name, last)
