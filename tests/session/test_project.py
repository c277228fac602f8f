"""Projects: the directories that owners choose for their chats."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from remoteclaw.fleet import keys
from remoteclaw.gateway.methods.messages import HANDLERS as CHATS
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
    """Replace the projects in the configuration."""
    tree: dict[str, Any] = tomlkit.parse(stack.home.config_file.read_text())
    tree["projects"] = projects
    stack.home.config_file.write_text(tomlkit.dumps(tree))


async def bot_reply(channel: TestChannel, text: str, *, by: str = "alice") -> str:
    """Write to the bot in a direct chat, and return its next messages."""
    before = len(channel.texts(by))
    channel.platform.say(by, by, text)
    return str(await eventually(lambda: "\n".join(channel.texts(by)[before:])))


async def agent_answer(stack: Stack, channel: TestChannel, text: str) -> str:
    """Write to the agent, and return its whole answer when its session is idle."""
    before = len(channel.texts("alice"))
    await bot_reply(channel, text)

    async def is_over() -> bool:
        client: Any = stack.fleet.scripts.client
        (view,) = await stack.fleet.sessions.list(limit=9)
        return view.status == "idle" and not await client.xlen(REPLIES)

    await eventually(is_over)
    return "\n".join(channel.texts("alice")[before:])


async def test_a_chat_works_in_its_project_until_an_owner_changes_it(
    stack: Stack, channel: TestChannel, web: Path
) -> None:
    worker = await stack.start_worker()
    process = channel.start()
    assert await bot_reply(
        channel, "/project"
    ) == f"- `web`: `{web}`\n\nThis chat works in the " + ("workspace of main.")
    assert await bot_reply(channel, "/project shop") == "There is no such project: there are `web`."
    assert "of-the-web.txt" not in await agent_answer(stack, channel, "hello")

    bound = await bot_reply(channel, "/project Web")
    assert bound == (
        f"From the next turn on, this chat works in `web` (`{web}`), in new conversations too. "
        "A new conversation begins there, with notes of this one."
    )
    first = await agent_answer(stack, channel, "hello")
    assert "of-the-web.txt" in first
    assert "message 2 of our conversation" in first  # the agent has the notes
    assert LOST not in first

    # The project is kept in a new conversation and in new processes.
    assert await agent_answer(stack, channel, "/new") == "A new conversation."
    worker.kill()  # while idle: otherwise, its lease would first have to expire
    worker.wait()
    process.kill()
    process.wait()
    await stack.start_worker()
    channel.start()
    again = await agent_answer(stack, channel, "hello")
    assert "of-the-web.txt" in again
    assert "message 1 of our conversation" in again
    assert f"- works in: `{web}`, the project web" in await bot_reply(channel, "/status")
    assert await bot_reply(channel, "/project") == f"- `web`, where this chat works: `{web}`"
    assert await bot_reply(channel, "/project web") == "This chat works in `web` already."
    (view,) = await stack.fleet.sessions.list(limit=9)
    assert "project       web" in run(stack, "sessions", "show", view.sid).stdout

    left = await bot_reply(channel, "/project none")
    assert left.startswith("From the next turn on, this chat works in the workspace of main (`")
    elsewhere = await agent_answer(stack, channel, "hello")
    assert "of-the-web.txt" not in elsewhere
    assert LOST not in elsewhere
    assert "The conversation that it had there continues." in await bot_reply(
        channel, "/project web"
    )
    assert "message 2 of our conversation" in await agent_answer(stack, channel, "hello")


async def test_a_running_turn_keeps_its_directory_and_the_next_one_uses_the_new_project(
    stack: Stack, channel: TestChannel, web: Path
) -> None:
    await stack.start_worker()
    channel.start()
    channel.platform.say("alice", "alice", "slow")

    async def is_running() -> bool:
        _, busy = await stack.fleet.sessions.busy(limit=1)
        return bool(busy and busy[0].turn)

    await eventually(is_running)
    assert "The running turn stays where it is." in await bot_reply(channel, "/project web")
    (view,) = await stack.fleet.sessions.list(limit=9)
    assert (view.project, view.turn_project) == ("web", None)

    await bot_reply(channel, "/stop")
    await eventually(lambda: any("topped" in text for text in channel.texts("alice")))
    assert "of-the-web.txt" in await agent_answer(stack, channel, "hello")


async def test_only_owners_can_choose_a_project(
    stack: Stack, channel: TestChannel, web: Path
) -> None:
    channel.start()
    refused = await bot_reply(channel, "/project web", by="carol")
    assert refused == "/project is for owners of this installation."
    assert await stack.fleet.sessions.list(limit=9) == []


async def test_a_chat_whose_project_is_not_configured_runs_no_turn_and_reports_why(
    stack: Stack, channel: TestChannel, web: Path
) -> None:
    channel.start()
    await bot_reply(channel, "/project web")
    channel.configure()
    await stack.start_worker()

    reason = "This chat works in the project 'web', which is no longer configured: `/project` lists"
    assert reason in await bot_reply(channel, "/diff")
    assert f"- works in: nothing: {reason}" in await bot_reply(channel, "/status")
    assert reason in await agent_answer(stack, channel, "hello")
    assert "There are no projects: `[projects]`" in await bot_reply(channel, "/project")
    await bot_reply(channel, "/project none")
    assert "RemoteClaw's demo agent" in await agent_answer(stack, channel, "hello")


async def test_a_project_whose_directory_is_gone_is_named_in_the_chat_and_by_doctor(
    stack: Stack, channel: TestChannel, web: Path
) -> None:
    channel.start()
    await bot_reply(channel, "/project web")
    web.rename(web.with_name("moved"))
    await stack.start_worker()

    assert (await agent_answer(stack, channel, "hello")).startswith(
        "main can't be started: This chat works in the project 'web', whose directory is not on "
        "this computer: create it, or return to the workspace with `/project none`. Then send"
    )
    doctor = run(stack, "doctor").stdout
    assert f"its directory {web} does not exist: create it" in " ".join(doctor.split())
    await bot_reply(channel, "/project none")
    assert "RemoteClaw's demo agent" in await agent_answer(stack, channel, "hello")


async def test_the_state_of_a_chat_with_a_project_does_not_expire(
    stack: Stack, channel: TestChannel, web: Path
) -> None:
    await stack.start_worker()
    channel.start()
    await agent_answer(stack, channel, "hello")
    await bot_reply(channel, "/project web")
    await agent_answer(stack, channel, "hello")
    (view,) = await stack.fleet.sessions.list(limit=9)

    async def state_ttl_s() -> int | None:
        """Return the TTL of the idle session's state, -1 if it has none; None while it is busy."""
        current = await stack.fleet.sessions.view(view.sid)
        ttl_s: int = await stack.fleet.scripts.client.ttl(keys.state(view.sid))
        return ttl_s if current and current.status == "idle" else None

    assert await eventually(state_ttl_s) == -1
    await bot_reply(channel, "/project none")
    assert (await state_ttl_s() or 0) > 0


async def test_tasks_and_attachments_of_an_agent_use_its_project(
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
    in_project = await stack.ask("RECALL")
    request = claude.model.bodies().splitlines()[-1].replace("\\", "")
    await stack.fleet.sessions.bind(first.session, None)
    in_workspace = await stack.ask("RECALL")

    assert in_project == "RECALL []"
    assert '{"you":"It is green."}' in request
    assert "my colour is green" in in_workspace
    assert LOST not in in_workspace
    view = await stack.fleet.sessions.view(first.session.sid)
    assert view is not None
    assert len({*view.session_ids.values()}) == 2
