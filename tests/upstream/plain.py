"""A Redis and stock `rq worker`s that know nothing of RemoteClaw."""

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis
from rq import Queue
from rq.job import Job
from rq.serializers import JSONSerializer

from tests.support.processes import is_alive
from tests.support.servers import Server
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
RQ = Path(sys.executable).with_name("rq")


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that takes jobs."""

    process: "subprocess.Popen[bytes]"
    name: str
    log: Path

    @property
    def key(self) -> str:
        """The key of its hash in Redis."""
        return f"rq:worker:{self.name}"

    async def ended(self) -> int:
        """Wait until it has ended; return its exit status."""
        await eventually(lambda: self.process.poll() is not None)
        return int(self.process.returncode)


@dataclass(frozen=True, slots=True)
class Held:
    """A job that runs until it is released, and records the processes that run it."""

    job: Job
    fifo: Path

    @property
    def pids(self) -> list[int]:
        """The processes that run it or have run it."""
        return _numbers(self.fifo.with_suffix(".pids"))

    @property
    def finished(self) -> list[int]:
        """The processes that ran it to its end."""
        return _numbers(self.fifo.with_suffix(".done"))

    def release(self) -> None:
        """Let it continue, in whichever process it runs."""
        writer = os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK)
        os.write(writer, b"x")
        os.close(writer)


class PlainRq:
    """One queue, and the workers that a test starts."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.directory = server.directory
        self.redis = Redis(unix_socket_path=str(server.socket))
        self.queue = Queue("q", connection=self.redis, serializer=JSONSerializer)
        self._workers: list[subprocess.Popen[bytes]] = []

    # -- jobs ----------------------------------------------------------------------------------

    def enqueue(self, function: str, *arguments: Any, **options: Any) -> Job:
        """Enqueue a call of a function in `tests.upstream.jobs`."""
        return self.queue.enqueue_call(f"tests.upstream.jobs.{function}", arguments, **options)

    def held(self, **options: Any) -> Held:
        """Enqueue a job that runs until it is released."""
        fifo = self.directory / f"hold-{uuid.uuid4().hex}"
        os.mkfifo(fifo)
        return Held(self.enqueue("hold", str(fifo), **options), fifo)

    async def running(self, **options: Any) -> tuple[Held, int]:
        """Enqueue a held job and wait until a worker runs it; return it and its work-horse."""
        held = self.held(**options)
        await eventually(lambda: held.pids)
        return held, held.pids[0]

    def noted(self) -> list[str]:
        """Return the notes of all jobs so far."""
        path = self.directory / "notes"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    # -- workers -------------------------------------------------------------------------------

    async def start_worker(self, *flags: str, **env: str) -> Worker:
        """Start a worker, by default of queue `q`, and wait until Redis blocks it on its queues.

        A worker that calls itself idle may not have asked for a job yet. A SIGTERM in just that
        moment can end it by SIGSEGV: RQ's handler raises, and hiredis' `pack_command` runs
        handlers while it packs a number, but expects no exception there.
        """
        waited = self._waiting_clients()
        process, log = self.spawn(*(flags or self.flags()), **env)

        def name() -> str | None:
            assert process.poll() is None, f"the worker ended: {log.read_text()}"
            if self._waiting_clients() == waited:
                return None
            return next((name for name in self.names() if self.is_waiting(name, process.pid)), None)

        return Worker(process, await eventually(name), log)

    async def work(self, *flags: str, **env: str) -> str:
        """Let a worker run all jobs on the queue; return its log."""
        process, log = self.spawn("--burst", *(flags or self.flags()), **env)

        def is_done() -> bool:
            # An orderly exit can take a second more, for the thread that listens to commands.
            has_ended = process.poll() is not None
            return "done, quitting" in log.read_text() or has_ended

        await eventually(is_done)
        assert "done, quitting" in log.read_text(), log.read_text()
        process.kill()
        return log.read_text()

    def spawn(self, *flags: str, **env: str) -> tuple["subprocess.Popen[bytes]", Path]:
        """Start a worker; return it and its log."""
        log = self.directory / f"worker-{len(self._workers)}.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                [RQ, "worker", *flags],
                cwd=ROOT,
                env=self.env(**env),
                stdout=file,
                stderr=file,
                process_group=0,  # workers kill process groups, and our own includes the tests
            )
        self._workers.append(process)
        return process, log

    def _waiting_clients(self) -> int:
        info: Any = self.redis.info("clients")
        return int(info["blocked_clients"])

    def flags(self, *more: str, queues: tuple[str, ...] = ("q",)) -> tuple[str, ...]:
        """Return the flags of a worker of our queue."""
        return ("-u", self.server.url, "-S", "json", *more, *queues)

    def names(self) -> list[str]:
        """Return the names of the workers that are registered."""
        keys: Any = self.redis.smembers("rq:workers")
        return [key.decode().removeprefix("rq:worker:") for key in keys]

    def is_waiting(self, name: str, pid: int) -> bool:
        """Whether that process listens to commands and calls itself idle."""
        registered: Any = self.redis.hmget(f"rq:worker:{name}", "pid", "state")
        listeners: Any = self.redis.pubsub_numsub(f"rq:pubsub:{name}")
        return bool(registered == [str(pid).encode(), b"idle"] and listeners[0][1] == 1)

    def env(self, **more: str) -> dict[str, str]:
        """Return a worker's environment, by which `end` finds it and its work-horses."""
        return {"PATH": os.environ["PATH"], "UPSTREAM_DIRECTORY": str(self.directory), **more}

    async def end(self) -> None:
        """End all workers and work-horses, also those that have lost their worker."""
        self.redis.close()
        for process in self._workers:
            process.kill()
            process.wait()
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not self._left())

    def _left(self) -> list[int]:
        mark = os.fsencode(f"UPSTREAM_DIRECTORY={self.directory}\0")
        found = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and mark in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
        return [pid for pid in found if is_alive(pid)]


def _numbers(path: Path) -> list[int]:
    if not path.exists():
        return []
    return [int(line) for line in path.read_text().split("\n")[:-1]]
