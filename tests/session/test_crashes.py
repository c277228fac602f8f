"""Whoever is killed in the middle of a turn: one outcome, and nothing left running."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge import Hooks
from remoteclaw.config.load import load_config
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import Scripts, open_redis
from remoteclaw.fleet.inbound import Accepted
from remoteclaw.host import process
from remoteclaw.session.drain import Drain
from remoteclaw.session.notices import SECOND_TRY
from tests.conftest import shifted
from tests.support.bridges import script
from tests.support.processes import children, is_alive, is_killed, marked_processes, parent
from tests.support.stack import REPLIES, Stack, kill, said
from tests.support.waiting import eventually

#: An agent that starts a tool in a session of its own and hangs the first time it is asked; from
#: then on it answers at once. It says which processes it consists of.
STUBBORN = """
import subprocess
while True:
    prompt = turn()['prompt']
    if os.path.exists('asked'):
        say(type='text', text='answered ' + prompt.split()[-1])
        say(type='done')
        continue
    open('asked', 'w')
    tool = subprocess.Popen(['setsid', 'sh', '-c', 'setsid sleep 1000 & sleep 1000'])
    say(type='text', text='pids {} {}'.format(os.getpid(), tool.pid))
    time.sleep(1000)
"""

LEASE_S = 2.0


@pytest.fixture
async def agent(stack: Stack, directory: Path) -> AsyncIterator[Stack]:
    """A stack whose agent hangs at first, with a short lease and a sweeper."""
    command = list(script(directory, STUBBORN))
    stack.configure({"runtime": "demo", "command": command}, lease_s=LEASE_S)
    await stack.fleet.aclose()
    stack.reopen()
    sweeping = asyncio.create_task(stack.fleet.sweeper.run())
    yield stack
    sweeping.cancel()


async def hanging(stack: Stack) -> tuple[Accepted, list[int]]:
    """Send a message and wait until its agent hangs; return all processes of the agent."""
    accepted = await stack.append("hello")
    await stack.reached(accepted, "output")
    processes = await eventually(lambda: len(found := marked_processes(stack.home)) >= 5 and found)
    return accepted, processes


def horse_of(worker_pid: int) -> int:
    (horse,) = children(worker_pid)
    return horse


async def gone(processes: list[int]) -> None:
    await eventually(lambda: not [pid for pid in processes if is_alive(pid)])


async def gone_before_the_next(stack: Stack, accepted: Accepted, processes: list[int]) -> None:
    """Wait until an attempt's processes have ended; see that the next one has not begun before."""

    async def are_gone() -> bool:
        outcome = await stack.outcome_so_far(accepted)
        begun = [step for step in outcome.steps if step.name == "begun"]
        left = [pid for pid in processes if is_alive(pid)]
        assert not left or len(begun) == 1
        return not left

    await eventually(are_gone)


async def one_outcome(stack: Stack, accepted: Accepted) -> None:
    """See that the message was answered by the second attempt, and answered once."""
    outcome = await stack.outcome(accepted)
    assert outcome.status == "done"
    assert said(outcome) == f"{SECOND_TRY}\n\nanswered hello"
    assert [step.attempt for step in outcome.steps if step.name == "begun"] == [1, 2]
    client = stack.fleet.scripts.client
    entries: Any = await client.xrange(REPLIES)
    finals = [entry for _, entry in entries if accepted.entry_id.encode() in entry[b"reply"]]
    assert len([entry for entry in finals if b'"entries":["' in entry[b"reply"]]) == 1
    assert await client.xlen(keys.inbound(accepted.session.sid)) == 0
    view = await stack.fleet.sessions.view(accepted.session.sid)
    assert view is not None
    await stack.until_idle(accepted)


async def test_the_work_horse(agent: Stack) -> None:
    worker = await agent.start_worker()
    accepted, processes = await hanging(agent)

    os.kill(horse_of(worker.pid), signal.SIGKILL)

    await gone_before_the_next(agent, accepted, processes)
    await one_outcome(agent, accepted)


async def test_the_worker(agent: Stack) -> None:
    await agent.start_worker()
    await agent.start_worker()
    accepted, processes = await hanging(agent)
    busy = next(w for w in agent.workers if children(w.pid))
    horse = horse_of(busy.pid)

    busy.kill()

    await gone_before_the_next(agent, accepted, [*processes, horse])
    await one_outcome(agent, accepted)


async def test_a_horse_that_freezes_past_its_lease(agent: Stack) -> None:
    await agent.start_worker()
    await agent.start_worker()
    accepted, processes = await hanging(agent)
    busy = next(w for w in agent.workers if children(w.pid))
    horse = horse_of(busy.pid)

    os.kill(horse, signal.SIGSTOP)

    await gone_before_the_next(agent, accepted, processes)
    await one_outcome(agent, accepted)
    os.kill(horse, signal.SIGCONT)
    await gone([horse])  # it finds its lease lost and leaves
    await one_outcome(agent, accepted)


async def test_redis(agent: Stack) -> None:
    """Back within the lease, it finds the turn still running; what was accepted is still there."""
    await agent.start_worker()
    (agent.home.path / "workspaces" / "main").mkdir(parents=True)
    (agent.home.path / "workspaces" / "main" / "asked").touch()
    await agent.ask("hello")  # warm
    (agent.home.path / "workspaces" / "main" / "asked").unlink()
    accepted, processes = await hanging(agent)
    waiting = await agent.append("second")

    agent.redis.kill()
    await asyncio.to_thread(agent.redis.start)

    assert [pid for pid in processes if is_alive(pid)] == processes
    await agent.fleet.sessions.stop(accepted.session.sid)
    assert (await agent.outcome(accepted)).status == "stopped"
    assert (await agent.outcome(waiting)).status == "stopped"


async def test_redis_for_longer_than_the_lease(agent: Stack) -> None:
    await agent.start_worker()
    accepted, processes = await hanging(agent)

    agent.redis.kill()
    await gone(processes)
    await asyncio.to_thread(agent.redis.start)
    # RQ's worker ends when Redis is away as its job does: whoever supervises it starts another.
    await agent.start_worker()

    await one_outcome(agent, accepted)


async def test_redis_that_has_lost_who_took_the_session(stack: Stack, directory: Path) -> None:
    """Its worker ends its agent as soon as it is connected again: another worker may be quick."""
    proxy = await stack.proxied()
    command = list(script(directory, CLINGING.format(times=100_000)))
    stack.configure({"runtime": "demo", "command": command}, redis_url=proxy.url, lease_s=600)
    await stack.fleet.aclose()
    stack.reopen()
    await stack.start_worker()
    taken = proxy.arm("acquire", "before")
    accepted = await stack.append("hello")
    await taken.wait()
    size = stack.redis.written()
    taken.release()
    live, client = keys.live(accepted.session.sid), stack.fleet.scripts.client
    log = stack.home.path / "workspaces" / "main" / "log"
    await eventually(log.exists)  # the second agent knows by it that it is not the first
    await eventually(lambda: client.exists(live))  # from now on it writes nothing by itself

    # RQ's own process may end where Redis was away, and what it takes before that with it.
    kill(stack.workers[0].pid, signal.SIGSTOP)
    stack.redis.kill()
    stack.redis.lose(size)
    await asyncio.to_thread(stack.redis.start)
    sweeping = asyncio.create_task(stack.fleet.sweeper.run())
    await stack.start_worker()

    outcome = await stack.outcome(accepted)
    assert said(outcome) == f"{SECOND_TRY}\n\nhere"
    first, second = dict.fromkeys(log.read_text().split())
    await gone([int(first)])
    pids = log.read_text().split()
    beside = pids[pids.index(second) :].count(first) * CLINGING_STEP_S
    assert beside < 3, "hardly longer than an agent may take to end"
    await stack.until_idle(accepted)
    entries: Any = await client.xrange(REPLIES)
    assert len([entry for _, entry in entries if b'"entries":["' in entry[b"reply"]]) == 1
    sweeping.cancel()


async def test_a_clock_that_is_set_forward(stack: Stack, directory: Path) -> None:
    """A turn that runs loses its lease and is asked again: once, and the person is told."""
    stack.configure({"runtime": "demo", "command": list(script(directory, STUBBORN))})
    await stack.fleet.aclose()
    scripts = Scripts(open_redis(stack.redis.url), edit=shifted)
    stack.fleet = Fleet.open(stack.redis.url, lease_s=stack.lease_s, scripts=scripts)
    drain = Drain(stack.fleet, load_config(stack.home.config_file, {}), stack.home, Hooks())
    accepted = await stack.append("hello")
    first = asyncio.create_task(drain.run(accepted.session.sid))
    await stack.reached(accepted, "output")

    await scripts.client.incrby("test:shift", 3_600_000)
    assert await stack.fleet.sweeper.sweep() == 1
    await drain.run(accepted.session.sid)

    await one_outcome(stack, accepted)
    await first
    await scripts.client.incrby("test:shift", 3_600_000)
    assert await stack.fleet.sweeper.sweep() == 0


@pytest.mark.parametrize("is_holder", [False, True], ids=["agent", "holder"])
async def test_the_agent(agent: Stack, is_holder: bool) -> None:
    await agent.start_worker()
    accepted, processes = await hanging(agent)
    pid = int((await agent.reached(accepted, "spawned")).rpartition(" ")[2])

    os.kill(parent(pid) if is_holder else pid, signal.SIGKILL)

    outcome = await agent.outcome(accepted)
    assert outcome.status == "failed"
    if is_holder:
        assert [pid for pid in processes if not is_killed(pid)] == []
    await gone(processes)  # a holder tells of an agent's end first, and asks what is left to end


#: An agent that hangs with a tool of its own if it is the first one, and that notes which of those
#: before it live as it starts.
NOTING = """
import subprocess
def lives(pid):
    try:
        return open('/proc/' + pid + '/stat').read().rpartition(')')[2].split()[0] != 'Z'
    except OSError:
        return False
before = open('pids').read().split() if os.path.exists('pids') else []
print(*filter(lives, before), file=open('beside', 'w'))
print(os.getpid(), file=open('pids', 'a'))
turn()
if not before:
    tool = subprocess.Popen(['setsid', 'sleep', '1000'])
    print(tool.pid, file=open('pids', 'a'))
    say(type='text', text='here')
    time.sleep(1000)
say(type='text', text='answered')
say(type='done')
"""


async def test_a_holder_that_is_frozen_as_its_worker_dies(agent: Stack, directory: Path) -> None:
    """It can end nothing, so the next worker ends it, and only then starts another agent."""
    command = list(script(directory, NOTING))
    agent.configure({"runtime": "demo", "command": command}, lease_s=30)
    worker = await agent.start_worker()
    accepted = await agent.append("hello")
    await agent.reached(accepted, "output")
    pid = int((await agent.reached(accepted, "spawned")).rpartition(" ")[2])
    holder = parent(pid)

    os.kill(holder, signal.SIGSTOP)
    os.kill(horse_of(worker.pid), signal.SIGKILL)
    host = agent.home.host_id
    await eventually(lambda: agent.fleet.sweeper.release_dead(host, process.is_alive))

    assert said(await agent.outcome(accepted)) == f"{SECOND_TRY}\n\nanswered"
    workspace = agent.home.path / "workspaces" / "main"
    assert (workspace / "beside").read_text().split() == []
    first, tool, _second = map(int, (workspace / "pids").read_text().split())
    assert first == pid
    assert [each for each in (holder, first, tool) if is_alive(each)] == []


#: An agent that doesn't want to end, and notes all the time that it is there.
CLINGING = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
prompt = turn()['prompt']
is_first = not os.path.exists('log')
with open('log', 'a') as log:
    say(type='text', text='here')
    for _ in range({times} if is_first else 1):
        print(os.getpid(), file=log, flush=True)
        time.sleep(0.005)
say(type='done')
"""
CLINGING_STEP_S = 0.005


async def test_two_agents_of_a_session_are_never_at_work_at_once(
    agent: Stack, directory: Path
) -> None:
    """Also when its lease is known to be over before the first one has ended."""
    command = list(script(directory, CLINGING.format(times=1000)))
    agent.configure({"runtime": "demo", "command": command}, lease_s=30)
    worker = await agent.start_worker()
    accepted = await agent.append("hello")
    await agent.reached(accepted, "output")

    os.kill(horse_of(worker.pid), signal.SIGKILL)
    host = agent.home.host_id
    await eventually(lambda: agent.fleet.sweeper.release_dead(host, process.is_alive))

    assert (await agent.outcome(accepted)).status == "done"
    pids = (agent.home.path / "workspaces" / "main" / "log").read_text().split()
    assert len(set(pids)) == 2
    assert pids == sorted(pids, key=pids.index), "both wrote"
