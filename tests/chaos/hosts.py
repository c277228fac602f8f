"""The hosts of a fleet: each is a state directory with processes, which are started again."""

import asyncio
import collections
import contextlib
import signal
from collections.abc import Mapping, Sequence

from remoteclaw.session.launch import LIFELINE
from remoteclaw.up.supervisor import worker_command
from tests.support.command import REMOTECLAW, Process, start_program
from tests.support.processes import family, name_of
from tests.support.stack import Stack
from tests.support.waiting import HANG_S

#: The pause between two looks at the processes of a host, in seconds.
LOOK_S = 0.1
#: A program that has not ended after this time is killed, in seconds, as service managers do. RQ's
#: worker overlooks a SIGTERM between its look at the stop flag and its wait for the next job.
GRACE_S = HANG_S / 4
#: The programs of a host with `up`.
UP: Mapping[str, Sequence[str]] = {"up": [REMOTECLAW, "up", "--no-chat"]}


def procfile(workers: int) -> dict[str, Sequence[str]]:
    """Return the programs of the Procfile, each with the command that it ends in."""
    return {
        **{f"worker {number}": worker_command() for number in range(workers)},
        "gateway": [REMOTECLAW, "gateway"],
        "sweep": [REMOTECLAW, "sweep"],
        "channel": [REMOTECLAW, "channel", "run"],
    }


class Host:
    """A host that starts its programs again whenever they end, as a service manager does."""

    def __init__(
        self, stack: Stack, programs: Mapping[str, Sequence[str]], *, workers: int
    ) -> None:
        self.stack = stack
        self.name = stack.home.path.name
        self.has_up = "up" in programs
        self._programs = programs
        self._workers = workers
        self._running: dict[str, Process] = {}
        self._is_wanted = True
        self.killed = 0
        """The number of programs that have not ended after SIGTERM."""

    async def keep(self) -> None:
        """Keep the programs running until cancelled."""
        while True:
            for name, argv in self._programs.items() if self._is_wanted else ():
                process = self._running.get(name)
                if process is None or process.poll() is not None:
                    log = self.stack.home.logs / f"{name.replace(' ', '-')}.log"
                    self._running[name] = start_program(argv, env=self._env(), log=log)
            await asyncio.sleep(LOOK_S)

    def _env(self) -> dict[str, str]:
        """Return the environment of a user of this host; only `up` has a lifeline, of its own."""
        user = self.stack.home.path.with_name(f"{self.name}-user")
        user.mkdir(exist_ok=True)
        env = self.stack.env(HOME=str(user))
        del env[LIFELINE]
        return env

    def parts(self) -> dict[str, list[int]]:
        """Return the ids of the processes by kind; a `horse` is a worker's fork for a session."""
        children, found = family(), collections.defaultdict[str, list[int]](list)
        for name, process in list(self._running.items()):
            if process.poll() is not None:
                continue
            found[name.partition(" ")[0]].append(process.pid)
            for server in children.get(process.pid, ()) if self.has_up else ():
                found["fork-server"].append(server)
                for pid in children.get(server, ()):
                    found[name_of(pid)].append(pid)
        found["horse"] = [pid for each in found["worker"] for pid in children.get(each, ())]
        return found

    def is_whole(self) -> bool:
        """Whether all processes run."""
        parts = self.parts()
        counts = [len(parts[kind]) for kind in ("worker", "gateway", "channel")]
        return counts == [self._workers, 1, 1]

    async def stop(self) -> None:
        """End the programs with SIGTERM, as the end of a service does."""
        self._is_wanted = False
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            with contextlib.suppress(AssertionError):
                await asyncio.to_thread(process.wait, GRACE_S)
            if process.poll() is None:
                self.killed += 1
                process.kill()
                await asyncio.to_thread(process.wait)

    async def restart(self) -> None:
        """End the programs with SIGTERM; they are started again."""
        await self.stop()
        self._is_wanted = True

    def kill(self, name: str) -> None:
        """Kill one of the programs."""
        self._running[name].kill()

    def end(self) -> None:
        """End what is left, after a failure."""
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
