"""Choices for a session: its model, a past conversation, and commands of its agent's CLI."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from remoteclaw.config.load import load_config
from remoteclaw.cron.schedule import Schedule
from remoteclaw.gateway.methods.tasks import HANDLERS as TASKS
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import conversation_name
from remoteclaw.session.record import read_lines
from tests.support.bridges import claude_script
from tests.support.conversations import answers, drain, talk
from tests.support.cron import scheduler_of
from tests.support.jobs import SESSION, add
from tests.support.stack import Stack, message
from tests.support.tasks import work
from tests.support.turns import begin_turn

#: A claude that replies with the requested model, whether it resumes or copies a conversation, and
#: its message.
AGENT = """
model = sys.argv[sys.argv.index('--model') + 1] if '--model' in sys.argv else 'its own'
copied = ''.join(word[9:] for word in sys.argv if word.startswith('--resume='))
copied = f'copy of {copied}, ' if '--fork-session' in sys.argv else ''
resumes = any(word.startswith('--resume') for word in sys.argv)
say(type='system', subtype='init', model='its-choice')
while True:
    message = heard()
    echo(message)
    model = chosen[-1] if chosen else model
    result(f"{copied}{model}, {resumes}: {message['message']['content'][-1]['text']}", num_turns=0)
"""

ID = "00000001-0000-0000-0000-000000000000"


def with_claude(
    stack: Stack, directory: Path, agent: Mapping[str, object] | None = None, **settings: object
) -> None:
    command = list(claude_script(directory, AGENT))
    config = {"runtime": "claude", "command": command, **(agent or {})}
    stack.configure(config, **settings)  # type: ignore[arg-type]


async def test_a_chosen_model_is_used_from_the_next_turn(stack: Stack, directory: Path) -> None:
    with_claude(stack, directory)
    first = await stack.append("one")
    await drain(stack, first)
    assert (await answers(stack, first))[0].startswith("its own, False")

    await stack.fleet.sessions.choose_model(first.session, "haiku")
    assert (await talk(stack, "two"))[0].startswith("haiku, False")

    await stack.fleet.sessions.choose_model(first.session, None)
    assert (await talk(stack, "three"))[0].startswith("its-choice, False")


async def test_a_fork_has_the_chosen_model(stack: Stack, directory: Path) -> None:
    """With another one, the provider would read the copied conversation in no cache."""
    with_claude(stack, directory)
    first = await stack.append("one")
    await drain(stack, first)
    await stack.fleet.sessions.choose_model(first.session, "haiku")
    view = await stack.fleet.sessions.view(first.session.sid)
    assert view is not None
    copy = replace(first.session, thread="copy")
    await stack.fleet.sessions.fork(view, copy, [*view.session_ids], view.limits.of_fork)

    (reply,) = await talk(stack, "two", thread_id="copy")

    assert reply.startswith("copy of ")
    assert ", haiku, True: " in reply


MODELS = {"model": "opus", "task_model": "haiku"}


async def test_tasks_have_their_own_model_and_branches_that_of_the_conversation(
    stack: Stack, directory: Path
) -> None:
    """A branch with another model would read its copy of the conversation in no cache."""
    with_claude(stack, directory, MODELS)
    turn = await begin_turn(stack, TASKS)
    said, shown = {}, {}
    for knows in ("nothing", "conversation"):
        task = await turn.call("sessions_spawn", prompt=f"knows {knows}", knows=knows)
        session = SessionKey.parse(task["childSessionKey"])
        said[knows] = await worked(stack, session)
        view = await stack.fleet.sessions.view(session.sid)
        assert view is not None
        shown[knows] = view.model_in(load_config(stack.home.config_file, {}))

    assert shown == {"nothing": "haiku", "conversation": "opus"}
    assert said["nothing"].startswith("haiku, ")
    assert said["conversation"].startswith("opus, ")


async def test_cron_jobs_have_the_model_of_tasks_where_no_person_writes(
    stack: Stack, directory: Path
) -> None:
    """In a conversation of a person, another model would read everything in no cache."""
    with_claude(stack, directory, MODELS)

    async def fired() -> str:
        """Fire a job, and return the reply of its turn."""
        await add(stack.fleet, Schedule(every_s=3600), next_ms=await stack.fleet.scripts.now_ms())
        await scheduler_of(stack.fleet).tick()
        return await worked(stack, SESSION)

    assert (await fired()).startswith("haiku, ")
    assert (await talk(stack, "hello"))[0].startswith("opus, ")
    assert (await fired()).startswith("opus, ")


async def worked(stack: Stack, session: SessionKey) -> str:
    """Run a session's turns, and return the last answer."""
    await work(stack, str(session))
    lines = read_lines(await stack.fleet.records.of(session.sid))
    return str([line["text"] for line in lines if line["role"] == "agent"][-1])


async def test_a_command_of_the_cli_has_a_turn_of_its_own(stack: Stack, directory: Path) -> None:
    with_claude(stack, directory, queue={"mode": "collect", "debounce_ms": 0, "cap": 0})
    before = await stack.append("before")
    command = await stack.fleet.inbound.append(
        message("/context now"), agent="main", is_command=True
    )
    after = await stack.append("after")
    await drain(stack, before)

    replies = await answers(stack, before, command, after)
    assert replies == [
        "its own, False: (End of the message.)",
        "its own, False: /context now",
        "its own, False: (End of the message.)",
    ]


async def test_a_command_for_a_cli_without_commands_is_text(stack: Stack) -> None:
    stack.configure({"runtime": "demo"})
    command = await stack.fleet.inbound.append(message("/x"), agent="main", is_command=True)
    await drain(stack, command)

    assert "You wrote 2 characters" in (await answers(stack, command))[0]


async def test_a_session_continues_with_a_copy_of_a_chosen_conversation(
    stack: Stack, directory: Path
) -> None:
    with_claude(stack, directory)
    first = await stack.append("one")
    await drain(stack, first)
    name = conversation_name("main", "claude", str(stack.home.workspaces / "main"))
    for _ in range(2):
        await stack.fleet.inbound.end_conversation(
            first.session, "resume", call="c1", copy_of=(name, ID)
        )
    second = await stack.append("two")
    await drain(stack, second)

    assert (await answers(stack, second))[0].startswith(f"copy of {ID}, its own, True")
