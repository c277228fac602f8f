"""The RQ workers of a fleet: their signs of life, and the list of them."""

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
from remoteclaw.fleet.connection import COMMAND_S, RETRY_S, Scripts

#: The time limit of `is_leaving()`, in seconds: a turn may wait for its result.
ASK_S = 1.0
#: The interval between two beats of a worker, and the time without a beat after which it counts as
#: gone; in seconds.
BEAT_S, GONE_S = 5.0, 15.0

#: The environment variable that makes a worker serve only the lane `agents` if it is "1".
PEOPLE_ONLY = "REMOTECLAW_PEOPLE_ONLY"

#: The problems of a fleet without workers or without a sweeper, and their remedies.
NO_WORKER = (
    "no rq worker serves the queue: start some with `remoteclaw worker`, under a supervisor that "
    "restarts them, since RQ's worker ends when Redis takes no writes."
)
NO_SWEEPER = "no sweeper is running, so lost hints stay lost: run `remoteclaw sweep`."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as operators see it."""

    name: str
    pid: int
    host: str
    state: str
    """`started`, `idle`, `busy` or `suspended`."""
    session: str
    """The beginning of the id of the session that the worker runs; empty while it is idle."""
    queues: tuple[str, ...]
    boot: str
    """The boot id of the worker's machine; empty if it was started without `workers.settings`."""

    @property
    def is_ours(self) -> bool:
        """Whether the worker was started with `workers.settings`."""
        return bool(self.boot)

    @property
    def problem(self) -> str:
        """The problem of the worker and its remedy; empty if there is no problem."""
        if self.is_ours:
            return ""
        why = "was not started as `remoteclaw worker`: it would run any job. End it."
        return f"process {self.pid} on {self.host} {why}"


def announce(url: str, queues: Sequence[str]) -> None:
    """Start a thread that announces every `BEAT_S` that this worker lives and serves `queues`.

    RQ's own heartbeat comes every seven minutes; the loss of a host must be noticed in seconds.
    """
    client = Redis.from_url(url, socket_timeout=COMMAND_S, socket_connect_timeout=COMMAND_S)
    # A fork during this thread's name lookup would leave the resolver's lock locked in the
    # work-horse, so forks wait for the end of a beat.
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
    """Lists the workers of a fleet, and counts the hints that wait for them."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def list(self) -> list[WorkerView]:
        """Return the live workers of our queues; RQ also lists dead ones for an hour."""
        client = self._scripts.client
        deadline = boottime() + RETRY_S
        names = await self._scripts.call(client.smembers, keys.RQ_WORKERS, deadline=deadline)
        views = []
        for name in sorted(names):
            raw_fields = await self._scripts.call(client.hgetall, name, deadline=deadline)
            fields = {key.decode(): value.decode() for key, value in raw_fields.items()}
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
                views.append(view)
        return views

    async def has_sweeper(self) -> bool:
        """Return whether a sweeper is running."""
        client = self._scripts.client
        return bool(await self._scripts.call(client.exists, keys.SWEEPER))

    async def is_leaving(self, name: str) -> bool:
        """Return whether a worker will end when its work-horse is done."""
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
        """Return whether a worker is alive: each one listens for RQ's commands."""
        client = self._scripts.client
        ((_, count),) = await self._scripts.call(
            client.pubsub_numsub, keys.rq_commands(name), deadline=deadline
        )
        return bool(count)

    async def _session_of(self, job_id: str, deadline: float) -> str:
        """Return the beginning of the id of a job's session, with which its description ends."""
        if not job_id:
            return ""
        client = self._scripts.client
        description = await self._scripts.call(
            client.hget, keys.rq_job(job_id), "description", deadline=deadline
        )
        match = re.search("[0-9a-f]{8}$", (description or b"").decode(errors="replace"))
        return match[0] if match else ""

    async def waiting(self) -> int:
        """Return the number of hints that no worker has taken yet."""
        return sum((await self.hints()).values())

    async def hints(self) -> Mapping[keys.Lane, int]:
        """Return the number of hints that no worker has taken yet, by lane."""
        client = self._scripts.client

        async def count() -> Mapping[keys.Lane, int]:
            counts = dict.fromkeys(keys.LANES, 0)
            for name in await self._queues():
                lane = cast(keys.Lane, name.partition("@")[0])
                counts[lane] += await client.llen(keys.rq_queue(name))
            return counts

        return cast(Mapping[keys.Lane, int], await self._scripts.call(count))

    async def _queues(self) -> Sequence[str]:
        names: Any = await self._scripts.client.smembers(keys.RQ_QUEUES)
        queues = [name.decode().removeprefix(keys.rq_queue("")) for name in names]
        return [name for name in queues if keys.is_lane(name)]

    async def clear_deserted(self) -> None:
        """Remove the queues of hosts that are gone; the sweeper sends new hints for them."""
        client = self._scripts.client

        async def clear() -> None:
            for name in await self._queues():
                if "@" not in name or await client.exists(keys.host(name)):
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
