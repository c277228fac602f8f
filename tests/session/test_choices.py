"""Choices for a session: its model, a past conversation, and commands of its agent's CLI."""

from dataclasses import replace
from pathlib import Path

from remoteclaw.protocols import conversation_name
from tests.support.bridges import claude_script
from tests.support.conversations import answers, drain, talk
from tests.support.stack import Stack, message

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


def with_claude(stack: Stack, directory: Path, **settings: object) -> None:
    command = list(claude_script(directory, AGENT))
    stack.configure({"runtime": "claude", "command": command}, **settings)  # type: ignore[arg-type]


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


async def test_a_command_of_the_cli_has_a_turn_of_its_own(stack: Stack, directory: Path) -> None:
    with_claude(stack, directory, queue={"mode": "collect", "debounce_ms": 0, "cap": 0})
    before = await stack.append("before")
    command = await stack.fleet.inbound.append(
        message("/compact now"), agent="main", is_command=True
    )
    after = await stack.append("after")
    await drain(stack, before)

    replies = await answers(stack, before, command, after)
    assert replies == [
        "its own, False: (End of the message.)",
        "its own, False: /compact now",
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
