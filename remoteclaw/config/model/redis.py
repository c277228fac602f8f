"""The section `[redis]`."""

import re
from typing import Annotated, Literal

from pydantic import field_validator

from remoteclaw.config.model.section import AT_START, EVERYTHING, Section
from remoteclaw.config.redis_url import redis_address
from remoteclaw.config.rights import by_people

__all__ = ["RedisConfig"]

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
