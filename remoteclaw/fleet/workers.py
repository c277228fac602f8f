"""The RQ workers of a fleet: their signs of life, and the list of them."""

import atexit
import contextlib
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType
from typing import Any, cast

import orjson
from redis.exceptions import RedisError

from remoteclaw.clock import boottime
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import COMMAND_S, RETRY_S, Scripts
from remoteclaw.fleet.lua import Script, Values
from remoteclaw.fleet.processes import field_of
from remoteclaw.fleet.sentinel import open_blocking
from remoteclaw.host.process import boot_of, identity
from remoteclaw.host.version import VERSION

#: The time limit of `is_leaving()`, in seconds: a turn may wait for its result.
ASK_S = 1.0
#: The interval between two beats of a worker, and the time without a beat after which it counts as
#: gone; in seconds.
BEAT_S, GONE_S = 5.0, 15.0
#: The time after which a worker that gives no sign of life is dead, in seconds. A live one that
#: can't reach Redis for this long is not listed until it starts again.
LOST_S = 60.0

#: The environment variable that makes a worker serve only the lane `agents` if it is "1".
PEOPLE_ONLY = "REMOTECLAW_PEOPLE_ONLY"

#: The problems of a fleet without workers or without a sweeper, and their remedies.
_NO_WORKER = (
    "no worker runs, so no message is answered: run `remoteclaw up`, or start some with "
    "`remoteclaw worker`, under a supervisor that restarts them, since RQ's worker ends when Redis "
    "takes no writes."
)
NO_SWEEPER = (
    "no sweeper runs, so the work of a worker that dies is not continued: run `remoteclaw sweep`."
)

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
    """The boot id of the worker's machine; empty if it gives no sign of life."""
    silent_since_ms: int | None = None
    """The last sign of life of a worker that gives none any more, on Redis' clock, in milliseconds;
    None for any other, for a stranger, and after a day."""

    @property
    def is_ours(self) -> bool:
        """Whether the worker was started with `workers.settings`, and gives signs of life."""
        return bool(self.boot)

    @property
    def host_id(self) -> str:
        """The id of the worker's state directory; empty for a worker that serves no host."""
        return next((queue.partition("@")[2] for queue in self.queues if "@" in queue), "")

    @property
    def label(self) -> str:
        """The label of the worker; empty without one."""
        lane = next(filter(keys.is_lane, self.queues), "")
        return lane.partition("@")[0].partition(".")[2]

    @property
    def problem(self) -> str:
        """The problem of the worker and its remedy; empty if there is no problem."""
        if self.is_ours:
            return ""
        if self.silent_since_ms is not None:
            return (
                f"process {self.pid} on {self.host} has not answered since "
                f"{_time(self.silent_since_ms)}: it is frozen, or can't reach Redis. Another "
                "worker takes over its turn; if it stays so, end it."
            )
        ours = ", ".join(filter(keys.is_lane, self.queues))
        return (
            f"process {self.pid} on {self.host} was not started as `remoteclaw worker`, so it runs "
            f"without the job class DrainJob: it fails each hint that it takes from {ours}, and "
            "would run any other job. End it."
        )


@dataclass(frozen=True, slots=True)
class _Registered:
    """A worker as RQ lists it, with its signs of life."""

    name: str
    host: str
    pid: int
    state: str
    queues: tuple[str, ...]
    job: str
    process: str
    """The `identity()` of its process, as of its last beat; empty if there was none lately."""
    is_listening: bool
    """Whether it listens for RQ's commands, as each live worker does."""
    silent_since_ms: int | None
    """Its last announcement, if it gives no sign of life; None without one."""


def no_worker_problem(drained: str | None) -> str:
    """Return a sentence that no worker runs, and what to do; `drained` is a `drain_problem()`."""
    return f"no worker runs, so no message is answered. {drained}" if drained else _NO_WORKER


def _time(at_ms: int) -> str:
    """Return a time for people, in UTC: the reader is perhaps on another machine."""
    return f"{datetime.fromtimestamp(at_ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"


def _process_of(beat: str) -> str:
    """Return the `identity()` in a beat; empty without one, as for a worker of an older version."""
    return beat if beat.startswith("pid ") and beat.count(" ") == 3 else ""


def is_ending() -> bool:
    """Whether RQ's worker in this process was asked to end, and waits for its work-horse.

    RQ replaces its handler of SIGTERM then, and `workers.jobs` ignores the signal.
    """
    handler = signal.getsignal(signal.SIGTERM)
    return handler is signal.SIG_IGN or getattr(handler, "__name__", "") == "request_force_stop"


def _stop_if_waiting(_number: int, frame: FrameType | None) -> None:
    """End an idle worker that was asked to end and has overlooked it.

    RQ's handler of SIGTERM raises `StopRequested` in an idle worker and sets a flag in a busy one.
    The exception is lost if the worker is writing a log line, and the flag if the worker has just
    looked at it. Then it would wait for a hint for minutes.
    """
    from rq.exceptions import StopRequested

    while frame is not None:
        if frame.f_code.co_name == "dequeue_any":
            raise StopRequested
        frame = frame.f_back


def announce(url: str, queues: Sequence[str], host_id: str, host: str) -> None:
    """Start a thread that announces every `BEAT_S` that this worker lives and serves `queues`.

    RQ's own heartbeat comes every seven minutes; the loss of a host must be noticed in seconds.
    A worker that is ending serves no queue any more; it is reminded with each beat. One whose host
    is drained ends itself, as at SIGTERM: its turn is finished first.
    """
    client = open_blocking(url, socket_timeout=COMMAND_S, socket_connect_timeout=COMMAND_S)
    # A fork during this thread's name lookup would leave the resolver's lock locked in the
    # work-horse, so forks wait for the end of a beat.
    beating = threading.Lock()
    os.register_at_fork(
        before=beating.acquire, after_in_parent=beating.release, after_in_child=beating.release
    )
    source = Script.named("beat")
    script = client.register_script(source.source)
    since, served = boottime(), [keys.host(queue) for queue in queues if "@" in queue]
    facts: Values = {
        "own": keys.worker(socket.gethostname(), os.getpid()),
        "hostname": socket.gethostname(),
        "served": served,
        "field": field_of("worker", host_id),
        "host": host,
        "version": VERSION,
        "host_id": host_id,
        "identity": identity(),
        "beat_ms": int(GONE_S * 1000),
    }

    def beat() -> None:
        uptime_ms, is_leaving = int((boottime() - since) * 1000), is_ending()
        names, packed = source.pack({**facts, "uptime_ms": uptime_ms, "is_ending": is_leaving})
        if script(keys=names, args=packed) and not is_leaving:
            os.kill(os.getpid(), signal.SIGTERM)

    def beat_for_ever() -> None:
        ended = threading.Event()
        while not ended.wait(BEAT_S):
            with beating, contextlib.suppress(RedisError, OSError):
                beat()
            if is_ending():
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)

    def withdraw() -> None:
        with contextlib.suppress(RedisError, OSError):
            if os.getpid() == worker:  # work-horses inherit this
                client.hdel(keys.PROCESSES, field)

    worker, field = os.getpid(), str(facts["field"])
    signal.signal(signal.SIGUSR2, _stop_if_waiting)
    atexit.register(withdraw)
    with contextlib.suppress(RedisError, OSError):
        beat()
    threading.Thread(target=beat_for_ever, name="announce", daemon=True).start()


class Workers:
    """Lists the workers of a fleet, and counts the hints that wait for them."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        #: The workers without a sign of life, and since when, on `boottime()`.
        self._silent: dict[str, float] = {}

    async def list(self) -> list[WorkerView]:
        """Return the live workers of our queues; RQ also lists dead ones for an hour."""
        deadline = boottime() + RETRY_S
        return [
            WorkerView(
                name=each.name,
                pid=each.pid,
                host=each.host,
                state=each.state,
                session=await self._session_of(each.job, deadline),
                queues=each.queues,
                boot=boot_of(each.process) if each.process else "",
                silent_since_ms=each.silent_since_ms,
            )
            for each in await self._registered(deadline)
            if each.process or each.is_listening
        ]

    async def clear_dead(self, is_alive: Callable[[str], bool]) -> int:
        """Remove dead workers from RQ's registries; return their number.

        RQ keeps a worker that was killed, and the hint that it ran, for an hour. `is_alive` gets
        the `identity()` of a worker's process. A worker that gives no sign of life is dead after
        `LOST_S`, as long as Redis was available all the time.
        """
        try:
            registered = await self._registered(boottime() + RETRY_S)
            now = boottime()
            self._silent = {
                each.name: self._silent.get(each.name, now)
                for each in registered
                if not each.process and not each.is_listening
            }
            dead = [
                each.name
                for each in registered
                if (each.process and not is_alive(each.process))
                or now - self._silent.get(each.name, now) > LOST_S
            ]
            for name in dead:
                await self._scripts.run("clear_worker", name=name, rq_worker=keys.rq_worker(name))
                log.info("worker %s is removed from RQ's registries: it is dead", name)
        except (RedisUnavailable, RedisRefused):
            self._silent = {}
            raise
        return len(dead)

    async def _registered(self, deadline: float) -> Sequence["_Registered"]:
        """Return the workers of our queues that RQ lists and that did not say that they end."""
        rows = await self._scripts.run(
            "workers",
            rq_workers=keys.RQ_WORKERS,
            beat_ms=int(GONE_S * 1000),
            lanes=keys.LANES,
            deadline=deadline,
        )
        # In a container that starts again, a worker can have the process id of an earlier one.
        newest = {
            (row.host_id, row.host, row.pid): row.name
            for row in sorted(rows, key=lambda row: str(row.birth))
        }
        return [
            _Registered(
                name=row.name,
                host=row.host,
                pid=int(row.pid) if row.pid.isdecimal() else 0,
                state=row.state,
                queues=tuple(row.queues.split(",")),
                job=row.job,
                process=_process_of(row.beat)
                if newest[row.host_id, row.host, row.pid] == row.name
                else "",
                is_listening=bool(row.listeners),
                silent_since_ms=orjson.loads(row.announced)["at_ms"] if row.announced else None,
            )
            for row in rows
        ]

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

    async def hints(self) -> Mapping[str, int]:
        """Return the number of hints that no worker has taken yet, by lane.

        The lanes of workers with a label are named LANE.LABEL.
        """
        client = self._scripts.client

        async def count() -> Mapping[str, int]:
            counts: dict[str, int] = dict.fromkeys(keys.LANES, 0)
            for name in sorted(await self._queues()):
                lane = name.partition("@")[0]
                counts[lane] = counts.get(lane, 0) + await client.llen(keys.rq_queue(name))
            return counts

        return cast(Mapping[str, int], await self._scripts.call(count))

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
