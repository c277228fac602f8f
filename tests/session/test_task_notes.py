"""The progress of running tasks, as their parent's agent and clients see it."""

import asyncio
from pathlib import Path

import pytest

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.fleet import keys
from remoteclaw.messages import Entry, SessionKey, TaskStatus, ToolCall
from remoteclaw.messages import Turn as AskedTurn
from remoteclaw.session import task_notes
from remoteclaw.session.reply import TurnReply
from remoteclaw.session.task_notes import MAX_TEXT_CHARS, MAX_TOOL_CHARS, keep_noting, progress_note
from tests.support.bridges import script
from tests.support.leases import begun
from tests.support.stack import Stack, message
from tests.support.tasks import HANDLERS, call, entries, work
from tests.support.turns import Turn, begin_turn
from tests.support.waiting import eventually

SECRET = "swordfish-1234"
#: An agent that writes its prompts to a file. At "ship it", it waits for the files `one` and `two`.
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
    monkeypatch.setattr(task_notes, "NOTE_INTERVAL_S", 0.01)
    command = list(script(directory, AT_WORK.replace("DIRECTORY", str(directory))))
    agent = {"runtime": "demo", "command": command, "env": {"DEPLOY_KEY": SECRET}, "warm_s": 0}
    stack.configure(agent)
    return await begin_turn(stack, HANDLERS)


async def test_the_progress_of_a_running_task_is_visible(
    stack: Stack, parent: Turn, directory: Path
) -> None:
    seen: list[TaskStatus] = []

    async def read_status() -> TaskStatus:
        seen[:] = (await stack.fleet.task_trees.read(parent.lease.sid)).items
        return seen[0]

    async def uses_bash() -> bool:
        return (await read_status()).tool == "Bash"

    async def has_answered() -> bool:
        return "It is" in (await read_status()).last_text

    started = await call(stack, parent, "sessions_spawn", prompt="ship it", label="deploy")
    working_on = asyncio.create_task(work(stack, started.child_session_key))
    await eventually(uses_bash)
    first = seen[0]
    (directory / "one").touch()
    await eventually(has_answered)
    second = seen[0]
    (directory / "two").touch()
    await working_on
    state = keys.state(SessionKey.parse(started.child_session_key).sid)

    assert (first.state, first.argument, first.last_text) == (
        "running",
        "deploy [secret] [2J now",
        "I look.",
    )
    assert second.last_text.endswith("It is [secret].")
    assert (await read_status()).state == "done"
    assert not await stack.fleet.scripts.client.hexists(state, "doing")


async def test_the_next_prompt_of_a_conversation_lists_its_unfinished_tasks(
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


async def test_a_session_that_is_not_a_task_stores_no_progress(stack: Stack) -> None:
    lease, accepted = await begun(stack.fleet)
    turn = AskedTurn(lease.session, (Entry(accepted.entry_id, message("hello")),))
    reply = TurnReply(lease, turn)
    reply.show(0, "hello")
    await keep_noting(lease, accepted.entry_id, reply, Scrubber())

    assert not await stack.fleet.scripts.client.hexists(keys.state(lease.sid), "doing")


async def test_the_progress_of_a_task_is_short_and_on_one_line(stack: Stack) -> None:
    lease, accepted = await begun(stack.fleet)
    reply = TurnReply(lease, AskedTurn(lease.session, (Entry(accepted.entry_id, message("hi")),)))
    assert progress_note(reply, Scrubber()) == {}
    reply.show_tool(ToolCall("Bash" * 50, "{}", id="1", argument="x" * 500, since_ms=1))
    lines = "word\n" * 500
    reply.show(0, f"{SECRET} {lines}the end {SECRET}")
    doing = progress_note(reply, Scrubber([SECRET]))

    assert len(f"{doing['tool']}: {doing['argument']}") <= MAX_TOOL_CHARS
    assert len(doing["said"]) == MAX_TEXT_CHARS
    assert doing["said"].startswith("…")
    assert doing["said"].endswith("word the end [secret]")
