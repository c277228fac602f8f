"""The drain job, and the job class that lets a worker run nothing else.

Every client of this Redis can put any job on a queue, and RQ would run it: pickles, any dotted name
(`os.system`), callbacks, webhooks. So `DrainJob` parses jobs itself and accepts one form only. It
logs every other job and treats it as nonexistent.
"""

import asyncio
import logging
import os
import signal
import zlib
from typing import Any

from redis.exceptions import RedisError
from rq.exceptions import NoSuchJobError, StopRequested
from rq.job import Job
from rq.serializers import JSONSerializer

from remoteclaw.errors import RemoteClawError
from remoteclaw.fleet.wake import JOB, HintSerializer
from remoteclaw.host.logs import frames_of
from remoteclaw.host.process import die_with_parent
from remoteclaw.session.drain import Drain
from workers import settings

#: The maximum size of a hint's data after decompression, in bytes: a real hint has 61.
MAX_DATA_BYTES = 1024
#: The fields of a job's hash that make RQ call, fetch or repeat something.
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
    b"exc_info",  # RQ decompresses it without a size limit
)

log = logging.getLogger("workers")


class DrainFailed(Exception):
    """Raised in place of an error whose text could contain a message, since RQ stores the text."""


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
        """Read the job; raise NoSuchJobError unless it is a hint."""
        try:
            super().refresh()  # type: ignore[no-untyped-call]
        except RedisError as error:
            if "WRONGTYPE" not in str(error):
                raise
            self._refuse("its key is not a hash")

    def restore(self, raw_data: dict[bytes, bytes]) -> None:
        """Load a job's hash; raise NoSuchJobError unless it is exactly a hint."""
        try:
            call = HintSerializer.loads(_unpacked(raw_data[b"data"]))
        except (KeyError, ValueError, zlib.error):
            self._refuse("its data is not a hint's")
        if extra := [name.decode() for name in _FORBIDDEN if raw_data.get(name)]:
            self._refuse(f"it has {', '.join(extra)}")
        try:
            super().restore({**raw_data, b"timeout": b"-1"})
            # The serializer of the job, which would read its data, is that of results.
            self._func_name, self._instance, self._args, self._kwargs = call
            # Here, in the worker, so that a changed file is read once, not by each work-horse.
            settings.current()
            _survive_second_sigterm()
        except StopRequested:  # SIGTERM: the worker ends, and a sweeper sends the hint again
            raise
        except Exception as error:  # noqa: BLE001 - the hash may hold anything
            self._refuse(f"it can't be read: {type(error).__name__}")
        self.description = (
            f"session {self.args[0][:8]}"  # RQ logs it, so it must not come from the hash
        )

    def heartbeat(self, timestamp: Any, ttl: int, pipeline: Any = None, xx: bool = False) -> None:
        """Note that the job still runs. At its start and end, RQ writes more than that anyway."""
        if xx:
            super().heartbeat(timestamp, ttl, pipeline, xx)

    def cleanup(
        self, ttl: int | None = None, pipeline: Any = None, remove_from_queue: bool = True
    ) -> None:
        """Delete a hint that has run, in one command.

        RQ would search all registries for it and its executions, with 14 more. But it is only in
        that of started jobs, from which its worker removes it in the same transaction.
        """
        if ttl == 0 and pipeline is not None and not remove_from_queue:
            pipeline.delete(self.key)
        else:
            super().cleanup(ttl, pipeline, remove_from_queue)

    def perform(self) -> None:
        """Run the drain directly, without a lookup of the function's name."""
        drain(self.args[0], worker=self.worker_name or "")

    def _refuse(self, why: str) -> None:
        log.error(
            "job %s was refused: %s. Workers run nothing but %s; who else writes to this Redis?",
            str(self.id)[:40],
            why,
            JOB,
        )
        raise NoSuchJobError(f"job {self.id} is not a hint")


def _survive_second_sigterm() -> None:
    """Have this worker finish its turn also after a second SIGTERM.

    RQ kills the work-horse then, but a supervisor sends SIGTERM also to a worker that is ending
    because its host is drained. A second SIGINT, from a person's Ctrl-C, still kills it.
    """
    stop = signal.getsignal(signal.SIGTERM)
    if not callable(stop) or getattr(stop, "__name__", "") != "request_stop":
        return

    def request_stop_once(number: int, frame: Any) -> None:
        stop(number, frame)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    signal.signal(signal.SIGTERM, request_stop_once)


def _unpacked(data: bytes) -> bytes:
    """Return the decompressed data of a job; raise ValueError if it exceeds `MAX_DATA_BYTES`."""
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(data, MAX_DATA_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError("too large")
    return unpacked


def drain(sid: str, *, worker: str = "") -> None:
    """Run the drain of one session in this work-horse, which dies with its worker."""
    if os.getpid() != settings.WORKER_PID:
        die_with_parent(settings.WORKER_PID)
    try:
        asyncio.run(_drain(sid, worker))
    except RemoteClawError as error:
        log.error("session %s: %s", sid[:8], error)
        raise DrainFailed(type(error).__name__) from None
    except Exception as error:  # noqa: BLE001 - the outermost frame of this process
        log.error("session %s: the drain failed: %s", sid[:8], frames_of(error))
        raise DrainFailed(type(error).__name__) from None


async def _drain(sid: str, worker: str) -> None:
    try:
        config = settings.current()
        await Drain(
            settings.fleet,
            config,
            settings.home,
            settings.hooks,
            worker=worker,
            label=settings.label,
            config_has_changed=lambda: settings.current() is not config,
        ).run(sid)
    finally:
        await settings.fleet.aclose()
