"""Kills and freezes during a turn: the message has one outcome, and no process is left."""

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
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.host import process
from remoteclaw.session.drain import Drain
from remoteclaw.session.notices import SECOND_TRY
from tests.conftest import shifted
from tests.support.bridges import script
from tests.support.processes import children, is_alive, is_killed, marked_processes, parent
from tests.support.stack import REPLIES, Stack, kill, said
from tests.support.waiting import eventually

#: An agent that at its first message starts a tool in a process session of its own and hangs, and
#: later answers at once. It replies with the pids of its processes.
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
    """A stack with a short lease and a sweeper, whose agent hangs at its first message."""
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


async def wait_until_ended(processes: list[int]) -> None:
    await eventually(lambda: not [pid for pid in processes if is_alive(pid)])


async def check_end_before_retry(stack: Stack, accepted: Accepted, processes: list[int]) -> None:
    """Wait until the processes have ended; check that the next attempt does not begin earlier."""

    async def have_ended() -> bool:
        outcome = await stack.outcome_so_far(accepted)
        begun = [step for step in outcome.steps if step.name == "begun"]
        left = [pid for pid in processes if is_alive(pid)]
        assert not left or len(begun) == 1
        return not left

    await eventually(have_ended)


async def check_one_outcome(stack: Stack, accepted: Accepted) -> None:
    """Check that the second attempt answered the message, and that it was answered once."""
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


async def test_a_message_has_one_outcome_if_the_work_horse_is_killed(agent: Stack) -> None:
    worker = await agent.start_worker()
    accepted, processes = await hanging(agent)

    os.kill(horse_of(worker.pid), signal.SIGKILL)

    await check_end_before_retry(agent, accepted, processes)
    await check_one_outcome(agent, accepted)


async def test_a_message_has_one_outcome_if_the_worker_is_killed(agent: Stack) -> None:
    await agent.start_worker()
    await agent.start_worker()
    accepted, processes = await hanging(agent)
    busy = next(w for w in agent.workers if children(w.pid))
    horse = horse_of(busy.pid)

    busy.kill()

    await check_end_before_retry(agent, accepted, [*processes, horse])
    await check_one_outcome(agent, accepted)


async def test_a_message_has_one_outcome_if_the_work_horse_freezes_past_its_lease(
    agent: Stack,
) -> None:
    await agent.start_worker()
    await agent.start_worker()
    accepted, processes = await hanging(agent)
    busy = next(w for w in agent.workers if children(w.pid))
    horse = horse_of(busy.pid)

    os.kill(horse, signal.SIGSTOP)

    await check_end_before_retry(agent, accepted, processes)
    await check_one_outcome(agent, accepted)
    os.kill(horse, signal.SIGCONT)
    await wait_until_ended([horse])  # it finds that its lease is lost, and exits
    await check_one_outcome(agent, accepted)


async def test_a_running_turn_continues_if_redis_restarts_within_the_lease(agent: Stack) -> None:
    """After the restart, the turn still runs, and all accepted messages are kept."""
    await agent.start_worker()
    (agent.home.path / "workspaces" / "main").mkdir(parents=True)
    (agent.home.path / "workspaces" / "main" / "asked").touch()
    await agent.ask("hello")  # to have a warm agent
    (agent.home.path / "workspaces" / "main" / "asked").unlink()
    accepted, processes = await hanging(agent)
    waiting = await agent.append("second")

    agent.redis.kill()
    await asyncio.to_thread(agent.redis.start)

    assert [pid for pid in processes if is_alive(pid)] == processes
    await agent.fleet.sessions.stop(accepted.session.sid)
    assert (await agent.outcome(accepted)).status == "stopped"
    assert (await agent.outcome(waiting)).status == "stopped"


async def test_a_message_has_one_outcome_if_redis_is_down_longer_than_the_lease(
    agent: Stack,
) -> None:
    await agent.start_worker()
    accepted, processes = await hanging(agent)

    agent.redis.kill()
    await wait_until_ended(processes)
    await asyncio.to_thread(agent.redis.start)
    # RQ's worker exits if Redis is down at the end of its job; a supervisor starts another one.
    await agent.start_worker()

    await check_one_outcome(agent, accepted)


async def test_a_worker_ends_its_agent_if_redis_has_lost_the_lease(
    stack: Stack, directory: Path
) -> None:
    """The worker ends its agent as soon as it reconnects, because another worker may be quick."""
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
    await eventually(log.exists)  # tells the second agent that it is not the first one
    await eventually(lambda: client.exists(live))  # afterwards, it writes nothing on its own

    # RQ's own process may exit after Redis was down, together with its work-horse.
    kill(stack.workers[0].pid, signal.SIGSTOP)
    stack.redis.kill()
    stack.redis.lose(size)
    await asyncio.to_thread(stack.redis.start)
    sweeping = asyncio.create_task(stack.fleet.sweeper.run())
    await stack.start_worker()

    outcome = await stack.outcome(accepted)
    assert said(outcome) == f"{SECOND_TRY}\n\nhere"
    first, second = dict.fromkeys(log.read_text().split())
    await wait_until_ended([int(first)])
    pids = log.read_text().split()
    overlap_s = pids[pids.index(second) :].count(first) * CLINGING_STEP_S
    assert overlap_s < 3, "hardly longer than an agent may take to end"
    await stack.until_idle(accepted)
    entries: Any = await client.xrange(REPLIES)
    assert len([entry for _, entry in entries if b'"entries":["' in entry[b"reply"]]) == 1
    sweeping.cancel()


async def test_a_message_has_one_outcome_if_the_clock_is_set_forward(
    stack: Stack, directory: Path
) -> None:
    """The running turn loses its lease and is repeated once, with a notice."""
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

    await check_one_outcome(stack, accepted)
    await first
    await scripts.client.incrby("test:shift", 3_600_000)
    assert await stack.fleet.sweeper.sweep() == 0


@pytest.mark.parametrize("is_holder", [False, True], ids=["agent", "holder"])
async def test_a_turn_fails_without_leftover_processes_if_agent_or_holder_is_killed(
    agent: Stack, is_holder: bool
) -> None:
    await agent.start_worker()
    accepted, processes = await hanging(agent)
    pid = int((await agent.reached(accepted, "spawned")).rpartition(" ")[2])

    os.kill(parent(pid) if is_holder else pid, signal.SIGKILL)

    outcome = await agent.outcome(accepted)
    assert outcome.status == "failed"
    if is_holder:
        assert [pid for pid in processes if not is_killed(pid)] == []
    # A holder reports the end of its agent before it ends the remaining processes.
    await wait_until_ended(processes)


#: An agent that notes at its start which earlier agents still run; the first one hangs in a tool.
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


async def test_the_next_worker_ends_a_frozen_holder_before_it_starts_an_agent(
    agent: Stack, directory: Path
) -> None:
    """A frozen holder cannot end its agent, so the next worker must end both."""
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


#: An agent that ignores SIGTERM and writes its pid to a log all the time.
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


async def test_two_agents_of_a_session_never_work_at_the_same_time(
    agent: Stack, directory: Path
) -> None:
    """The lease is released before the first agent has ended."""
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
    assert pids == sorted(pids, key=pids.index), "both agents wrote at the same time"
