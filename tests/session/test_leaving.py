"""Workers that are terminated: their running turn ends, and other workers continue the rest."""

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from remoteclaw.bridge import Hooks
from remoteclaw.clock import boottime
from remoteclaw.config.load import load_config
from remoteclaw.fleet.drains import wait_while_drained
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.holder.runs import warm_agents
from remoteclaw.session.drain import Drain
from remoteclaw.session.queue import MAX_ATTEMPTS
from remoteclaw.up.supervisor import worker_command
from tests.support.bridges import WAITING, acp_script, script
from tests.support.command import REMOTECLAW, ROOT, run_command, start_program
from tests.support.conversations import dying
from tests.support.requests import BODY, answered, open_request, shown
from tests.support.stack import Stack, said
from tests.support.up import running
from tests.support.waiting import HANG_S, eventually


def go(stack: Stack) -> None:
    (stack.home.path / "workspaces" / "main" / "go").touch()


async def begun(stack: Stack, accepted: Accepted, attempt: int) -> None:
    """Wait until an attempt has produced output."""
    await stack.fleet.waker.hint(accepted.session.sid, "test", queue="agents")

    async def is_begun() -> bool:
        steps = (await stack.outcome_so_far(accepted)).steps
        return ("output", attempt) in [(step.name, step.attempt) for step in steps]

    await eventually(is_begun)


async def test_a_message_survives_any_number_of_graceful_shutdowns(swept: Stack) -> None:
    """Shutdowns don't count as failures: one more failure would make the message a dead letter."""
    stack, accepted = swept, await swept.append("slow")
    for _ in range(MAX_ATTEMPTS - 1):
        async with dying(stack, accepted):
            pass

    with running(stack.home) as up:
        await begun(stack, accepted, MAX_ATTEMPTS)
        up.terminate()
        up.wait(HANG_S)

    stack.open_lifeline()  # `up` has ended the processes of the earlier lifeline
    await stack.start_worker()
    await begun(stack, accepted, MAX_ATTEMPTS + 1)


async def test_a_terminated_worker_finishes_its_turn_and_leaves_the_waiting_messages(
    stack: Stack, directory: Path
) -> None:
    stack.configure({"runtime": "demo", "command": list(script(directory, WAITING))}, linger_s=2)
    worker = await stack.start_worker()
    first, second = await stack.append("one"), await stack.append("two")
    await stack.reached(first, "output")
    worker.terminate()
    client = stack.fleet.scripts.client
    (name,) = [key async for key in client.scan_iter("rq:worker:*")]
    await eventually(lambda: client.hexists(name, "shutdown_requested_date"))
    go(stack)

    await eventually(lambda: worker.poll() is not None)
    assert said(await stack.outcome(first)) == "heard one"
    waiting = await stack.fleet.outcomes.read(second.session.sid, second.entry_id)
    assert waiting is not None
    assert waiting.status == "accepted"
    await stack.start_worker()
    assert said(await stack.outcome(second)) == "heard two"
    assert (await stack.reached(second, "spawned")).startswith("warm")


#: A worker that overlooks SIGTERM, as if RQ's exception had come while it wrote a log line.
OVERLOOKING = """
import sys
from rq.cli import main
from rq.worker import Worker
from remoteclaw.fleet import workers
workers.BEAT_S = 0.1
Worker._shutdown = lambda self: None
sys.argv[0] = "rq"
main()
"""


async def test_an_idle_worker_that_has_overlooked_sigterm_is_reminded(stack: Stack) -> None:
    _, *arguments = worker_command()
    command = (sys.executable, "-c", OVERLOOKING, *arguments)
    worker = subprocess.Popen(command, env=stack.env(), cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        await eventually(stack.fleet.workers.list)
        await stack.ask("hello")
        worker.terminate()

        await eventually(lambda: worker.poll() is not None)
    finally:
        worker.kill()
        worker.wait()
    assert worker.returncode == 0


async def test_a_lingering_worker_exits_when_it_is_terminated(stack: Stack) -> None:
    stack.configure(linger_s=30)
    worker = await stack.start_worker()
    await stack.ask("hello")
    worker.terminate()

    await eventually(lambda: worker.poll() is not None, within_s=25)  # earlier than its linger time


async def test_a_worker_does_not_linger_while_redis_is_away(stack: Stack) -> None:
    """It would ask Redis without a pause, and block its event loop."""
    stack.configure(linger_s=10)
    sid = (await stack.append("hello")).session.sid
    lease = await stack.fleet.leases.acquire(sid, host="host", worker="worker")
    assert lease is not None
    config = load_config(stack.home.config_file, {})
    stack.redis.kill()
    began_at = boottime()

    assert await Drain(stack.fleet, config, stack.home, Hooks())._linger(lease)

    assert boottime() - began_at < 5


async def test_a_second_sigterm_does_not_cut_off_a_turn(stack: Stack, directory: Path) -> None:
    """RQ would kill the work-horse: a supervisor signals also a worker of a drained host."""
    stack.configure({"runtime": "demo", "command": list(script(directory, WAITING))})
    worker = await stack.start_worker()
    accepted = await stack.append("one")
    await stack.reached(accepted, "output")
    worker.terminate()

    def ignores_sigterm() -> bool:
        status = Path(f"/proc/{worker.pid}/status").read_text()
        ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
        return bool(ignored >> (signal.SIGTERM - 1) & 1)

    await eventually(ignores_sigterm)
    worker.terminate()
    go(stack)

    assert said(await stack.outcome(accepted)) == "heard one"
    await eventually(lambda: worker.poll() is not None)


async def test_a_terminated_worker_does_not_wait_for_a_person(
    stack: Stack, directory: Path
) -> None:
    """The answer continues the turn at another worker."""
    stack.configure({"runtime": "acp", "command": list(acp_script(directory, BODY))})
    worker = await stack.start_worker()
    accepted = await stack.append("touch x")
    request = await open_request(stack)
    worker.terminate()

    assert "I wait for an answer" in said(await stack.outcome(accepted))
    await eventually(lambda: worker.poll() is not None)
    await stack.start_worker()
    assert (await answered(stack, request, "once")).startswith("Allowed once")
    view = await eventually(lambda: stack.fleet.sessions.view(accepted.session.sid))
    assert view is not None

    async def is_answered() -> bool:
        texts = [text async for text in shown(stack)]
        return any("touch x yes" in text for text in texts)

    await eventually(is_answered)


async def test_up_finishes_its_turns_after_sigterm(stack: Stack, directory: Path) -> None:
    """Its gateway, which the agent's tools need, and Redis stay until then."""
    stack.configure({"runtime": "demo", "command": list(script(directory, WAITING))})
    shown: list[str] = []
    with running(stack.home, shown, REMOTECLAW__FLEET__STOP_S="300") as up:
        first, second = await stack.append("one"), await stack.append("two")
        await stack.reached(first, "output")
        up.terminate()
        client = stack.fleet.scripts.client
        (name,) = [key async for key in client.scan_iter("rq:worker:*")]
        await eventually(lambda: client.hexists(name, "shutdown_requested_date"))
        assert await stack.fleet.gateways.address(stack.home.host_id)
        go(stack)
        assert up.wait(HANG_S) == 0

    assert said(await stack.outcome(first)) == "heard one"
    steps = (await stack.outcome_so_far(first)).steps
    assert {step.attempt for step in steps if step.attempt} == {1}
    assert (await stack.outcome_so_far(second)).status == "accepted"
    assert any("1 turn runs: `up` ends after that" in line for line in shown)


async def test_a_drained_host_finishes_its_turns_and_others_take_the_rest(
    stack: Stack, other: Stack, directory: Path
) -> None:
    """The command has no gateway here. Workers that are started again wait until it is undone."""
    agent = {"runtime": "demo", "command": list(script(directory, WAITING))}
    stack.configure(agent)
    other.configure(agent, redis_url=stack.redis.url)
    log = directory / "drain.log"
    log.touch()
    worker = await stack.start_worker()
    first = await stack.append("one")
    await stack.reached(first, "output")
    draining = start_program((REMOTECLAW, "drain"), env=stack.env(), log=log)
    await eventually(lambda: "waits for the turn of main in" in log.read_text())
    (other.home.path / "workspaces" / "main").mkdir(parents=True)
    go(other)
    await other.start_worker()

    second = await stack.append("two", from_="bob")
    assert said(await stack.outcome(second)) == "heard two"
    assert worker.poll() is None
    go(stack)

    assert said(await stack.outcome(first)) == "heard one"
    assert draining.wait(HANG_S) == 0, log.read_text()
    assert "is drained: no turn runs there" in log.read_text()
    await eventually(lambda: worker.poll() is not None)
    third = await stack.append("three")  # in the session of the first
    assert said(await stack.outcome(third)).endswith("heard three")

    again = stack.start_waiting_worker()
    await eventually(lambda: "waits for `remoteclaw drain --undo`" in stack.worker_logs())
    assert "is drained" in run_command("status", env=stack.env()).stdout
    undone = run_command("drain", "--undo", env=stack.env())
    assert undone.stdout.endswith("takes work again.\n")

    async def works() -> bool:
        return any(view.pid == again.pid for view in await stack.fleet.workers.list())

    await eventually(works)


async def test_a_drain_that_somebody_undoes_stops_waiting(stack: Stack, directory: Path) -> None:
    """It does not drain the host again."""
    stack.configure({"runtime": "demo", "command": list(script(directory, WAITING))})
    log = directory / "drain.log"
    await stack.start_worker()
    await stack.reached(await stack.append("one"), "output")
    draining = start_program((REMOTECLAW, "drain"), env=stack.env(), log=log)
    await eventually(lambda: log.exists() and "waits for the turn of main in" in log.read_text())

    run_command("drain", "--undo", env=stack.env())

    assert draining.wait(HANG_S) == 1
    assert "the drain was undone" in log.read_text()
    assert not await stack.fleet.drains.hosts()


async def test_a_host_is_drained_whose_name_begins_that_of_another(stack: Stack) -> None:
    processes = stack.fleet.processes

    async def are_listed() -> bool:
        return len(await processes.list()) == 2

    async with (
        processes.announced("worker", "gpu-1", "gpu"),
        processes.announced("gateway", "gpu2-1", "gpu2"),
    ):
        await eventually(are_listed)

        drained = run_command("drain", "--host", "gpu", env=stack.env())

    assert drained.stdout.endswith("`remoteclaw drain --undo --host gpu-1` undoes it.\n")
    assert list(await stack.fleet.drains.hosts()) == ["gpu-1"]


async def test_warm_agents_end_after_the_last_worker_of_their_host(stack: Stack) -> None:
    stack.configure(leave_s=0)
    first = await stack.start_worker(REMOTECLAW_LIFELINE="")
    second = await stack.start_worker(REMOTECLAW_LIFELINE="")
    accepted = await stack.append("hello")
    await stack.outcome(accepted)
    await stack.until_idle(accepted)
    first.kill()
    first.wait()
    assert len(warm_agents(stack.home.runs)) == 1

    second.kill()

    await eventually(lambda: not warm_agents(stack.home.runs))


async def test_warm_agents_are_ended_by_a_command(stack: Stack) -> None:
    await stack.start_worker()
    for person in ("alice", "bob"):
        accepted = await stack.append("hello", from_=person)
        await stack.outcome(accepted)
        await stack.until_idle(accepted)

    one = run_command("agents", "end", str(accepted.session), env=stack.env())
    assert (one.returncode, one.stdout) == (0, "1 warm agent ended.\n")
    gone = run_command("agents", "end", str(accepted.session), env=stack.env())
    assert "is not warm on this host" in gone.stderr
    rest = run_command("agents", "end", "--all", env=stack.env())
    assert rest.stdout == "1 warm agent ended.\n"
    again = await stack.append("memory", from_="bob")
    assert "hello" in said(await stack.outcome(again))


async def test_a_worker_of_a_drained_host_waits_for_redis_as_well(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise it would begin while Redis starts, also in a restored fleet that is paused."""
    host = stack.home.host_id
    await stack.fleet.drains.drain(host)
    waiting = threading.Thread(target=wait_while_drained, args=(stack.redis.url, host), daemon=True)
    waiting.start()
    await eventually(lambda: "waits for `remoteclaw drain --undo`" in caplog.text)
    stack.redis.kill()
    await eventually(lambda: "Redis can't be asked" in caplog.text)
    assert waiting.is_alive()
    caplog.clear()
    await asyncio.to_thread(stack.redis.start)
    await eventually(lambda: "waits for `remoteclaw drain --undo`" in caplog.text)

    await stack.fleet.drains.undo(host)

    await eventually(lambda: not waiting.is_alive())
