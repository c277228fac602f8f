"""RQ workers that serve our queues: their announcements, and the list of them."""

import contextlib
import logging
import os
import re
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis import Redis
from redis.exceptions import RedisError

from remoteclaw.clock import boot_id, boottime
from remoteclaw.errors import RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import AWAY_S, COMMAND_S, Scripts

#: Time limit of the question whether a worker is leaving, in seconds: a turn may wait for it.
ASK_S = 1.0
#: How often a worker says that it lives, and after how long without that it counts as gone.
BEAT_S, GONE_S = 5.0, 15.0

#: Variable that makes a worker serve what people send and nothing else, if it is "1".
PEOPLE_ONLY = "REMOTECLAW_PEOPLE_ONLY"

#: What is wrong, and what to do, where nothing serves the queues or looks after them.
NO_WORKER = "no rq worker serves the queue: start some with `remoteclaw worker`."
NO_SWEEPER = "none looks for lost hints: run `remoteclaw sweep`."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as operators see it."""

    name: str
    pid: int
    host: str
    state: str
    """started, idle, busy or suspended."""
    session: str
    """How the id of the session begins that it works on; empty if it works on none."""
    queues: tuple[str, ...]
    boot: str
    """The boot of its machine; empty if it was not started with our settings."""

    @property
    def is_ours(self) -> bool:
        """Whether it was started with our settings."""
        return bool(self.boot)

    @property
    def problem(self) -> str:
        """What is wrong with it, and what to do; empty if nothing is."""
        if self.is_ours:
            return ""
        why = "was not started as `remoteclaw worker`: it would run any job. End it."
        return f"process {self.pid} on {self.host} {why}"


def announce(url: str, queues: Sequence[str]) -> None:
    """Keep it known, from a thread of its own, that this worker lives and which queues it serves.

    RQ's own sign of life comes every seven minutes; a host that is gone must be noticed in seconds.
    """
    client = Redis.from_url(url, socket_timeout=COMMAND_S, socket_connect_timeout=COMMAND_S)
    # A work-horse that is forked while this thread looks up a name would never look up one itself.
    beating = threading.Lock()
    os.register_at_fork(
        before=beating.acquire, after_in_parent=beating.release, after_in_child=beating.release
    )
    names = [keys.worker(socket.gethostname(), os.getpid())]
    names += [keys.host(queue) for queue in queues if "@" in queue]

    def beat() -> None:
        pipeline = client.pipeline(transaction=False)
        for name in names:
            pipeline.set(name, boot_id(), px=int(GONE_S * 1000))
        pipeline.execute()

    def beat_for_ever() -> None:
        ended = threading.Event()
        while not ended.wait(BEAT_S):
            with beating, contextlib.suppress(RedisError, OSError):
                beat()

    with contextlib.suppress(RedisError, OSError):
        beat()
    threading.Thread(target=beat_for_ever, name="announce", daemon=True).start()


class Workers:
    """Looks at workers and at what waits for them."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def list(self) -> list[WorkerView]:
        """Return the workers of our queues that live; RQ lists dead ones for an hour, too."""
        client = self._scripts.client
        deadline = boottime() + AWAY_S
        names = await self._scripts.call(client.smembers, keys.RQ_WORKERS, deadline=deadline)
        found = []
        for name in sorted(names):
            registered = await self._scripts.call(client.hgetall, name, deadline=deadline)
            fields = {key.decode(): value.decode() for key, value in registered.items()}
            queues = tuple(fields.get("queues", "").split(","))
            if "death" in fields or not any(keys.is_lane(queue) for queue in queues):
                continue
            pid, host = int(fields.get("pid") or 0), fields.get("hostname", "")
            view = WorkerView(
                name=name.decode().removeprefix(keys.rq_worker("")),
                pid=pid,
                host=host,
                state=fields.get("state", ""),
                session=await self._session_of(fields.get("current_job", ""), deadline),
                queues=queues,
                boot=(
                    await self._scripts.call(client.get, keys.worker(host, pid), deadline=deadline)
                    or b""
                ).decode(),
            )
            if view.is_ours or await self._listens(view.name, deadline):
                found.append(view)
        return found

    async def have_sweeper(self) -> bool:
        """Whether a sweeper looks after them."""
        client = self._scripts.client
        return bool(await self._scripts.call(client.exists, keys.SWEEPER))

    async def is_leaving(self, name: str) -> bool:
        """Whether a worker was asked to end, and does so when its work-horse is done."""
        if not name:
            return False
        client = self._scripts.client
        try:
            return bool(
                await self._scripts.call(
                    client.hexists,
                    keys.rq_worker(name),
                    "shutdown_requested_date",
                    deadline=boottime() + ASK_S,
                )
            )
        except RedisUnavailable:
            return False

    async def _listens(self, name: str, deadline: float) -> bool:
        """Whether a worker lives: each listens for RQ's commands."""
        client = self._scripts.client
        ((_, count),) = await self._scripts.call(
            client.pubsub_numsub, keys.rq_commands(name), deadline=deadline
        )
        return bool(count)

    async def _session_of(self, job_id: str, deadline: float) -> str:
        """Return how the id of a job's session begins: a hint's description ends with that."""
        if not job_id:
            return ""
        client = self._scripts.client
        about = await self._scripts.call(
            client.hget, keys.rq_job(job_id), "description", deadline=deadline
        )
        found = re.search("[0-9a-f]{8}$", (about or b"").decode(errors="replace"))
        return found[0] if found else ""

    async def waiting(self) -> int:
        """Return how many hints no worker has taken yet."""
        return sum((await self.hints()).values())

    async def hints(self) -> Mapping[keys.Lane, int]:
        """Return how many hints no worker has taken yet, by lane."""
        client = self._scripts.client

        async def count() -> Mapping[keys.Lane, int]:
            found = dict.fromkeys(keys.LANES, 0)
            for name in await self._queues():
                lane = cast(keys.Lane, name.partition("@")[0])
                found[lane] += await client.llen(keys.rq_queue(name))
            return found

        return cast(Mapping[keys.Lane, int], await self._scripts.call(count))

    async def _queues(self) -> Sequence[str]:
        names: Any = await self._scripts.client.smembers(keys.RQ_QUEUES)
        queues = [name.decode().removeprefix(keys.rq_queue("")) for name in names]
        return [name for name in queues if keys.is_lane(name)]

    async def clear_deserted(self) -> None:
        """Remove the queues of hosts that are gone: the sweeper hints their sessions elsewhere."""
        client = self._scripts.client

        async def clear() -> None:
            for name in [name for name in await self._queues() if "@" in name]:
                if await client.exists(keys.host(name)):
                    continue
                jobs: Any = await client.lrange(keys.rq_queue(name), 0, -1)
                pipeline = client.pipeline(transaction=True)
                for job in jobs:
                    pipeline.delete(keys.rq_job(job.decode()))
                pipeline.delete(keys.rq_queue(name))
                pipeline.srem(keys.RQ_QUEUES, keys.rq_queue(name))
                await pipeline.execute()
                log.info("queue %s is removed: its host is gone", name)

        await self._scripts.call(clear)
