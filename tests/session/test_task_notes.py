"""What a task does is known while it works, to those that it works for."""

import asyncio
from pathlib import Path

import pytest

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.fleet import keys
from remoteclaw.messages import Entry, SessionKey, ToolCall, Work
from remoteclaw.messages import Turn as AskedTurn
from remoteclaw.session import task_notes
from remoteclaw.session.reply import TurnReply
from remoteclaw.session.task_notes import MAX_DOING, MAX_SAID, doing_of, keep_noting
from tests.support.bridges import script
from tests.support.leases import begun
from tests.support.stack import Stack, message
from tests.support.tasks import HANDLERS, call, entries, work
from tests.support.turns import Turn, begin_turn
from tests.support.waiting import eventually

SECRET = "swordfish-1234"
#: An agent that goes on when it is told to, and notes what it was asked.
AT_WORK = f"""
def until(name):
    while not os.path.exists(f'DIRECTORY/{{name}}'): time.sleep(0.01)
while True:
    message = turn()
    with open('DIRECTORY/asked', 'a') as asked: asked.write(message['prompt'] + chr(10))
    if 'ship it' not in message['prompt']:
        say(type='text', text='Fine.'); say(type='done'); continue
    say(type='text', text='I look. ')
    say(type='tool_use', id='1', name='Bash', input={{'command': 'deploy {SECRET}\\n\\x1b[2J now'}})
    until('one')
    say(type='tool_result', id='1', output='done')
    say(type='text', text='It is {SECRET}.')
    until('two')
    say(type='done')
"""


@pytest.fixture
async def parent(stack: Stack, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Turn:
    """A turn whose agent starts tasks."""
    monkeypatch.setattr(task_notes, "EVERY_S", 0.01)
    command = list(script(directory, AT_WORK.replace("DIRECTORY", str(directory))))
    agent = {"runtime": "demo", "command": command, "env": {"DEPLOY_KEY": SECRET}, "warm_s": 0}
    stack.configure(agent)
    return await begin_turn(stack, HANDLERS)


async def test_what_a_task_does_is_known_while_it_works(
    stack: Stack, parent: Turn, directory: Path
) -> None:
    seen: list[Work] = []

    async def look() -> Work:
        seen[:] = (await stack.fleet.work.below(parent.lease.sid)).items
        return seen[0]

    async def uses_bash() -> bool:
        return (await look()).tool == "Bash"

    async def has_said() -> bool:
        return "It is" in (await look()).said

    started = await call(stack, parent, "sessions_spawn", prompt="ship it", label="deploy")
    working_on = asyncio.create_task(work(stack, started.child_session_key))
    await eventually(uses_bash)
    first = seen[0]
    (directory / "one").touch()
    await eventually(has_said)
    second = seen[0]
    (directory / "two").touch()
    await working_on
    state = keys.state(SessionKey.parse(started.child_session_key).sid)

    assert (first.state, first.argument, first.said) == (
        "running",
        "deploy [secret] [2J now",
        "I look.",
    )
    assert second.said.endswith("It is [secret].")
    assert (await look()).state == "done"
    assert not await stack.fleet.scripts.client.hexists(state, "doing")


async def test_the_next_turn_of_the_conversation_is_told_what_works_for_it(
    stack: Stack, parent: Turn, directory: Path
) -> None:
    started = await call(stack, parent, "sessions_spawn", prompt="ship it", label="deploy")
    await parent.finish()
    await parent.lease.close()
    await stack.append("how far is it?")
    await work(stack, str(parent.lease.session))
    child = SessionKey.parse(started.child_session_key)
    (waiting,) = await entries(stack, child)
    (directory / "one").touch()
    (directory / "two").touch()
    await work(stack, str(child))
    await work(stack, str(parent.lease.session))
    asked = (directory / "asked").read_text()
    first, _, about_result = asked.partition("how far is it?")

    assert f'"work":[{{"run":"{child.sid}-{waiting.id}","label":"deploy"' in first
    assert '"state":"waiting"' in first
    assert "It is" in about_result
    assert '"work"' not in about_result


async def test_a_session_that_works_for_no_other_notes_nothing(stack: Stack) -> None:
    lease, accepted = await begun(stack.fleet)
    turn = AskedTurn(lease.session, (Entry(accepted.entry_id, message("hello")),))
    reply = TurnReply(lease, turn)
    reply.show(0, "hello")
    await keep_noting(lease, accepted.entry_id, reply, Scrubber())

    assert not await stack.fleet.scripts.client.hexists(keys.state(lease.sid), "doing")


async def test_what_is_noted_is_short_and_on_one_line(stack: Stack) -> None:
    lease, accepted = await begun(stack.fleet)
    reply = TurnReply(lease, AskedTurn(lease.session, (Entry(accepted.entry_id, message("hi")),)))
    assert doing_of(reply, Scrubber()) == {}
    reply.show_tool(ToolCall("Bash" * 50, "{}", id="1", argument="x" * 500, since_ms=1))
    words = "word\n" * 500
    reply.show(0, f"{SECRET} {words}the end {SECRET}")
    doing = doing_of(reply, Scrubber([SECRET]))

    assert len(f"{doing['tool']}: {doing['argument']}") <= MAX_DOING
    assert len(doing["said"]) == MAX_SAID
    assert doing["said"].startswith("…")
    assert doing["said"].endswith("word the end [secret]")
