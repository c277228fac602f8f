"""Projects: a chat works in a directory that an owner has chosen, until one chooses another."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from remoteclaw.fleet import keys
from remoteclaw.gateway.methods.chats import HANDLERS as CHATS
from remoteclaw.gateway.methods.tasks import HANDLERS as TASKS
from remoteclaw.messages import SessionKey
from tests.support.agents import AgentCli
from tests.support.channel import TestChannel
from tests.support.cli import run
from tests.support.stack import REPLIES, Stack
from tests.support.turns import begin_turn
from tests.support.waiting import eventually

LOST = "I no longer have our earlier conversation"


@pytest.fixture
async def channel(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TestChannel]:
    channel = TestChannel.installed(monkeypatch, stack)
    yield channel
    channel.end()


@pytest.fixture
def web(stack: Stack, channel: TestChannel, tmp_path: Path) -> Path:
    """Return the directory of the project `web`."""
    web = tmp_path / "web"
    web.mkdir()
    (web / "of-the-web.txt").write_text("")
    channel.configure(allow=["carol"])
    configure(stack, web=str(web))
    return web


def configure(stack: Stack, **projects: str) -> None:
    """Have these projects, and no others."""
    tree: dict[str, Any] = tomlkit.parse(stack.home.config_file.read_text())
    tree["projects"] = projects
    stack.home.config_file.write_text(tomlkit.dumps(tree))


async def told(channel: TestChannel, text: str, *, by: str = "alice") -> str:
    """Write to the bot, in a chat alone with it; return what it says next."""
    before = len(channel.texts(by))
    channel.platform.say(by, by, text)
    return str(await eventually(lambda: "\n".join(channel.texts(by)[before:])))


async def answered(stack: Stack, channel: TestChannel, text: str) -> str:
    """Write to the agent; return its whole answer once its session is idle."""
    before = len(channel.texts("alice"))
    await told(channel, text)

    async def is_over() -> bool:
        client: Any = stack.fleet.scripts.client
        (view,) = await stack.fleet.sessions.list(limit=9)
        return view.status == "idle" and not await client.xlen(REPLIES)

    await eventually(is_over)
    return "\n".join(channel.texts("alice")[before:])


async def test_a_chat_works_in_a_project_until_it_is_told_otherwise(
    stack: Stack, channel: TestChannel, web: Path
) -> None:
    worker = await stack.start_worker()
    process = channel.start()
    assert await told(channel, "/project") == f"- `web`: `{web}`\n\nThis chat works in the " + (
        "workspace of main."
    )
    assert await told(channel, "/project shop") == "There is no such project: there are `web`."
    assert "of-the-web.txt" not in await answered(stack, channel, "hello")

    bound = await told(channel, "/project Web")
    assert bound == (
        f"From the next turn on, this chat works in `web` (`{web}`), in new conversations too. "
        "A new conversation begins there, with notes of this one."
    )
    first = await answered(stack, channel, "hello")
    assert "of-the-web.txt" in first
    assert "message 2 of our conversation" in first  # it has the notes
    assert LOST not in first

    # It stays there: in a new conversation, in new processes.
    assert await answered(stack, channel, "/new") == "A new conversation."
    worker.kill()  # not before: who is killed with the session in hand has it till its lease ends
    worker.wait()
    process.kill()
    process.wait()
    await stack.start_worker()
    channel.start()
    again = await answered(stack, channel, "hello")
    assert "of-the-web.txt" in again
    assert "message 1 of our conversation" in again
    assert f"- works in: `{web}`, the project web" in await told(channel, "/status")
    assert await told(channel, "/project") == f"- `web`, where this chat works: `{web}`"
    assert await told(channel, "/project web") == "This chat works in `web` already."
    (view,) = await stack.fleet.sessions.list(limit=9)
    assert "project       web" in run(stack, "sessions", "show", view.sid).stdout

    left = await told(channel, "/project none")
    assert left.startswith("From the next turn on, this chat works in the workspace of main (`")
    elsewhere = await answered(stack, channel, "hello")
    assert "of-the-web.txt" not in elsewhere
    assert LOST not in elsewhere
    assert "The conversation that it had there goes on." in await told(channel, "/project web")
    assert "message 2 of our conversation" in await answered(stack, channel, "hello")


async def test_a_turn_that_runs_goes_on_where_it_is_and_the_next_one_is_elsewhere(
    stack: Stack, channel: TestChannel, web: Path
) -> None:
    await stack.start_worker()
    channel.start()
    channel.platform.say("alice", "alice", "slow")

    async def is_running() -> bool:
        _, busy = await stack.fleet.sessions.busy(limit=1)
        return bool(busy and busy[0].turn)

    await eventually(is_running)
    assert "What runs goes on where it is." in await told(channel, "/project web")
    (view,) = await stack.fleet.sessions.list(limit=9)
    assert (view.project, view.turn_project) == ("web", None)

    await told(channel, "/stop")
    await eventually(lambda: any("topped" in text for text in channel.texts("alice")))
    assert "of-the-web.txt" in await answered(stack, channel, "hello")


async def test_nobody_else_chooses_a_project(stack: Stack, channel: TestChannel, web: Path) -> None:
    channel.start()
    refused = await told(channel, "/project web", by="carol")
    assert refused == "/project is for owners of this installation."
    assert await stack.fleet.sessions.list(limit=9) == []


async def test_a_project_that_is_configured_no_more_is_said_and_nothing_is_done_elsewhere(
    stack: Stack, channel: TestChannel, web: Path
) -> None:
    channel.start()
    await told(channel, "/project web")
    channel.configure()
    await stack.start_worker()

    why = "There is no project 'web' any more, in which this chat works: `/project` lists those"
    assert why in await told(channel, "/diff")
    assert f"- works in: nothing: {why}" in await told(channel, "/status")
    assert "RemoteClaw's demo agent" not in await answered(stack, channel, "hello")
    assert "There are no projects: `[projects]`" in await told(channel, "/project")
    await told(channel, "/project none")
    assert "RemoteClaw's demo agent" in await answered(stack, channel, "hello")


async def test_a_chat_that_has_a_project_is_remembered_however_long_nobody_writes(
    stack: Stack, channel: TestChannel, web: Path
) -> None:
    await stack.start_worker()
    channel.start()
    await answered(stack, channel, "hello")
    await told(channel, "/project web")
    await answered(stack, channel, "hello")
    (view,) = await stack.fleet.sessions.list(limit=9)

    async def left_s() -> int | None:
        """Return how long the session is remembered once it is idle; -1 for ever."""
        found = await stack.fleet.sessions.view(view.sid)
        ttl: int = await stack.fleet.scripts.client.ttl(keys.state(view.sid))
        return ttl if found and found.status == "idle" else None

    assert await eventually(left_s) == -1
    await told(channel, "/project none")
    assert (await left_s() or 0) > 0


async def test_what_an_agent_starts_and_sends_is_of_the_project(
    stack: Stack, channel: TestChannel, web: Path
) -> None:
    (web / "plan.txt").write_text("the plan")
    session = SessionKey.parse("main/test/default/chat-1:alice:_")
    await stack.fleet.sessions.bind(session, "web")
    turn = await begin_turn(stack, {**TASKS, **CHATS})

    async with channel.platform.served(stack.fleet):
        await turn.call("message_send_attachment", target="chat-1", file="plan.txt")
    await turn.call("sessions_spawn", prompt="look around")

    (post,) = channel.platform.chat("chat-1")
    assert post.files == {"plan.txt": "the plan"}
    (child,) = await stack.fleet.sessions.children(session.sid)
    assert child.project == "web"


async def test_the_real_claude_has_a_conversation_in_each_project(
    stack: Stack, claude: AgentCli, tmp_path: Path
) -> None:
    stack.configure(claude.config())
    configure(stack, web=str(tmp_path))
    await stack.start_worker()
    first = await stack.append("my colour is green SAY:It is green.")
    await stack.outcome(first)

    await stack.fleet.sessions.bind(first.session, "web")
    noted = await stack.ask("RECALL")
    asked = claude.model.bodies().splitlines()[-1].replace("\\", "")
    await stack.fleet.sessions.bind(first.session, None)
    back = await stack.ask("RECALL")

    assert noted == "RECALL []"
    assert '{"you":"It is green."}' in asked
    assert "my colour is green" in back
    assert LOST not in back
    view = await stack.fleet.sessions.view(first.session.sid)
    assert view is not None
    assert len({*view.session_ids.values()}) == 2
