"""Supervises the processes of `remoteclaw up`: starts, restarts and ends them together.

They end with this process, even if it is killed: workers, work-horses, the gateway and Redis get a
signal from the kernel, and the holders of warm agents see the lifeline close.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig, forget_removed
from remoteclaw.errors import RedisRefused, RedisUnavailable, RemoteClawError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.fitness import check_fitness
from remoteclaw.fleet.workers import PEOPLE_ONLY, WorkerView
from remoteclaw.gateway.address import listen, listen_privately, path_of, url_of
from remoteclaw.holder.runs import remove_dead_runs, wait_for_holders
from remoteclaw.host.forking import ForkServer
from remoteclaw.host.logs import rotate_logs
from remoteclaw.host.process import end_orphans, end_strays, is_alive, is_running, stop
from remoteclaw.session.launch import LIFELINE, UP_PREFIX
from remoteclaw.telemetry import RESTARTED
from remoteclaw.up.embedded import EmbeddedRedis
from remoteclaw.up.lock import locked
from remoteclaw.up.part import Part, start_part
from remoteclaw.up.sweep import sweeping

#: Time limit for a worker or the gateway to be ready, in seconds. A process that ends is noticed at
#: once, so this limits only one that hangs.
READY_S = 60.0
#: Running turns get this time to finish when `up` ends, in seconds; the next start continues them.
GRACE_S = 3.0
#: Pauses before a process that ended is started again, in seconds. The last one repeats.
RESTART_AFTER_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
#: After a process has run this long, its pauses begin with the first again, in seconds.
STABLE_S = 30.0
#: The interval of checks whether a chat account is configured, in seconds.
CHECK_S = 1.0
#: The interval of log rotation, in seconds.
ROTATE_LOGS_S = 10.0
#: The arguments of `rq` for a worker, with RemoteClaw's settings and job class. The monitoring
#: interval is long because a stock worker ends itself and its turn if its heartbeat finds Redis
#: away; RemoteClaw's workers send their own heartbeat.
WORKER = (
    *("worker", "-c", "workers.settings", "-j", "workers.jobs.DrainJob"),
    *("--job-monitoring-interval", "3600"),
)
#: The modules that are loaded before workers and the gateway are forked. Each worker loads its
#: settings (`workers.settings`) itself.
PRELOADED = (
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
    """Return the command of a worker that runs without `up`."""
    rq = Path(sys.executable).with_name("rq")
    program = [str(rq)] if rq.exists() else [sys.executable, "-m", "rq.cli"]
    return [*program, *WORKER]


def gateway_command(sockets: Sequence[socket.socket]) -> list[str]:
    """Return the command of a gateway that listens on the inherited `sockets`.

    With -P, Python imports no modules from the current directory.
    """
    argv = [sys.executable, "-P", "-m", "remoteclaw.cli", "gateway"]
    return [*argv, *(f"--socket={listening.fileno()}" for listening in sockets)]


@dataclass(frozen=True, slots=True)
class Ready:
    """A summary of the running processes, for the person who started them."""

    redis: str
    """The name of the server."""
    workers: int
    gateway: str
    """The gateway's address."""
    seconds: float
    """The duration of the start."""
    repaired: str | None
    """A sentence about the repair of Redis' file; None if it was not damaged."""
    was_drained: bool
    """Whether the host was drained before this start, which has undone that."""


class Supervisor:
    """Starts the processes of one machine, restarts any that end, and ends them all."""

    def __init__(self, home: Home, config: Config) -> None:
        self._home = home
        self._config = config
        self.fleet = Fleet.open(home.redis_url(config), memory_limit=config.redis.memory_limit)
        self._forks = ForkServer(*PRELOADED, log=home.logs / "workers.log")
        self._workers: dict[int, Part] = {}
        self._gateway: Part | None = None
        self._channels: Part | None = None
        self._redis: EmbeddedRedis | None = None
        self._lifeline: int | None = None
        self._is_ready = asyncio.Event()
        self._is_finishing = False
        """Whether workers that end are not started again."""

    def begin(self) -> None:
        """Fork the fork server before the event loop is created, which shortens the start."""
        self._forks.fork_first()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Ready]:
        """Start everything, and end everything when the context is left.

        Raises `RemoteClawError` if a process does not start, or if another `up` runs in the state
        directory.
        """
        started = boottime()
        with locked(self._home), self._listening() as sockets:
            forget_removed(self._home)
            end_strays()
            remove_dead_runs(self._home.runs, older_than_s=0)
            lifeline = self._open_lifeline()
            try:
                await self._forks.start()
                redis_name = await self._start_redis()
                # A killed gateway's entry would be mistaken for that of the new one.
                address = url_of(sockets[0])
                await self.fleet.gateways.withdraw(self._home.host_id, address)
                was_drained = await self.fleet.drains.undo(self._home.host_id)
                name = self._config.fleet.name_of_host
                listed = self.fleet.processes.announced("sweeper", self._home.host_id, name)
                async with listed, asyncio.TaskGroup() as tasks:
                    duties = [tasks.create_task(duty) for duty in self._duties(lifeline, sockets)]
                    try:
                        await self._wait_until_ready(address)
                        self._is_ready.set()
                        workers = self._config.fleet.workers
                        seconds = boottime() - started
                        repaired = self._redis.repaired if self._redis else None
                        yield Ready(redis_name, workers, address, seconds, repaired, was_drained)
                    finally:
                        for duty in duties:
                            duty.cancel()
            finally:
                await self._end()

    # -- starting ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _listening(self) -> Iterator[list[socket.socket]]:
        """Hold the gateway's listening sockets: connections wait in them while it restarts."""
        with listen(self._config.gateway) as public, listen_privately(self._home) as private:
            try:
                yield [public, private]
            finally:
                path_of(private).unlink(missing_ok=True)

    def _open_lifeline(self) -> Path:
        """Create the FIFO whose end of file ends warm agents, even if this process is killed."""
        path = self._home.sockets / "lifeline"
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        self._lifeline = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        return path

    async def _start_redis(self) -> str:
        """Start the embedded Redis, unless another one is configured. Return the server's name."""
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
        """Return the coroutines to run while everything is up."""
        duties = [self._keep_gateway(sockets)]  # first, because it takes the longest to start
        duties += [self._keep_worker(number, lifeline) for number in range(count)]
        duties += [*sweeping(self.fleet, self._home, self._config)]
        duties += [self._keep_logs(), self._keep_channels()]
        if self._redis:
            duties.append(self._keep_redis(self._redis))
        return duties

    async def _wait_until_ready(self, address: str) -> None:
        """Wait for the first worker and the gateway. The other workers start after that.

        In a fleet that was restored, the workers wait for an operator.
        """
        until = boottime() + READY_S
        waits_for = "gateway" if await self.fleet.restores.paused_from() else "worker"
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
        return bool(self._own(await self.fleet.workers.list()))

    def _own(self, views: Sequence[WorkerView]) -> Sequence[WorkerView]:
        """Return the workers of this `up`; those of another container can have the same ids."""
        pids, host = {process.pid for process in self._workers.values()}, self._home.host_id
        return [view for view in views if view.host_id == host and view.pid in pids]

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
            env[PEOPLE_ONLY] = "1"  # so that people never wait for background sessions
        if number > 0:  # on few cores, more workers would delay the first one and the gateway
            await self._is_ready.wait()

        async def run() -> int:
            if self._is_finishing:
                return 0
            log = self._worker_log(number)
            process = await start_part(self._forks, "rq.cli", *WORKER, env=env, log=log)
            self._workers[number] = process
            if self._is_finishing:  # `finish_turns()` has not seen it
                process.send_signal(signal.SIGTERM)
            return await process.wait()

        await _keep(f"worker {number + 1}", run, until=lambda: self._is_finishing)

    async def _keep_gateway(self, sockets: Sequence[socket.socket]) -> None:
        env = {**os.environ, "REMOTECLAW_HOME": str(self._home.path)}

        async def run() -> int:
            self._gateway = await start_part(
                self._forks,
                *("remoteclaw.cli", "gateway"),
                env=env,
                log=self._gateway_log,
                sockets=sockets,
            )
            return await self._gateway.wait()

        await _keep("the gateway", run)

    async def _keep_channels(self) -> None:
        """Run the process of the chat accounts, once the configuration has any."""
        env = {**os.environ, "REMOTECLAW_HOME": str(self._home.path)}
        config = CurrentConfig(self._home, self._config)
        await self._is_ready.wait()

        async def run() -> int:
            while not config().accounts():  # noqa: ASYNC110 - a file can only be polled
                await asyncio.sleep(CHECK_S)
            log = self._home.logs / "channels.log"
            self._channels = await start_part(
                self._forks, "remoteclaw.cli", "channel", "run", env=env, log=log
            )
            return await self._channels.wait()

        await _keep("the channels' process", run)

    async def _keep_logs(self) -> None:
        while True:
            try:
                await asyncio.to_thread(rotate_logs, self._home.logs)
            except OSError as error:  # for example a full disk: the next rotation retries
                log.warning("the logs could not be rotated: %s", error)
            await asyncio.sleep(ROTATE_LOGS_S)

    async def _keep_redis(self, redis: EmbeddedRedis) -> None:
        while True:
            status = await redis.wait()
            log.error("Redis ended with status %d and is started again", status)
            await redis.start()

    # -- ending --------------------------------------------------------------------------------

    async def busy(self) -> int:
        """Return the number of workers of this `up` that run a turn."""
        try:
            views = await self.fleet.workers.list()
        except (RedisUnavailable, RedisRefused):
            return 0
        return sum(view.state == "busy" for view in self._own(views))

    async def finish_turns(self) -> None:
        """End the workers as their turns end, while everything else goes on.

        Return after `[fleet] stop_s` with the turns that still run.
        """
        self._is_finishing = True
        for worker in self._workers.values():
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.fleet.stop_s):
                await asyncio.gather(*(worker.wait() for worker in self._workers.values()))

    async def _end(self) -> None:
        """End workers and gateway, then agents, and then Redis, which keeps unfinished turns."""
        parts = [*self._workers.values(), self._gateway, self._channels]
        await asyncio.gather(*(stop(part, grace_s=GRACE_S) for part in parts if part))
        await self._forks.end()
        if self._lifeline is not None:
            os.close(self._lifeline)
        for run in await wait_for_holders(self._home.runs, prefix=UP_PREFIX):
            end_orphans(run)
        with contextlib.suppress(RedisUnavailable, RedisRefused, OSError):
            # Turns that were cut off continue at once after the next start, without counting as
            # failed.
            host = self._home.host_id
            await self.fleet.sweeper.release_dead(host, is_alive, is_deliberate=True)
            await self.fleet.workers.clear_dead(is_alive)
            await self.fleet.processes.forget_dead(host, is_running)
        end_strays()
        await self.fleet.aclose()
        if self._redis:
            await self._redis.stop()


def _require_running(name: str, process: Part | None, log_file: Path) -> None:
    """Raise `RemoteClawError` with the last line of its log if a process has ended."""
    if process is None or process.returncode is None:
        return
    lines = log_file.read_text(errors="replace").strip().splitlines()
    reason = lines[-1].removeprefix("remoteclaw: ") if lines else "it printed nothing."
    raise RemoteClawError(f"A {name} ended at its start: {reason}")


async def _keep(
    name: str,
    run: Callable[[], Coroutine[Any, Any, int]],
    *,
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Call `run`, which runs a process to its end, again and again, until `until()` is true.

    The pauses grow while the process ends early.
    """
    failures = 0
    while True:
        since = boottime()
        status = await run()
        if until():
            return
        failures = 0 if boottime() - since > STABLE_S else failures + 1
        pause = RESTART_AFTER_S[min(failures, len(RESTART_AFTER_S) - 1)]
        RESTARTED.log(log, process=name, status=status, seconds=pause)
        await asyncio.sleep(pause)
