"""Random chaos on real processes, and a check of what happened to every message.

    python -m tests.chaos [--seconds 180] [--seed 1] [--workers 4] [--sessions 12]

Workers, work-horses, agents and Redis are killed, work-horses are frozen for longer than their
lease lasts, hints are deleted, and platforms send messages twice.
At the end, no message may be lost, doubled or out of order, and no process may be left running.
This is a smoke test: `tests/session/test_failpoints.py` proves each step by itself.
"""

import argparse
import asyncio
import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.clock import boottime
from remoteclaw.config.home import Home
from remoteclaw.config.model import QueueMode, QueueOverride
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.holder.runs import has_holder
from tests.support.bridges import script
from tests.support.processes import children, is_alive, marked_processes
from tests.support.stack import REPLIES, Stack
from tests.support.waiting import HANG_S, eventually

LEASE_S = 2.0
#: The counts that must be 0 at the end.
PROMISES = ("lost", "doubled", "out of order", "orphans")
#: An agent that repeats the number in its prompt, after a pause in which it reads further messages.
AGENT = """
import random, select
pipe = open(0, 'rb', buffering=0, closefd=False)
def turn():
    line = pipe.readline()
    if not line: sys.exit()
    return json.loads(line)
while True:
    message = turn()
    if message['type'] == 'steer':
        say(type='refused', id=message['id'])
        continue
    word = message['prompt'].split()[-1]
    say(type='text', text='thinking' + ' x' * 2000)
    aborted = False
    while select.select([0], [], [], random.random() * 0.1)[0] and not aborted:
        message = turn()
        aborted = message['type'] == 'interrupt'
        if not aborted:
            say(type='steered', id=message['id'])
    say(type='text', text=chr(10) * 2 + 'answer ' + word)
    say(type='done', aborted=aborted)
"""
#: The disruptions of a fleet.
DISRUPTIONS = ("kill_worker", "kill_horse", "freeze_horse", "kill_agent", "kill_redis", "stop")
#: The queue modes for messages to a busy session; the sessions use them in turn.
MODES: tuple[QueueMode, ...] = ("followup", "steer", "collect", "interrupt")


class Chaos:
    """A fleet under disruption, and all entries that it accepted."""

    def __init__(self, stack: Stack, *, seed: int, workers: int, sessions: int) -> None:
        self.stack = stack
        self.random = random.Random(seed)
        self.workers = workers
        self.sessions = [f"person-{number}" for number in range(sessions)]
        self.accepted: dict[str, list[Accepted]] = collections.defaultdict(list)
        self.disruptions: collections.Counter[str] = collections.Counter()
        self._sweeper: subprocess.Popen[bytes] | None = None
        self._frozen: set[int] = set()
        self.orphans = 0
        """The number of agents, and processes of agents, that belong to no session at the end."""

    async def run(self, seconds: float) -> None:
        """Disrupt the fleet for `seconds`; then wait until it is idle."""
        until = boottime() + seconds
        keeping = asyncio.create_task(self._keep_running())
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._talk(until))
                tasks.create_task(self._break(until))
            for pid in self._frozen:
                _signal(pid, signal.SIGCONT)
            await eventually(self._is_at_rest, within_s=120)
            with contextlib.suppress(AssertionError):
                await eventually(self._is_tidy)
            self.orphans = len(await self._orphans())
        finally:
            keeping.cancel()
            await asyncio.wait((keeping,))
            if self._sweeper:
                self._sweeper.kill()
                self._sweeper.wait()

    # -- messages ----------------------------------------------------------------------------------

    def _is_running(self, until: float) -> bool:
        """Whether to continue: until the time is over and each disruption has happened once."""
        has_all = all(self.disruptions[name] for name in DISRUPTIONS)
        return boottime() < until or (not has_all and boottime() < until + HANG_S)

    async def _talk(self, until: float) -> None:
        number = 0
        while self._is_running(until):
            person = self.random.choice(self.sessions)
            number += 1
            # While Redis is away, an adapter would try again; this test skips the message.
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                accepted = await self._append(f"m{number}", person)
                self.accepted[person].append(accepted)
                await self._set_mode(accepted, person)
                if self.random.random() < 0.33:
                    again = await self._append(f"m{number}", person)
                    assert again.entry_id == accepted.entry_id
                if self.random.random() < 0.05:
                    await self.stack.fleet.sessions.stop(accepted.session.sid)
                    self.disruptions["stop"] += 1
            await asyncio.sleep(self.random.random() * 0.15)

    async def _append(self, text: str, person: str) -> Accepted:
        return await self.stack.append(text, id=text, from_=person)

    async def _set_mode(self, accepted: Accepted, person: str) -> None:
        mode = MODES[self.sessions.index(person) % len(MODES)]
        await self.stack.fleet.sessions.configure(accepted.session, QueueOverride(mode=mode))

    # -- disruptions -------------------------------------------------------------------------------

    async def _break(self, until: float) -> None:
        disrupt = [self._kill_worker, self._kill_horse, self._freeze_horse, self._kill_agent]
        disrupt += [self._lose_hints, self._lose_hints, self._kill_redis]
        while self._is_running(until):
            for method in self.random.sample(disrupt, len(disrupt)):
                with contextlib.suppress(OSError, IndexError):
                    await method()
                    self.disruptions[method.__name__.removeprefix("_")] += 1
                await asyncio.sleep(self.random.random() * 0.6)

    def _horses(self) -> list[int]:
        return [pid for worker in self.stack.workers for pid in children(worker.pid)]

    async def _kill_worker(self) -> None:
        self.random.choice(self.stack.workers).kill()

    async def _kill_horse(self) -> None:
        os.kill(self.random.choice(self._horses()), signal.SIGKILL)

    async def _freeze_horse(self) -> None:
        horse = self.random.choice(self._horses())
        os.kill(horse, signal.SIGSTOP)
        self._frozen.add(horse)
        pause = LEASE_S * (0.5 + 2 * self.random.random())
        asyncio.get_running_loop().call_later(pause, _signal, horse, signal.SIGCONT)

    async def _kill_agent(self) -> None:
        os.kill(self.random.choice(marked_processes(self.stack.home)), signal.SIGKILL)

    async def _lose_hints(self) -> None:
        client = self.stack.fleet.scripts.client
        async for name in client.scan_iter(match="rq:queue:agents*"):
            await client.delete(name)

    async def _kill_redis(self) -> None:
        self.stack.redis.kill()
        await asyncio.to_thread(self.stack.redis.start)

    # -- supervision -------------------------------------------------------------------------------

    async def _keep_running(self) -> None:
        while True:
            running = [worker for worker in self.stack.workers if worker.poll() is None]
            self.stack.workers = running
            with contextlib.suppress(Exception):
                if len(running) < self.workers:
                    await self.stack.start_worker()
            if self._sweeper is None or self._sweeper.poll() is not None:
                program = str(Path(sys.executable).with_name("remoteclaw"))
                log = (self.stack.home.logs / "sweep.log").open("ab")
                with log:
                    self._sweeper = subprocess.Popen(
                        [program, "sweep"], env=self.stack.env(), stdout=log, stderr=log
                    )
            await asyncio.sleep(0.1)

    async def _is_at_rest(self) -> bool:
        for accepted in self.accepted.values():
            view = await self.stack.fleet.sessions.view(accepted[-1].session.sid)
            if view is None or view.status != "idle" or view.waiting:
                return False
        return True

    async def _is_tidy(self) -> bool:
        return not await self._orphans()

    async def _orphans(self) -> list[int]:
        """Return the processes without a holder, and a 0 for each holder that no session names."""
        client: Any = self.stack.fleet.scripts.client
        known = set()
        for accepted in self.accepted.values():
            name = keys.state(accepted[-1].session.sid)
            if record := await client.hget(name, "agent_process"):
                known.add(Path(orjson.loads(record)["path"]).parent.name)
        runs = [run for run in self.stack.home.runs.iterdir() if run.name not in known]
        strays = [pid for pid in marked_processes(self.stack.home) if not _has_holder(pid)]
        return strays + [0 for run in runs if has_holder(run)]

    # -- result ------------------------------------------------------------------------------------

    async def verdict(self) -> dict[str, int]:
        """Return the numbers of all messages and of those lost, doubled and out of order."""
        client: Any = self.stack.fleet.scripts.client
        known = {each.entry_id for accepted in self.accepted.values() for each in accepted}
        finals: dict[str, list[str]] = collections.defaultdict(list)
        places: collections.Counter[tuple[Any, ...]] = collections.Counter()
        for _, fields in await client.xrange(REPLIES):
            reply = orjson.loads(fields[b"reply"])
            places[reply["sid"], reply["turn"], reply["attempt"], reply["index"]] += 1
            finals[reply["sid"]] += reply["entries"]
        lost = doubled = disordered = retried = joined = 0
        for accepted in self.accepted.values():
            answered = finals[accepted[0].session.sid]
            ids = [each.entry_id for each in accepted]
            lost += len(set(ids) - set(answered))
            # An answer to an unknown entry means that one message became two entries.
            doubled += len(answered) - len(set(answered)) + len(set(answered) - known)
            ordered = sorted(answered, key=lambda entry: tuple(map(int, entry.split("-"))))
            disordered += answered != ordered
            for each in accepted:
                outcome = await self.stack.fleet.outcomes.read(each.session.sid, each.entry_id)
                lost += outcome is None or not outcome.is_final
                joined += outcome is not None and outcome.status == "steered"
                steps = outcome.steps if outcome else ()
                retried += sum(step.name == "begun" for step in steps) > 1
        doubled += sum(count - 1 for count in places.values())
        return {
            "messages": sum(map(len, self.accepted.values())),
            "lost": lost,
            "doubled": doubled,
            "out of order": disordered,
            "orphans": self.orphans,
            "begun more than once": retried,
            "joined a turn": joined,
        }


def _has_holder(pid: int) -> bool:
    """Whether a process is a holder, belongs to a running holder, or has just ended."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return True
    marks = [v.partition(b"=")[2] for v in variables if v.startswith(b"REMOTECLAW_HOLDER=")]
    return not marks or is_alive(int(marks[0].partition(b":")[0]))


def _signal(pid: int, number: signal.Signals) -> None:
    if is_alive(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


async def chaos(seconds: float, *, seed: int, workers: int, sessions: int) -> dict[str, int]:
    """Run chaos on a new fleet; return the verdict, and the number of each disruption."""
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as name:
        stack = Stack(Home(Path(name) / "home").create())
        await stack.start()
        command = list(script(Path(name), AGENT))
        stack.configure({"runtime": "demo", "command": command}, lease_s=LEASE_S)
        await stack.fleet.aclose()
        stack.reopen()
        work = Chaos(stack, seed=seed, workers=workers, sessions=sessions)
        try:
            await work.run(seconds)
            verdict = await work.verdict()
        finally:
            await stack.stop()  # it checks that nothing is left running
        return {**verdict, **work.disruptions}


def main() -> int:
    """Run chaos with the options of the command line; return 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, prog="scripts/chaos")
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--sessions", type=int, default=12)
    options = parser.parse_args()
    verdict = asyncio.run(
        chaos(
            options.seconds, seed=options.seed, workers=options.workers, sessions=options.sessions
        )
    )
    sys.stdout.write("".join(f"{name:<22} {count}\n" for name, count in verdict.items()))
    return int(any(verdict[name] for name in PROMISES))


if __name__ == "__main__":
    sys.exit(main())
