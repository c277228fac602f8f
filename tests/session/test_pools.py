"""Pools: an agent's turns run only on workers with its label, and such workers run nothing else."""

import asyncio

from remoteclaw.client.own import call_own_gateway
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import Accepted
from tests.support.command import REMOTECLAW, run_command, start_program
from tests.support.doors import opened
from tests.support.stack import Stack, message
from tests.support.waiting import eventually


async def send(stack: Stack, agent: str, text: str = "hello") -> Accepted:
    return await stack.fleet.inbound.append(message(text), agent=agent)


async def host_of(stack: Stack, accepted: Accepted) -> str:
    """Return the host that has answered a message."""
    await stack.outcome(accepted)
    await stack.until_idle(accepted)
    view = await stack.fleet.sessions.view(accepted.session.sid)
    assert view is not None
    return str(view.host)


async def test_an_agents_turns_run_only_on_workers_with_its_label(
    stack: Stack, other: Stack
) -> None:
    for host in (stack, other):
        host.configure({"runtime": "demo", "runs_on": "gpu"}, agents={"clerk": {"runtime": "demo"}})
    early = await send(stack, "main")  # its hint is for all workers: no process knows the label yet
    client = stack.fleet.scripts.client
    assert await client.llen("rq:queue:agents") == 1
    await stack.start_worker()
    assert await host_of(stack, await send(stack, "clerk")) == stack.home.host_id
    assert (await stack.outcome_so_far(early)).status == "accepted"
    assert await client.llen("rq:queue:agents.gpu") == 1
    arguments = ("send", "--agent", "main", "--wait", "0", "and now?")
    async with opened(stack, is_private=True):
        status = await call_own_gateway(stack.home, "fleet.status", {})
        sent = await asyncio.to_thread(run_command, *arguments, env=stack.env())
    assert "the message waits: no worker has the label gpu" in sent.stderr
    problems = {problem["subject"]: problem["text"] for problem in status["problems"]}
    assert "no worker has the label gpu" in problems["agent main"]
    assert "remoteclaw worker --label gpu" in problems["agent main"]
    assert {lane["name"]: lane["hints"] for lane in status["lanes"]}["agents.gpu"] == 1

    command, log = [REMOTECLAW, "worker", "--label", "gpu"], other.home.logs / "worker-0.log"
    other.workers.append(start_program(command, env=other.env(), log=log))

    assert await host_of(stack, early) == other.home.host_id
    clerk, main = await send(stack, "clerk", "again"), await send(stack, "main", "again")
    assert await host_of(stack, clerk) == stack.home.host_id
    assert await host_of(stack, main) == other.home.host_id
    assert (await stack.reached(main, "spawned")).startswith("warm")
    labels = {view.host_id: view.label for view in await stack.fleet.workers.list()}
    assert labels == {stack.home.host_id: "", other.home.host_id: "gpu"}

    await stack.fleet.drains.drain(other.home.host_id)

    await eventually(lambda: other.workers[0].poll() is not None)
    waiting = await send(stack, "main", "with nobody")
    assert await client.llen("rq:queue:agents.gpu") == 1
    assert (await stack.outcome_so_far(waiting)).status == "accepted"


async def test_the_sweeper_sends_a_lost_hint_to_the_pool_of_the_agent(stack: Stack) -> None:
    await stack.fleet.pools.put("main", "gpu")
    accepted, client = await send(stack, "main"), stack.fleet.scripts.client
    await client.delete("rq:queue:agents.gpu")
    await client.zadd(keys.ACTIVE, {accepted.session.sid: 0})

    assert await stack.fleet.sweeper.sweep() == 1

    assert await client.llen("rq:queue:agents.gpu") == 1
    assert not await client.exists("rq:queue:agents")


async def test_a_label_that_can_be_no_queue_is_refused(stack: Stack) -> None:
    printed = await asyncio.to_thread(run_command, "worker", "--label", "a.b", env=stack.env())

    assert "is no label: use at most 32 lowercase letters, digits and -" in printed.stderr
