"""Workers that are terminated: their running turn ends, and other workers continue the rest."""

from pathlib import Path

from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.session.queue import MAX_ATTEMPTS
from tests.support.bridges import script
from tests.support.conversations import dying
from tests.support.stack import Stack, said
from tests.support.up import running
from tests.support.waiting import HANG_S, eventually


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
    body = """
while True:
    word = turn()['prompt'].split()[-1]
    say(type='text', text='heard ' + word)
    while not os.path.exists('go'):
        time.sleep(0.005)
    say(type='done')
"""
    stack.configure({"runtime": "demo", "command": list(script(directory, body))}, linger_s=2)
    worker = await stack.start_worker()
    first, second = await stack.append("one"), await stack.append("two")
    await stack.reached(first, "output")
    worker.terminate()
    client = stack.fleet.scripts.client
    (name,) = [key async for key in client.scan_iter("rq:worker:*")]
    await eventually(lambda: client.hexists(name, "shutdown_requested_date"))
    (stack.home.path / "workspaces" / "main" / "go").touch()

    await eventually(lambda: worker.poll() is not None)
    assert said(await stack.outcome(first)) == "heard one"
    waiting = await stack.fleet.outcomes.read(second.session.sid, second.entry_id)
    assert waiting is not None
    assert waiting.status == "accepted"
    await stack.start_worker()
    assert said(await stack.outcome(second)) == "heard two"
    assert (await stack.reached(second, "spawned")).startswith("warm")


async def test_a_lingering_worker_exits_when_it_is_terminated(stack: Stack) -> None:
    stack.configure(linger_s=30)
    worker = await stack.start_worker()
    await stack.ask("hello")
    worker.terminate()

    await eventually(lambda: worker.poll() is not None, within_s=25)  # earlier than its linger time
