"""The section `[redis]`; checks the address of a server and removes the secrets from it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import field_validator

from remoteclaw.config.model.section import AT_START, EVERYTHING, Section
from remoteclaw.config.rights import by_people

#: The minimum of `maxmemory`. An empty server needs one or two million bytes.
MIN_MEMORY_BYTES = 16 * 1024 * 1024


def _size_bytes(value: str) -> int:
    """Return the bytes of a size in the syntax of redis.conf; raises ValueError if it is invalid.

    As there, `1m` is 1,000,000 bytes and `1mb` is 1,048,576.
    """
    match = re.fullmatch(r"([1-9]\d{0,15})([kmg]?)(b?)", value.lower(), re.ASCII)
    if match is None:
        raise ValueError(f"must be a size such as 512mb or 2gb, and not {value!r}")
    base = 1024 if match[3] else 1000
    return int(match[1]) * int(base ** " kmg".index(match[2] or " "))


class RedisConfig(Section):
    """The Redis server."""

    url: Annotated[str | None, by_people(restart=EVERYTHING, secret=True)] = None
    """The address of your own Redis or Valkey server: redis://, rediss:// or unix://, or of the
    Sentinels that know it: redis+sentinel:// or rediss+sentinel://. Without it, RemoteClaw runs an
    embedded server in its state directory."""
    appendfsync: Annotated[Literal["everysec", "always"], AT_START] = "everysec"
    """When the embedded server writes its data to the disk. With `everysec`, a power failure can
    lose the last two seconds. With `always`, it loses nothing, but each step waits for the disk."""
    maxmemory: Annotated[str | None, AT_START] = None
    """The maximum memory of Redis in the syntax of redis.conf, such as `512mb` or `2gb`. The
    embedded server has 512mb by default. For your own server, the smaller of this and the server's
    own `maxmemory` counts, or half of the memory of its machine if neither is set. Near the limit,
    RemoteClaw refuses new work."""

    @property
    def memory_limit(self) -> int:
        """`maxmemory` in bytes; 0 if it isn't configured."""
        return _size_bytes(self.maxmemory) if self.maxmemory else 0

    @field_validator("maxmemory")
    @classmethod
    def _check_maxmemory(cls, value: str | None) -> str | None:
        if value is not None and _size_bytes(value) < MIN_MEMORY_BYTES:
            raise ValueError(f"must be 16mb or more, and not {value}")
        return value

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None:
            redis_address(value)
        return value


#: An option after the `?` of an address. redis-py passes any other option to its connection, where
#: it would fail late or change what RemoteClaw relies on, such as time limits and decoding.
_OPTION = re.compile(
    r"db=\d{1,9}|(username|password)=.+|ssl_cert_reqs=(required|optional|none)"
    r"|ssl_(ca_certs|ca_path|certfile|keyfile|password|check_hostname)=.+",
    re.ASCII,
)


_SENTINEL = re.compile(
    r"(?P<tls>rediss?)\+sentinel://(?P<login>[^@/?#]*@)?(?P<sentinels>[^@/?# ]+)"
    r"/(?P<name>[\w.-]+)(?P<database>/\d{1,9})?/?(?:\?(?P<options>[^#]+))?",
    re.ASCII,
)
#: The port of a Sentinel.
SENTINEL_PORT = 26379


@dataclass(frozen=True, slots=True)
class SentinelAddress:
    """The parts of a `redis+sentinel://` address."""

    sentinels: tuple[tuple[str, int], ...]
    """The hosts and ports of the Sentinels."""
    name: str
    """The name of the primary."""
    server: str
    """The address of the primary, with its login and options, and `primary` as its host."""
    login: Mapping[str, str]
    """The `username` and `password` of the Sentinels, if they have any."""
    shown: str
    """The address without logins and options."""


def sentinel_address(url: str) -> SentinelAddress | None:
    """Return the parts of a `redis+sentinel://` address; None for another one.

    Raises ValueError if it is not valid.
    """
    if not re.match(r"\w+\+sentinel:", url):
        return None
    match = _SENTINEL.fullmatch(url)
    hosts = [urlsplit(f"//{each}") for each in match["sentinels"].split(",")] if match else []
    if match is None or not all(each.hostname and each.port != 0 for each in hosts):
        raise ValueError("not the address of Sentinels")
    options = dict(parse_qsl(match["options"] or ""))
    login = {
        name: options.pop(f"sentinel_{name}")
        for name in ("username", "password")
        if f"sentinel_{name}" in options
    }
    server = f"{match['tls']}://{match['login'] or ''}primary{match['database'] or ''}"
    server += f"?{urlencode(options)}" if options else ""
    redis_address(server)
    return SentinelAddress(
        tuple((each.hostname or "", each.port or SENTINEL_PORT) for each in hosts),
        match["name"],
        server,
        login,
        f"{match['tls']}+sentinel://{match['sentinels']}/{match['name']}{match['database'] or ''}",
    )


def redis_address(url: str) -> str:
    """Return the address of a Redis server without its login and options, which may be secret.

    Raises ValueError if redis-py can't use the address, or would misread a part of the password.
    The error's text completes "[redis] url …" and quotes nothing of the address.
    """
    try:
        if sentinels := sentinel_address(url):
            return sentinels.shown
        parts = urlsplit(url)
        host_port = parts.netloc.rpartition("@")[2]
        if parts.scheme == "unix":
            is_usable = not host_port and len(parts.path) > 1
        else:
            is_usable = parts.scheme in ("redis", "rediss") and " " not in host_port
            is_usable &= bool(parts.hostname) and parts.port != 0
            is_usable &= re.fullmatch(r"/?|/\d{1,9}", parts.path, re.ASCII) is not None
    except ValueError:  # an invalid port, or an incomplete IPv6 address
        is_usable = False
    options = url.partition("?")[2]
    is_usable &= not options or all(map(_OPTION.fullmatch, options.split("&")))
    if not is_usable or "#" in url or not url.isprintable():
        raise ValueError(
            "must be redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], the same with rediss:// for "
            "TLS, unix://[USER:PASSWORD@]/PATH[?db=DATABASE], or redis+sentinel://"
            "[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…]/NAME[/DATABASE]; where a password has "
            "them, write / as %2F, # as %23, ? as %3F, @ as %40, % as %25"
        )
    return f"{parts.scheme}://{host_port}{parts.path}"
