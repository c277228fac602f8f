"""Random chaos on real processes, and a look at what became of every message.

    python -m tests.chaos [--seconds 180] [--seed 1] [--workers 4] [--sessions 12]

Workers, work-horses, agents and Redis are killed, work-horses are frozen past their lease, hints
are taken away, and platforms send messages twice.
In the end nothing may be lost, doubled or out of order, and nothing may be left running.
It is a smoke test: what must hold at each step is proven in `tests/session/test_failpoints.py`.
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
from remoteclaw.fleet.inbound import Accepted
from remoteclaw.holder.runs import listens
from tests.support.bridges import script
from tests.support.processes import children, is_alive, marked_processes
from tests.support.stack import REPLIES, Stack
from tests.support.waiting import HANG_S, eventually

LEASE_S = 2.0
#: What must be 0 in the end.
PROMISES = ("lost", "doubled", "out of order", "orphans")
#: An agent that answers with the number that it was asked, after a moment in which it listens.
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
#: What is done to a fleet.
WAYS = ("kill_worker", "kill_horse", "freeze_horse", "kill_agent", "kill_redis", "stop")
#: What becomes of a message to a busy session, by session.
MODES: tuple[QueueMode, ...] = ("followup", "steer", "collect", "interrupt")


class Chaos:
    """A fleet, a saboteur, and a list of all that was accepted."""

    def __init__(self, stack: Stack, *, seed: int, workers: int, sessions: int) -> None:
        self.stack = stack
        self.random = random.Random(seed)
        self.workers = workers
        self.sessions = [f"person-{number}" for number in range(sessions)]
        self.accepted: dict[str, list[Accepted]] = collections.defaultdict(list)
        self.happened: collections.Counter[str] = collections.Counter()
        self._sweeper: subprocess.Popen[bytes] | None = None
        self._frozen: set[int] = set()
        self.orphans = 0
        """Agents, and what they started, that belong to no session when all is at rest."""

    async def run(self, seconds: float) -> None:
        """Do it all for so long; then let the fleet come to rest."""
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

    # -- what people do ----------------------------------------------------------------------------

    def _goes_on(self, until: float) -> bool:
        """Whether it is not yet time to rest: everything happens once, however slow it all is."""
        has_all_happened = all(self.happened[way] for way in WAYS)
        return boottime() < until or (not has_all_happened and boottime() < until + HANG_S)

    async def _talk(self, until: float) -> None:
        number = 0
        while self._goes_on(until):
            person = self.random.choice(self.sessions)
            number += 1
            # While Redis is away an adapter would try again; here it is not sent.
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                accepted = await self._append(f"m{number}", person)
                self.accepted[person].append(accepted)
                await self._set_mode(accepted, person)
                if self.random.random() < 0.33:
                    again = await self._append(f"m{number}", person)
                    assert again.entry_id == accepted.entry_id
                if self.random.random() < 0.05:
                    await self.stack.fleet.sessions.stop(accepted.session.sid)
                    self.happened["stop"] += 1
            await asyncio.sleep(self.random.random() * 0.15)

    async def _append(self, text: str, person: str) -> Accepted:
        return await self.stack.append(text, id=text, from_=person)

    async def _set_mode(self, accepted: Accepted, person: str) -> None:
        mode = MODES[self.sessions.index(person) % len(MODES)]
        await self.stack.fleet.sessions.configure(accepted.session, QueueOverride(mode=mode))

    # -- what goes wrong ---------------------------------------------------------------------------

    async def _break(self, until: float) -> None:
        ways = [self._kill_worker, self._kill_horse, self._freeze_horse, self._kill_agent]
        ways += [self._lose_hints, self._lose_hints, self._kill_redis]
        while self._goes_on(until):
            for way in self.random.sample(ways, len(ways)):
                with contextlib.suppress(OSError, IndexError):
                    await way()
                    self.happened[way.__name__.removeprefix("_")] += 1
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

    # -- who looks after it ------------------------------------------------------------------------

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
        """Return what no session knows of: processes without a holder, 0 for holders."""
        client: Any = self.stack.fleet.scripts.client
        known = set()
        for accepted in self.accepted.values():
            name = keys.state(accepted[-1].session.sid)
            if record := await client.hget(name, "agent_process"):
                known.add(Path(orjson.loads(record)["path"]).parent.name)
        runs = [run for run in self.stack.home.runs.iterdir() if run.name not in known]
        strays = [pid for pid in marked_processes(self.stack.home) if not _has_holder(pid)]
        return strays + [0 for run in runs if listens(run)]

    # -- what became of it -------------------------------------------------------------------------

    async def verdict(self) -> dict[str, int]:
        """Return how many messages were lost, doubled and out of order, of how many."""
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
            said = finals[accepted[0].session.sid]
            ids = [each.entry_id for each in accepted]
            lost += len(set(ids) - set(said))
            # What was never accepted is a message that was taken for two.
            doubled += len(said) - len(set(said)) + len(set(said) - known)
            disordered += said != sorted(said, key=lambda entry: tuple(map(int, entry.split("-"))))
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
    """Whether a process is a holder, or one's that lives; one that has just ended is no stray."""
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
    """Run it on a fleet of its own; return the verdict, and what was done to the fleet."""
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
            await stack.stop()  # which sees that nothing is left running
        return {**verdict, **work.happened}


def main() -> int:
    """Run chaos as the command line says; return 1 if a promise was broken."""
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
