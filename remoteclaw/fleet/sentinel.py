"""Redis behind Sentinel: a client that follows the primary, and the settings of stock workers.

A failover loses what the replica doesn't have, and the old primary may live on for a while. So each
script waits until a replica has its writes (`Scripts`): until then nothing counts as written.
"""

from typing import Any

import redis.asyncio
from redis.asyncio import retry, sentinel
from redis.backoff import ConstantBackoff, NoBackoff
from redis.connection import SSLConnection, parse_url
from redis.exceptions import ConnectionError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelManagedConnection

from remoteclaw.config.model.redis import SentinelAddress, sentinel_address

#: A Sentinel that does not answer within this time, in seconds, is passed over.
ASK_S = 1.0
#: How long one command waits for a replica, in milliseconds, before the Sentinels are asked again.
REPLICA_MS = 1000
#: RQ repeats a command, and each of its attempts to connect, this often and with this pause, in
#: seconds, because its worker ends at an error: a failover takes some seconds.
RQ_RETRIES, RQ_PAUSE_S = 10, 0.5


class _Pool(sentinel.SentinelConnectionPool):
    """A pool that also ends the connections in use when the primary has moved.

    A blocking read or a subscription would otherwise stay with the old primary while that lives.
    """

    #: How often the primary has moved.
    moves = 0

    async def get_master_address(self) -> Any:
        try:
            address = await self.sentinel_manager.discover_master(self.service_name)
        finally:
            for each in self.sentinel_manager.sentinels:  # they are asked seldom
                await each.connection_pool.disconnect(inuse_connections=False)
        if self.master_address not in (None, address):
            self.moves += 1
            await self.disconnect(inuse_connections=True)
        self.master_address = address
        return address


class _RqConnection(SentinelManagedConnection):
    """A connection of RQ, for which a primary without replicas is a lost connection, too.

    A new primary has none for a moment. RQ's worker would end at the refusal.
    """

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)
        except ResponseError as error:
            if not str(error).startswith("NOREPLICAS"):
                raise
            self.disconnect()  # type: ignore[no-untyped-call]
            raise ConnectionError(str(error)) from None


class _RqTlsConnection(_RqConnection, SSLConnection):
    """The same over TLS."""


#: Parts of redis-py without types.
_following: Any = sentinel.Sentinel
_blocking: Any = Sentinel
_parse: Any = parse_url


def open_primary(address: SentinelAddress, **options: Any) -> "redis.asyncio.Redis":
    """Return a client of the primary that the Sentinels name at each new connection."""
    login, tls = _options(address)
    once = retry.Retry(NoBackoff(), 0)
    sentinels = _following(
        address.sentinels,
        sentinel_kwargs={**_asking(address, tls), "retry": once},
        **{**login, **tls, **options},
    )
    client: redis.asyncio.Redis = sentinels.master_for(address.name, connection_pool_class=_Pool)
    return client


def rq_settings(url: str) -> dict[str, Any]:
    """Return the settings with which stock RQ opens the same connection as `open_redis(url)`."""
    address = sentinel_address(url)
    if address is None:
        return {"REDIS_URL": url, "SENTINEL": None}
    login, tls = _options(address)
    has_tls = tls.pop("ssl", False)
    return {
        "REDIS_URL": None,
        "SENTINEL": {
            "INSTANCES": [*address.sentinels],
            "MASTER_NAME": address.name,
            "DB": login.pop("db", 0),
            "USERNAME": login.pop("username", None),
            "PASSWORD": login.pop("password", None),
            "SSL": has_tls,
            "CONNECTION_KWARGS": {
                **tls,
                "connection_class": _RqTlsConnection if has_tls else _RqConnection,
                "socket_connect_timeout": ASK_S,
                "retry": Retry(ConstantBackoff(RQ_PAUSE_S), RQ_RETRIES),
            },
            "SENTINEL_KWARGS": {
                **_asking(address, _options(address)[1]),
                "retry": Retry(NoBackoff(), 0),
            },
        },
    }


def open_blocking(url: str, **options: Any) -> "redis.Redis":
    """Return a blocking client of the same server as `open_redis(url)`."""
    settings = rq_settings(url)["SENTINEL"]
    if settings is None:
        client: redis.Redis = redis.Redis.from_url(url, **options)
        return client
    names = {"DB": "db", "USERNAME": "username", "PASSWORD": "password", "SSL": "ssl"}
    login = {name: settings[key] for key, name in names.items()}
    sentinels = _blocking(
        settings["INSTANCES"],
        sentinel_kwargs=settings["SENTINEL_KWARGS"],
        **{**login, **settings["CONNECTION_KWARGS"], **options},
    )
    primary: redis.Redis = sentinels.master_for(settings["MASTER_NAME"])
    return primary


def _options(address: SentinelAddress) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return redis-py's options of a connection to the primary: login and database, and TLS."""
    options: dict[str, Any] = _parse(address.server)
    del options["host"]
    tls = {name: options.pop(name) for name in [*options] if name.startswith("ssl")}
    if options.pop("connection_class", None):
        tls["ssl"] = True
    return options, tls


def _asking(address: SentinelAddress, tls: dict[str, Any]) -> dict[str, Any]:
    """Return redis-py's options of a connection to a Sentinel."""
    limits = {"socket_timeout": ASK_S, "socket_connect_timeout": ASK_S}
    return {**limits, **address.login, **tls}
