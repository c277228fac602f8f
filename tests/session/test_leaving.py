"""Whoever is asked to end in mid-turn, or killed, leaves nothing behind that isn't taken up."""

from pathlib import Path

from remoteclaw.fleet.inbound import Accepted
from remoteclaw.session.queue import MAX_ATTEMPTS
from tests.support.bridges import script
from tests.support.conversations import dying
from tests.support.stack import Stack, said
from tests.support.up import running
from tests.support.waiting import HANG_S, eventually


async def begun(stack: Stack, accepted: Accepted, attempt: int) -> None:
    """Wait until an attempt has said something."""
    await stack.fleet.waker.hint(accepted.session.sid, "test", queue="agents")

    async def is_begun() -> bool:
        steps = (await stack.outcome_so_far(accepted)).steps
        return ("output", attempt) in [(step.name, step.attempt) for step in steps]

    await eventually(is_begun)


async def test_a_message_outlives_any_number_of_polite_ends(swept: Stack) -> None:
    """They don't count as failures, or it would be given up at the first one behind these."""
    stack, accepted = swept, await swept.append("slow")
    for _ in range(MAX_ATTEMPTS - 1):
        async with dying(stack, accepted):
            pass

    with running(stack.home) as up:
        await begun(stack, accepted, MAX_ATTEMPTS)
        up.terminate()
        up.wait(HANG_S)

    stack.open_lifeline()  # `up` has ended what it found there
    await stack.start_worker()
    await begun(stack, accepted, MAX_ATTEMPTS + 1)


async def test_a_worker_that_is_asked_to_end_finishes_its_turn_and_leaves_the_rest(
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


async def test_a_worker_that_lingers_leaves_when_it_is_asked_to(stack: Stack) -> None:
    stack.configure(linger_s=30)
    worker = await stack.start_worker()
    await stack.ask("hello")
    worker.terminate()

    await eventually(lambda: worker.poll() is not None, within_s=25)  # before it had lingered
