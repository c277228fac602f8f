"""The section `[redis]`, and the address of a server: its valid forms, and one without secrets."""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import field_validator

from remoteclaw.config.model.section import AT_START, EVERYTHING, Section
from remoteclaw.config.rights import by_people

#: The least that Redis may be told to keep, in bytes: when empty, it has one or two million.
LEAST_MEMORY = 16 * 1024 * 1024


def _bytes(value: str) -> int:
    """Return a size as redis.conf has it, in bytes; raises ValueError for another one."""
    found = re.fullmatch(r"([1-9]\d{0,15})([kmg]?)(b?)", value.lower(), re.ASCII)
    if found is None:
        raise ValueError(f"must be a size such as 512mb or 2gb, and not {value!r}")
    base = 1024 if found[3] else 1000
    return int(found[1]) * int(base ** " kmg".index(found[2] or " "))


class RedisConfig(Section):
    """The Redis server."""

    url: Annotated[str | None, by_people(restart=EVERYTHING, secret=True)] = None
    """Address of your own Redis or Valkey (redis://, rediss:// or unix://).
    Without it, RemoteClaw runs one itself in its state directory."""
    appendfsync: Annotated[Literal["everysec", "always"], AT_START] = "everysec"
    """How often that server writes its file to the disk. `always` loses nothing even in a power
    failure, and makes each step wait for the disk; `everysec` can lose the last second, or two."""
    maxmemory: Annotated[str | None, AT_START] = None
    """Redis' memory limit, as in its own configuration: `512mb`, `2gb`. RemoteClaw's own
    server has this limit, 512mb by default. One of your own keeps its limit; if it has none, this
    one holds, or half of its machine's memory."""

    @property
    def memory_limit(self) -> int:
        """`maxmemory` in bytes; 0 if none is configured."""
        return _bytes(self.maxmemory) if self.maxmemory else 0

    @field_validator("maxmemory")
    @classmethod
    def _check_maxmemory(cls, value: str | None) -> str | None:
        if value is not None and _bytes(value) < LEAST_MEMORY:
            raise ValueError(f"must be 16mb or more, and not {value}")
        return value

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None:
            redis_address(value)
        return value


#: An option behind the `?` of an address. Everything else would become an argument of redis-py's
#: connection, where it fails late or changes what we rely on (time limits, decoding).
OPTION = re.compile(
    r"db=\d{1,9}|(username|password)=.+|ssl_cert_reqs=(required|optional|none)"
    r"|ssl_(ca_certs|ca_path|certfile|keyfile|password|check_hostname)=.+",
    re.ASCII,
)


def redis_address(url: str) -> str:
    """Return the address of a Redis without what may be secret in it: login and options.

    Raises ValueError, whose text completes "[redis] url …" and quotes nothing, if redis-py can't
    use it, or would take a part of the password for something else.
    """
    try:
        parts = urlsplit(url)
        place = parts.netloc.rpartition("@")[2]
        if parts.scheme == "unix":
            is_usable = not place and len(parts.path) > 1
        else:
            is_usable = parts.scheme in ("redis", "rediss") and " " not in place
            is_usable &= bool(parts.hostname) and parts.port != 0
            is_usable &= re.fullmatch(r"/?|/\d{1,9}", parts.path, re.ASCII) is not None
    except ValueError:  # a port that is none, half an IPv6 address
        is_usable = False
    options = url.partition("?")[2]
    is_usable &= not options or all(map(OPTION.fullmatch, options.split("&")))
    if not is_usable or "#" in url or not url.isprintable():
        raise ValueError(
            "must be redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], the same with rediss:// for "
            "TLS, or unix://[USER:PASSWORD@]/PATH[?db=DATABASE]; where a password has them, "
            "write / as %2F, # as %23, ? as %3F, @ as %40, % as %25"
        )
    return f"{parts.scheme}://{place}{parts.path}"
