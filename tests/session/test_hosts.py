"""Two hosts on one Redis: a session stays with its warm agent's host until that host is lost."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.fleet import keys, workers
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.session.notices import CONTEXT_LOST
from remoteclaw.up.supervisor import worker_command
from tests.support.processes import is_alive, marked_processes
from tests.support.stack import Stack, said
from tests.support.waiting import eventually


async def served_by(stack: Stack, accepted: Accepted) -> str:
    """Return the host that a session belongs to."""
    host: Any = await stack.fleet.scripts.client.hget(keys.state(accepted.session.sid), "host")
    return str(host.decode())


async def agent_of(stack: Stack, accepted: Accepted) -> int:
    return int((await stack.reached(accepted, "spawned")).rpartition(" ")[2])


async def lose_host(host: Stack) -> None:
    """Simulate a power failure: end a host's processes, and let its registrations expire."""
    await host.end_processes()
    client = host.fleet.scripts.client
    async for name in client.scan_iter(match=keys.host(f"*@{host.home.host_id}")):
        await client.delete(name)  # as if it had expired


async def test_a_session_stays_with_its_host(stack: Stack, other: Stack) -> None:
    """Workers of both hosts wait, and every message reaches the warm agent of its session."""
    await stack.start_worker()
    await other.start_worker()
    firsts = [await stack.append("hello", from_=f"person-{number}") for number in range(6)]
    for first in firsts:
        await stack.outcome(first)
        await stack.until_idle(first)
    agents = [await agent_of(stack, first) for first in firsts]

    again = [await stack.append("hello", from_=f"person-{number}") for number in range(6)]
    for message in again:
        await stack.outcome(message)

    assert [await agent_of(stack, message) for message in again] == agents
    for message in again:
        assert (await stack.reached(message, "spawned")).startswith("warm")


async def test_a_session_of_a_lost_host_moves_and_reports_the_lost_context(
    stack: Stack, other: Stack
) -> None:
    await stack.start_worker()
    first = await stack.append("hello")
    await stack.outcome(first)
    await stack.until_idle(first)
    await other.start_worker()

    await lose_host(stack)
    second = await stack.append("memory")

    assert said(await stack.outcome(second)).startswith(CONTEXT_LOST)
    assert await served_by(other, second) == other.home.host_id


async def test_a_message_that_waits_for_a_lost_host_is_served_by_another(
    stack: Stack, other: Stack
) -> None:
    """The message's hint is in a queue that no worker serves."""
    await stack.start_worker()
    first = await stack.append("hello")
    await stack.outcome(first)
    await stack.until_idle(first)
    await stack.end_processes()
    await other.start_worker()
    second = await stack.append("hello")  # the host still counts as alive
    assert await stack.fleet.scripts.client.llen(f"rq:queue:agents@{stack.home.host_id}") == 1

    await lose_host(stack)
    await stack.fleet.scripts.client.zadd(keys.ACTIVE, {second.session.sid: 0})
    await stack.fleet.sweeper.sweep()

    assert (await stack.outcome(second)).status == "done"


async def test_a_conversation_in_a_shared_workspace_continues_on_another_host(
    stack: Stack, other: Stack, directory: Path
) -> None:
    """Both hosts can read the CLI's own transcript, so nothing is lost."""
    workspace = directory / "shared"
    workspace.mkdir()
    for host in (stack, other):
        host.configure({"runtime": "demo", "workspace": str(workspace)})
    await stack.start_worker()
    first = await stack.append("hello")
    await stack.outcome(first)
    await stack.until_idle(first)
    agent = await agent_of(stack, first)
    await other.start_worker()

    await lose_host(stack)
    reply = await stack.ask("memory")

    assert reply == "You said before:\n\n- hello"
    assert not is_alive(agent)
    assert marked_processes(other.home)


async def test_messages_of_people_do_not_wait_for_the_background_lane(stack: Stack) -> None:
    await stack.start_worker(REMOTECLAW_PEOPLE_ONLY="1")
    background = await stack.append("hello", lane="background", from_="cron")

    assert "demo agent" in await stack.ask("hello")
    outcome = await stack.fleet.outcomes.read(background.session.sid, background.entry_id)
    assert outcome is not None
    assert outcome.status == "accepted"

    await stack.start_worker()
    assert (await stack.outcome(background)).status == "done"


async def test_a_message_of_a_person_moves_a_background_session_to_the_first_lane(
    stack: Stack,
) -> None:
    await stack.start_worker(REMOTECLAW_PEOPLE_ONLY="1")
    background = await stack.append("hello", lane="background")

    assert "message 2" in await stack.ask("hello")
    assert (await stack.outcome(background)).status == "done"


async def test_the_queue_of_a_lost_host_is_removed(stack: Stack, other: Stack) -> None:
    await stack.start_worker()
    first = await stack.append("hello")
    await stack.outcome(first)
    await stack.until_idle(first)
    await stack.end_processes()
    await stack.append("no worker takes the hint of this message")
    queue = f"agents@{stack.home.host_id}"
    workers, client = stack.fleet.workers, stack.fleet.scripts.client
    assert await workers.waiting() == 1
    jobs: Any = await client.lrange(f"rq:queue:{queue}", 0, -1)

    await workers.clear_deserted()
    assert await workers.waiting() == 1  # the host is silent, but not for long enough
    await lose_host(stack)
    await workers.clear_deserted()

    assert await client.llen(f"rq:queue:{queue}") == 0
    assert f"rq:queue:{queue}".encode() not in await client.smembers("rq:queues")
    assert not await client.exists(f"rq:job:{jobs[0].decode()}")


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
async def test_workers_of_two_containers_with_the_same_name_and_process_ids_are_two(
    stack: Stack, other: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is the first process in each."""
    monkeypatch.setattr(workers, "LOST_S", 0)
    with in_container(stack) as kept, in_container(other) as killed:
        listed = stack.fleet.workers.list

        async def are_ready() -> bool:
            for host, container in ((stack, kept), (other, killed)):
                if container.poll() is not None and "unshare:" in host.worker_logs():
                    pytest.skip(f"pid namespaces are not allowed here: {host.worker_logs()}")
                assert container.poll() is None, host.worker_logs()
            return sum(view.is_ours for view in await listed()) == 2

        await eventually(are_ready)
        views = await listed()
        ids = [stack.home.host_id, other.home.host_id]
        assert sorted((view.host_id, view.pid) for view in views) == sorted((id, 1) for id in ids)
        assert len({view.host for view in views}) == 1

        killed.kill()
        killed.wait()
        client, name = stack.fleet.scripts.client, f"worker {ids[1]} 1"
        announced = orjson.loads(await client.hget(keys.PROCESSES, name) or b"")
        long_ago = announced["at_ms"] - int(workers.GONE_S * 1000)
        await client.hset(keys.PROCESSES, name, orjson.dumps({**announced, "at_ms": long_ago}))

        async def is_noticed() -> bool:
            return [view.host_id for view in await listed()] == ids[:1]

        await eventually(is_noticed)
        await stack.fleet.workers.clear_dead(lambda _: True)
        assert await stack.fleet.workers.clear_dead(lambda _: True) == 1
        assert [view.is_ours for view in await listed()] == [True]


@contextlib.contextmanager
def in_container(stack: Stack) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a worker in a pid namespace of its own."""
    namespaces = "--pid" if os.getuid() == 0 else "--map-root-user --pid"
    unshare = ["unshare", *namespaces.split(), "--fork", "--kill-child", "--mount-proc"]
    with (stack.home.logs / "worker-0.log").open("wb") as log:
        container = subprocess.Popen(
            [*unshare, *worker_command()], env=stack.env(), stdout=log, stderr=log
        )
    try:
        yield container
    finally:
        container.kill()
        container.wait()
