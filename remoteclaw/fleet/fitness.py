"""The check whether a Redis server is configured so that RemoteClaw can keep its promises."""

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any

from redis import exceptions

from remoteclaw.config.model.redis import redis_address
from remoteclaw.errors import RedisRefused, RedisUnavailable, RedisUnfit, RemoteClawError
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import COMMAND_S
from remoteclaw.fleet.failures import LOGIN, causes, reason, write_problem
from remoteclaw.fleet.rights import missing_right

if TYPE_CHECKING:
    import redis.asyncio

#: The oldest version of Redis that has the stream and script commands which RemoteClaw uses.
MIN_VERSION = (6, 2)

#: Where the rights of a user are.
RIGHTS = "`ACL SETUSER` in docs/operations.md (Your own Redis) gives it what RemoteClaw needs"
CLIENT_CERTIFICATE = "it may want a certificate of yours, ?ssl_certfile= and &ssl_keyfile="
#: The hosts on which a server listens without a setting.
_LOOPBACK = ("//127.0.0.1", "//localhost", "//[::1]")
#: Servers that speak the protocol of Redis and differ where it matters, by a field of their INFO.
OTHER_SERVERS = {"dragonfly_version": "Dragonfly", "mvcc_depth": "KeyDB"}

#: The arguments of EVAL for a script that writes: source, number of keys, key. A full server runs
#: `_PROBE`, because it begins by removing a key; it refuses `_PROBE_OF_ROOM`.
_SET = "redis.call('SET', KEYS[1], '1', 'PX', 1000) return redis.call('TIME')"
_PROBE = ("redis.call('UNLINK', KEYS[1]) " + _SET, 1, keys.PROBE)
_PROBE_OF_ROOM = (_SET, 1, keys.PROBE)


async def check_fitness(
    client: "redis.asyncio.Redis", url: str, *, needs_room: bool = False
) -> None:
    """Raise `RedisUnfit`, with the reason, if RemoteClaw can't use the server.

    Raises `RedisUnavailable` if the server can't be reached, and `RedisRefused` while it refuses
    writes because of its disk. With `needs_room`, a full memory raises `RedisRefused` as well: RQ
    can't work without free memory.
    """
    name = f"The Redis at {_without_password(url)}"
    try:
        async with asyncio.timeout(COMMAND_S):
            info = await client.info("everything")
            if info.get("loading"):  # other fields of INFO are not valid yet
                raise exceptions.BusyLoadingError
            problem = unfit_reason(info) or await _sync_problem(client)
            if problem or (problem := _failover_problem(info, url)):
                raise RedisUnfit(f"{name} can't be used: {problem}.")
            await _probe(client, name, _PROBE_OF_ROOM if needs_room else _PROBE)
            if right := await missing_right(client):
                raise RedisUnfit(f"{name} does not let this user {right}: {RIGHTS}.")
    except (exceptions.RedisError, OSError) as error:
        raise _unfit(name, error) from None


def unfit_reason(info: dict[str, Any]) -> str | None:
    """Return why a server with this INFO can't be used; None if it can."""
    version = str(info.get("redis_version", "0"))
    policy = info.get("maxmemory_policy", "noeviction")
    for field, name in OTHER_SERVERS.items():
        if field in info:
            return f"it is {name}, which RemoteClaw is not made for: use Redis or Valkey"
    if info.get("redis_mode", info.get("server_mode")) == "sentinel":
        return "it is a Sentinel: write redis+sentinel://HOST:26379/NAME_OF_THE_PRIMARY"
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_VERSION:
        return f"it is version {version}, and RemoteClaw needs 6.2 or newer"
    if info.get("cluster_enabled"):
        return "it runs in Cluster mode: give RemoteClaw one primary"
    if info.get("role") not in ("master", None):
        return "it is a replica: name the primary"
    if policy != "noeviction":
        return f"its maxmemory-policy {policy} loses messages: set `maxmemory-policy noeviction`"
    if not info.get("aof_enabled"):
        return "its append-only file is off, so a crash loses messages: set `appendonly yes`"
    return None


def _failover_problem(info: dict[str, Any], url: str) -> str | None:
    """Return what a failover would lose with this server behind Sentinel; None if nothing."""
    if "+sentinel:" not in url or "min_slaves_good_slaves" in info:
        return None
    return (
        "after a failover, the old primary would take writes which are then lost: set "
        "`min-replicas-to-write 1`, also on each replica"
    )


async def _sync_problem(client: "redis.asyncio.Redis") -> str | None:
    # Redis may forbid this user to read its configuration.
    with contextlib.suppress(exceptions.ResponseError):
        if (await client.config_get("appendfsync")).get("appendfsync") == "no":
            return "a power failure loses messages: set `appendfsync everysec` or `always`"
    return None


async def _probe(client: "redis.asyncio.Redis", name: str, probe: tuple[str, int, str]) -> None:
    try:
        await client.eval(*probe)
    except exceptions.ResponseError as error:
        if problem := write_problem(str(error)):
            raise RedisRefused(problem) from None
        why = f"does not let this user run scripts ({reason(error)}): {RIGHTS}"
        raise RedisUnfit(f"{name} {why}.") from None


def _unfit(name: str, error: Exception) -> RemoteClawError:
    """Return the error for the operator about a server that refuses or doesn't reply."""
    if isinstance(error, exceptions.BusyLoadingError):
        return RedisUnavailable(f"{name} is still loading its data: try again soon.")
    if "NOPERM" in str(error) or isinstance(error, exceptions.NoPermissionError):
        return RedisUnfit(f"{name} does not let this user go on ({reason(error)}): {RIGHTS}.")
    if "protected mode" in str(error):  # Redis says it in 1,200 characters
        return RedisUnfit(
            f"{name} answers only its own computer, because it has no password (protected mode): "
            "set `requirepass` there."
        )
    if isinstance(error, exceptions.ResponseError) or LOGIN.search(str(error)):
        return RedisUnfit(
            f"{name} refuses ({reason(error)}): correct [redis] url, also its user and password."
        )
    if problem := _tls_problem(error):
        return RedisUnfit(f"{name} can't be used: {problem}.")
    remedy = "start it, or correct [redis] url"
    is_refused = any(isinstance(cause, ConnectionRefusedError) for cause in causes(error))
    if is_refused and not any(each in name for each in _LOOPBACK):
        remedy = "start it, let it listen at that address (`bind`), or correct [redis] url"
    if "rediss" in name:
        remedy += f"; {CLIENT_CERTIFICATE}"
    return RedisUnavailable(f"{name} can't be reached ({reason(error)}): {remedy}.")


def _tls_problem(error: Exception) -> str | None:
    """Return what is wrong with the certificates, and which option of [redis] url corrects it."""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = cause.verify_message
            return f"its certificate is not trusted ({why}): name the authority's, ?ssl_ca_certs="
        if isinstance(cause, ssl.SSLError):
            return f"TLS fails ({cause.reason}): {CLIENT_CERTIFICATE}, or speak no TLS"
    return None


def _without_password(url: str) -> str:
    """Return an address without its password; of an invalid address, at most the scheme."""
    try:
        return redis_address(url)
    except ValueError:
        scheme, separator, _ = url.partition("://")
        return f"{scheme}://…" if separator and scheme.isalpha() else "…"
