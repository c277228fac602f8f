"""The RQ workers that serve our queue, as RQ's own registry has them."""

import functools
from dataclasses import dataclass

from remoteclaw.clock import boottime
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

__all__ = ["WorkerView", "Workers"]

#: How long looking is tried while Redis is away, in seconds.
LOOK_S = 5.0
_REGISTRY = "rq:workers"


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as operators see it."""

    name: str
    pid: int
    host: str
    state: str
    """started, idle, busy or suspended."""


class Workers:
    """Looks at workers and at what waits for them."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def list(self) -> list[WorkerView]:
        """Return the workers of our queue that RQ counts as alive."""
        client = self._scripts.client
        deadline = boottime() + LOOK_S
        names = await self._scripts.call(lambda: client.smembers(_REGISTRY), deadline=deadline)
        found = []
        for name in sorted(names):
            read = functools.partial(client.hgetall, name)
            registered = await self._scripts.call(read, deadline=deadline)
            fields = {key.decode(): value.decode() for key, value in registered.items()}
            if keys.QUEUE in fields.get("queues", "").split(",") and "death" not in fields:
                found.append(
                    WorkerView(
                        name=name.decode().removeprefix("rq:worker:"),
                        pid=int(fields.get("pid") or 0),
                        host=fields.get("hostname", ""),
                        state=fields.get("state", ""),
                    )
                )
        return found

    async def waiting(self) -> int:
        """Return how many hints no worker has taken yet."""
        client = self._scripts.client
        length = await self._scripts.call(
            lambda: client.llen(keys.RQ_QUEUE), deadline=boottime() + LOOK_S
        )
        return int(length)
