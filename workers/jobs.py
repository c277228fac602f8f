"""The drain job, and the job class that lets a worker run nothing else.

Every client of this Redis can put any job on a queue, and RQ would run it: pickles, any dotted name
(`os.system`), callbacks, webhooks.
So a job is read by a parser of our own, which accepts one form; everything else is as if the job
did not exist, and is logged.
"""

import asyncio
import logging
import os
import re
import zlib
from typing import Any

import orjson
from redis.exceptions import RedisError
from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer

from remoteclaw.errors import RemoteClawError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.wake import JOB
from remoteclaw.host.logs import frames_of
from remoteclaw.host.process import die_with_parent
from remoteclaw.session.drain import Drain
from workers import settings

#: A hint's data has 60 bytes; one that is larger when unpacked is not one.
MAX_DATA_BYTES = 1024
#: Fields of a job's hash that make RQ call, fetch or repeat something.
_FORBIDDEN = (
    b"success_callback_name",
    b"failure_callback_name",
    b"stopped_callback_name",
    b"webhooks",
    b"dependency_id",
    b"dependency_ids",
    b"meta",
    b"repeats_left",
    b"retries_left",
    b"result",
    b"exc_info",  # RQ unpacks it, however large it becomes
)

log = logging.getLogger("workers")


class DrainFailed(Exception):
    """Raised instead of an unexpected error, whose text could hold a message: RQ stores it."""


class DrainJob(Job):
    """A job that can only be a hint: `rq worker -j workers.jobs.DrainJob`."""

    def __init__(
        self, id: str | None = None, connection: Any = None, serializer: Any = None
    ) -> None:
        try:
            super().__init__(id, connection=connection, serializer=JSONSerializer)
        except ValueError:
            log.error("job %s was refused: no hint has such an id.", str(id)[:40])
            raise NoSuchJobError("that is no job's id") from None

    def refresh(self) -> None:
        """Read the job; anything that can't be read as a hint does not exist."""
        try:
            super().refresh()  # type: ignore[no-untyped-call]
        except RedisError as error:
            if "WRONGTYPE" not in str(error):
                raise
            self._refuse("its key is not a hash")

    def restore(self, raw_data: dict[bytes, bytes]) -> None:
        """Take over a job's hash if it is exactly a hint."""
        try:
            function, instance, arguments, keywords = orjson.loads(_unpacked(raw_data[b"data"]))
            (sid,) = arguments
        except (KeyError, TypeError, ValueError, zlib.error):
            self._refuse("its data is not a hint's")
        if function != JOB:
            self._refuse(f"it calls {str(function)[:80]!r}")
        if instance is not None or keywords or not re.fullmatch("[0-9a-f]{32}", str(sid)):
            self._refuse("its arguments are not a session's")
        if extra := [name.decode() for name in _FORBIDDEN if raw_data.get(name)]:
            self._refuse(f"it has {', '.join(extra)}")
        try:
            super().restore({**raw_data, b"timeout": b"-1"})
            # In the worker, so that a file that has changed is read once, not by each work-horse.
            settings.current()
        except Exception as error:  # noqa: BLE001 - the hash may hold anything
            self._refuse(f"it can't be read: {type(error).__name__}")
        self.description = f"session {sid[:8]}"  # logged by RQ, so not what the hash says

    def perform(self) -> None:
        """Run the drain: this function and no other, without looking it up by name."""
        drain(self.args[0], worker=self.worker_name or "")

    def _refuse(self, why: str) -> None:
        log.error(
            "job %s was refused: %s. Workers run nothing but %s; who else writes to this Redis?",
            str(self.id)[:40],
            why,
            JOB,
        )
        raise NoSuchJobError(f"job {self.id} is not a hint")


def _unpacked(data: bytes) -> bytes:
    """Return a job's data, which RQ compresses; a bomb is not unpacked."""
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(data, MAX_DATA_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError("too large")
    return unpacked


def drain(sid: str, *, worker: str = "") -> None:
    """Serve one session in this work-horse, which dies with its worker."""
    if os.getpid() != settings.WORKER_PID:
        die_with_parent(settings.WORKER_PID)
    try:
        asyncio.run(_drain(sid, worker))
    except RemoteClawError as error:
        log.error("session %s: %s", sid[:8], error)
        raise DrainFailed(type(error).__name__) from None
    except Exception as error:  # noqa: BLE001 - the edge of this process
        log.error("session %s: the drain failed: %s", sid[:8], frames_of(error))
        raise DrainFailed(type(error).__name__) from None


async def _drain(sid: str, worker: str) -> None:
    # A lease has the length that was set when its worker started; workers may differ.
    fleet = Fleet.open(
        settings.REDIS_URL,
        lease_s=settings.config.fleet.lease_s,
        memory_limit=settings.config.redis.memory_limit,
    )
    try:
        config = settings.current()
        await Drain(
            fleet,
            config,
            settings.home,
            settings.hooks,
            worker=worker,
            config_has_changed=lambda: settings.current() is not config,
        ).run(sid)
    finally:
        await fleet.aclose()
