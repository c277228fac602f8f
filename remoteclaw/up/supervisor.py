"""`remoteclaw up`: starts the processes of one machine, watches them, and ends them together.

They end with this process, even when it is killed: workers, work-horses, the gateway and Redis get
a signal from the kernel, and the holders of warm agents see the lifeline close.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.errors import RedisRefused, RedisUnavailable, RemoteClawError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.fitness import check_fitness
from remoteclaw.fleet.workers import PEOPLE_ONLY
from remoteclaw.gateway.address import listen, listen_privately, path_of, url_of
from remoteclaw.holder.runs import holders_ended, remove_dead_runs
from remoteclaw.host.forking import Forked, ForkServer
from remoteclaw.host.logs import rotate_logs
from remoteclaw.host.process import end_orphans, end_strays, is_alive, stop
from remoteclaw.session.launch import LIFELINE, UP_PREFIX
from remoteclaw.up.embedded import EmbeddedRedis
from remoteclaw.up.lock import locked
from remoteclaw.up.sweep import sweeping

#: How long a worker or the gateway may take to be ready, in seconds: only one that hangs takes so
#: long, since one that ends is noticed at once.
READY_S = 60.0
#: How long running turns are given at the end, in seconds; the next start takes up the others.
PATIENCE_S = 3.0
#: Pauses before a process that ended is started again, in seconds.
RESTART_AFTER_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
#: After how long a process counts as stable, so that the pauses begin with the first, in seconds.
STABLE_S = 30.0
#: Interval of the check whether there is an account on a chat platform to run, in seconds.
LOOK_S = 1.0
#: Interval of the rotation of logs, in seconds.
ROTATE_LOGS_S = 10.0
#: What a worker runs: stock RQ, with our settings and job class. A busy worker of RQ's ends itself,
#: and with it the turn, when Redis is away just as it says that it lives; ours says so by itself.
WORKER = (
    *("worker", "-c", "workers.settings", "-j", "workers.jobs.DrainJob"),
    *("--job-monitoring-interval", "3600"),
)
#: What workers and the gateway load, but for workers' settings, which are read by each.
LOADED = (
    "rq.cli",
    "remoteclaw.cli",
    "remoteclaw.config.reload",
    "remoteclaw.fleet.fitness",
    "remoteclaw.fleet.workers",
    "remoteclaw.gateway.server",
    "remoteclaw.session.drain",
)

log = logging.getLogger(__name__)


def worker_command() -> list[str]:
    """Return the command of a worker that is started by itself."""
    beside = Path(sys.executable).with_name("rq")
    program = [str(beside)] if beside.exists() else [sys.executable, "-m", "rq.cli"]
    return [*program, *WORKER]


def gateway_command(sockets: Sequence[socket.socket]) -> list[str]:
    """Return the command of a gateway that answers on sockets which it inherits.

    -P, so that no file of the directory in which it is started is taken for a module.
    """
    argv = [sys.executable, "-P", "-m", "remoteclaw.cli", "gateway"]
    return [*argv, *(f"--socket={listening.fileno()}" for listening in sockets)]


@dataclass(frozen=True, slots=True)
class Ready:
    """A summary of what runs, for the person who started it."""

    redis: str
    workers: int
    gateway: str
    seconds: float
    repaired: str | None
    """What Redis' file has lost at this start, if anything."""


class Supervisor:
    """Starts the processes, restarts those that end, and ends them all."""

    def __init__(self, home: Home, config: Config) -> None:
        self._home = home
        self._config = config
        self.fleet = Fleet.open(home.redis_url(config), memory_limit=config.redis.memory_limit)
        self._forks = ForkServer(*LOADED, log=home.logs / "workers.log")
        self._workers: dict[int, Forked] = {}
        self._gateway: Forked | None = None
        self._channels: Forked | None = None
        self._redis: EmbeddedRedis | None = None
        self._lifeline: int | None = None
        self._is_ready = asyncio.Event()

    def begin(self) -> None:
        """Fork what forks workers and the gateway, before there is a loop: the start is shorter."""
        self._forks.begin()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Ready]:
        """Have everything running; leaving it ends everything.

        Raises `RemoteClawError` if something doesn't start, or another `up` runs here.
        """
        started = boottime()
        with locked(self._home), self._listening() as sockets:
            end_strays()
            remove_dead_runs(self._home.runs, older_than_s=0)
            lifeline = self._open_lifeline()
            try:
                await self._forks.start()
                redis_name = await self._start_redis()
                # What one that was killed has left there would be taken for ours.
                address = url_of(sockets[0])
                await self.fleet.gateways.withdraw(self._home.host_id, address)
                async with asyncio.TaskGroup() as tasks:
                    duties = [tasks.create_task(duty) for duty in self._duties(lifeline, sockets)]
                    try:
                        await self._ready(address)
                        self._is_ready.set()
                        workers = self._config.fleet.workers
                        seconds = boottime() - started
                        repaired = self._redis.repaired if self._redis else None
                        yield Ready(redis_name, workers, address, seconds, repaired)
                    finally:
                        for duty in duties:
                            duty.cancel()
            finally:
                await self._end()

    # -- starting ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _listening(self) -> Iterator[list[socket.socket]]:
        """Hold the sockets of the gateway: connections wait there while it is started again."""
        with listen(self._config.gateway) as public, listen_privately(self._home) as private:
            try:
                yield [public, private]
            finally:
                path_of(private, self._home).unlink(missing_ok=True)

    def _open_lifeline(self) -> Path:
        """Make the FIFO whose end of file ends warm agents, also when this process is killed."""
        path = self._home.sockets / "lifeline"
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        self._lifeline = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        return path

    async def _start_redis(self) -> str:
        if self._config.redis.url is None:
            self._redis = EmbeddedRedis(
                self._home,
                appendfsync=self._config.redis.appendfsync,
                memory_limit=self._config.redis.memory_limit,
            )
            await self._redis.start()
            name = f"{self._redis.program.name}, embedded"
        else:
            name = "your own"
        url = self._home.redis_url(self._config)
        await check_fitness(self.fleet.scripts.client, url, needs_room=True)
        return name

    def _duties(
        self, lifeline: Path, sockets: Sequence[socket.socket]
    ) -> list[Coroutine[Any, Any, None]]:
        count = self._config.fleet.workers
        duties = [self._keep_gateway(sockets)]  # it takes the longest to start
        duties += [self._keep_worker(number, lifeline) for number in range(count)]
        duties += [*sweeping(self.fleet, self._home, self._config)]
        duties += [self._keep_logs(), self._keep_channels()]
        if self._redis:
            duties.append(self._keep_redis(self._redis))
        return duties

    async def _ready(self, address: str) -> None:
        """Wait for the first worker and the gateway; other workers come a moment later."""
        until = boottime() + READY_S
        waits_for = "worker"
        while boottime() < until:
            for number, process in self._workers.items():
                _require_running("worker", process, self._worker_log(number))
            _require_running("gateway", self._gateway, self._gateway_log)
            if waits_for == "worker" and await self._has_worker():
                waits_for = "gateway"
            elif waits_for == "gateway" and await self._has_gateway(address):
                return
            await asyncio.sleep(0.02)
        raise RemoteClawError(
            f"No {waits_for} was ready within {READY_S:.0f} s: the reason is in {self._home.logs}."
        )

    async def _has_worker(self) -> bool:
        pids = {process.pid for process in self._workers.values()}
        return any(worker.pid in pids for worker in await self.fleet.workers.list())

    async def _has_gateway(self, address: str) -> bool:
        return await self.fleet.gateways.address(self._home.host_id) == address

    def _worker_log(self, number: int) -> Path:
        return self._home.logs / f"worker-{number + 1}.log"

    @property
    def _gateway_log(self) -> Path:
        return self._home.logs / "gateway.log"

    # -- keeping it running --------------------------------------------------------------------

    async def _keep_worker(self, number: int, lifeline: Path) -> None:
        env = {**os.environ, "REMOTECLAW_HOME": str(self._home.path), LIFELINE: str(lifeline)}
        if number == 0 and self._config.fleet.workers > 1:
            env[PEOPLE_ONLY] = "1"  # people don't wait behind what runs by itself
        if number > 0:  # on few cores, it would only delay the first one and the gateway
            await self._is_ready.wait()

        async def run() -> int:
            log = self._worker_log(number)
            process = await self._forks.fork("rq.cli", *WORKER, env=env, log=log)
            self._workers[number] = process
            return await process.wait()

        await _keep(f"worker {number + 1}", run)

    async def _keep_gateway(self, sockets: Sequence[socket.socket]) -> None:
        env = {**os.environ, "REMOTECLAW_HOME": str(self._home.path)}

        async def run() -> int:
            self._gateway = await self._forks.fork(
                "remoteclaw.cli",
                *("gateway", "--socket=3", "--socket=4"),
                env=env,
                log=self._gateway_log,
                sockets=sockets,
            )
            return await self._gateway.wait()

        await _keep("the gateway", run)

    async def _keep_channels(self) -> None:
        """Run the accounts on chat platforms, once the configuration has any."""
        env = {**os.environ, "REMOTECLAW_HOME": str(self._home.path)}
        config = CurrentConfig(self._home, self._config)
        await self._is_ready.wait()

        async def run() -> int:
            while not config().accounts():  # noqa: ASYNC110 - a file tells nobody that it changed
                await asyncio.sleep(LOOK_S)
            log = self._home.logs / "channels.log"
            self._channels = await self._forks.fork(
                "remoteclaw.cli", "channel", "run", env=env, log=log
            )
            return await self._channels.wait()

        await _keep("the channels' process", run)

    async def _keep_logs(self) -> None:
        while True:
            try:
                await asyncio.to_thread(rotate_logs, self._home.logs)
            except OSError as error:  # a full disk: the next look will do
                log.warning("the logs could not be rotated: %s", error)
            await asyncio.sleep(ROTATE_LOGS_S)

    async def _keep_redis(self, redis: EmbeddedRedis) -> None:
        while True:
            status = await redis.wait()
            log.error("Redis ended with status %d and is started again", status)
            await redis.start()

    # -- ending --------------------------------------------------------------------------------

    async def _end(self) -> None:
        """End workers and gateway, then agents, then Redis, which keeps what isn't finished."""
        ending = [stop(worker, patience_s=PATIENCE_S) for worker in self._workers.values()]
        others = filter(None, (self._gateway, self._channels))
        ending += [stop(process, patience_s=PATIENCE_S) for process in others]
        await asyncio.gather(*ending)
        await self._forks.end()
        if self._lifeline is not None:
            os.close(self._lifeline)
        for run in await holders_ended(self._home.runs, prefix=UP_PREFIX):
            end_orphans(run)
        with contextlib.suppress(RedisUnavailable, RedisRefused, OSError):
            # What was cut off goes on at once after the next start, and not as a failure.
            host = self._home.host_id
            await self.fleet.sweeper.release_dead(host, is_alive, is_deliberate=True)
        end_strays()
        await self.fleet.aclose()
        if self._redis:
            await self._redis.stop()


def _require_running(name: str, process: Forked | None, printed: Path) -> None:
    """Raise `RemoteClawError` with the last line that an ended process printed."""
    if process is None or process.returncode is None:
        return
    lines = printed.read_text(errors="replace").strip().splitlines()
    words = lines[-1].removeprefix("remoteclaw: ") if lines else "it said nothing."
    raise RemoteClawError(f"A {name} ended at its start: {words}")


async def _keep(name: str, run: Callable[[], Coroutine[Any, Any, int]]) -> None:
    """Run a process for ever, after longer pauses while it ends soon."""
    failures = 0
    while True:
        since = boottime()
        status = await run()
        failures = 0 if boottime() - since > STABLE_S else failures + 1
        pause = RESTART_AFTER_S[min(failures, len(RESTART_AFTER_S) - 1)]
        log.error("%s ended with status %d and is started again in %g s", name, status, pause)
        await asyncio.sleep(pause)
