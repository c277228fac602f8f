"""Running tools in a turn's live text: their details, their secrets, and who may see them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import announcements
from remoteclaw.gateway.auth.token_file import TokenFile
from remoteclaw.messages import SessionKey
from tests.support.bridges import script
from tests.support.doors import opened
from tests.support.stack import Stack, message, said
from tests.support.waiting import eventually

SECRET = "swordfish-1234"
#: An agent that uses one tool until the file `one` exists, then writes text and uses a second tool
#: until the file `two` exists.
AT_WORK = f"""
def until(name):
    while not os.path.exists(f'DIRECTORY/{{name}}'): time.sleep(0.01)
while True:
    turn()
    say(type='tool_use', id='1', name='Bash', input={{'command': 'deploy {SECRET}\\n\\x1b[2J now'}})
    until('one')
    say(type='tool_result', id='1', output='done with {SECRET}')
    say(type='text', text='Deployed. ')
    say(type='tool_use', id='2', name='Read', input={{'file_path': '/etc/hosts'}})
    until('two')
    say(type='tool_result', id='2', output='')
    say(type='text', text='All is well.')
    say(type='done')
"""


class Viewer:
    """A subscriber that collects live text."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []

    @property
    def live(self) -> list[dict[str, Any]]:
        return [orjson.loads(data) for data in self.raw]

    @property
    def tools(self) -> list[str]:
        """The tools that were shown, without consecutive repetitions."""
        labels = [
            f"{t['tool']} {t['argument']}".strip() for live in self.live for t in live["activity"]
        ]
        return [
            label for before, label in zip([None, *labels], labels, strict=False) if label != before
        ]

    async def sees(self, tools: list[str]) -> None:
        await eventually(lambda: self.tools == tools)


@contextlib.asynccontextmanager
async def viewing(
    stack: Stack, session: SessionKey, *, in_chat: bool = False
) -> AsyncIterator[Viewer]:
    """Subscribe to the live text of a session, or with `in_chat` to that of its chat's account."""
    viewer, is_listening = Viewer(), asyncio.Event()
    channel = keys.live_of("test", "default") if in_chat else keys.live(session.sid)

    async def listen() -> None:
        async for data in announcements(stack.fleet.scripts.client, channel):
            is_listening.set()
            viewer.raw += [] if data is None else [data]

    listening = asyncio.create_task(listen())
    await is_listening.wait()
    yield viewer
    listening.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await listening


def session_in(chat: str) -> SessionKey:
    return SessionKey.of(message("go", channel_id=chat), agent="main")


def at_work(stack: Stack, directory: Path, **channel: Any) -> None:
    """Configure the agent that uses tools; `channel` are the settings of the channel."""
    command = list(script(directory, AT_WORK.replace("DIRECTORY", str(directory))))
    agent = {"runtime": "demo", "command": command, "env": {"DEPLOY_KEY": SECRET}}
    stack.configure(agent, channels={"test": channel} if channel else {})


async def test_a_tool_is_shown_while_it_runs(stack: Stack, directory: Path) -> None:
    at_work(stack, directory)
    await stack.start_worker()
    session = session_in("alice")
    async with viewing(stack, session) as viewer:
        accepted = await stack.append("go", channel_id="alice")
        await eventually(lambda: viewer.tools)
        first = viewer.live[-1]
        (directory / "one").touch()
        await eventually(lambda: viewer.tools[1:])
        second = viewer.live[-1]
        (directory / "two").touch()
        outcome = await stack.outcome(accepted)

    (tool,) = first["activity"]
    assert (first["text"], tool["tool"]) == ("", "Bash")
    assert (tool["argument"], tool["seconds"]) == ("deploy [secret] [2J now", None)
    assert 0 <= tool["since_ms"] - accepted_ms(accepted.entry_id) < 30_000
    assert second["text"] == "Deployed."
    assert viewer.tools == ["Bash deploy [secret] [2J now", "Read /etc/hosts"]
    assert said(outcome) == "Deployed. All is well."
    assert not await stack.fleet.scripts.client.exists(keys.live(session.sid))


async def test_subscribers_of_a_session_see_tool_inputs_and_outputs_that_its_chat_does_not(
    stack: Stack, directory: Path
) -> None:
    """Only clients that may read the record get inputs and outputs; the chat gets names."""
    at_work(stack, directory, activity="names")
    await stack.start_worker()
    session = session_in("chat-1")
    async with (
        viewing(stack, session) as follower,
        viewing(stack, session, in_chat=True) as chat,
    ):
        accepted = await stack.append("go", channel_id="chat-1")
        await eventually(lambda: follower.tools)
        (running,) = follower.live[-1]["tools"]
        (directory / "one").touch()
        await eventually(lambda: len(follower.live[-1]["tools"]) == 2)
        ended, second = follower.live[-1]["tools"]
        (directory / "two").touch()
        await stack.outcome(accepted)

    command = '{"command":"deploy [secret]\\n\\u001b[2J now"}'
    assert running.pop("since_ms") <= second["since_ms"]
    assert running == {
        "id": "1",
        "tool": "Bash",
        "argument": "deploy [secret] [2J now",
        "input": command,
        "output": "",
        "seconds": None,
        "is_error": False,
    }
    assert (ended["output"], ended["input"]) == ("done with [secret]", command)
    assert ended["seconds"] >= 0
    assert chat.tools == ["Bash", "Read"]
    assert not [live for live in chat.live if "tools" in live]


async def test_live_text_of_many_tools_is_bounded(stack: Stack, directory: Path) -> None:
    body = f"""
turn()
for n in range(40):
    say(type='tool_use', id=str(n), name='Bash', input={{'command': 'x' * 5000}})
    say(type='tool_result', id=str(n), output='y' * 9000)
while not os.path.exists('{directory}/one'): time.sleep(0.01)
say(type='done')
"""
    stack.configure({"runtime": "demo", "command": list(script(directory, body))})
    await stack.start_worker()
    async with viewing(stack, session_in("alice")) as viewer:
        accepted = await stack.append("go", channel_id="alice")
        await eventually(
            lambda: viewer.live and [tool["id"] for tool in viewer.live[-1]["tools"]][-1:] == ["39"]
        )
        await eventually(lambda: viewer.live[-1]["tools"][-1]["seconds"] is not None)
        (directory / "one").touch()
        await stack.outcome(accepted)

    tools = viewer.live[-1]["tools"]
    assert [tool["id"] for tool in tools] == [str(n) for n in range(20, 40)]
    assert [tool["id"] for tool in tools if "output" in tool] == ["37", "38", "39"]
    assert max(map(len, viewer.raw)) < 14_000


async def test_a_quiet_session_shows_no_tools(stack: Stack, directory: Path) -> None:
    at_work(stack, directory)
    await stack.start_worker()
    session = session_in("alice")
    await stack.fleet.sessions.quieten(session, is_quiet=True)
    async with viewing(stack, session) as viewer:
        accepted = await stack.append("go", channel_id="alice")
        await eventually(lambda: viewer.live)
        (directory / "one").touch()
        await eventually(lambda: viewer.live[-1]["text"] == "Deployed.")
        (directory / "two").touch()
        await stack.outcome(accepted)

    assert all(live["is_quiet"] and not live["tools"] for live in viewer.live)
    assert viewer.tools == []


def accepted_ms(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])


async def test_a_secret_reaches_neither_redis_nor_a_viewer(stack: Stack, directory: Path) -> None:
    """The record of the conversation, which agents and people read, does not have it either."""
    at_work(stack, directory)
    await stack.start_worker()
    session = session_in("alice")
    TokenFile(stack.home.path).create()
    token = TokenFile(stack.home.path).read()
    async with opened(stack) as door, door.connected(token) as client:
        before = await stack.append("/new", channel_id="alice")
        await stack.outcome(before)
        await client.call("sessions.subscribe", {"sessionKey": str(session)})
        async with viewing(stack, session) as viewer:
            accepted = await stack.append("go", channel_id="alice")
            while not (event := await client.event("session.live"))["activity"]:
                pass  # a turn that begins slowly is shown before its first tool
            for name in ("one", "two"):
                (directory / name).touch()
            await stack.outcome(accepted)

    assert event["activity"][0]["argument"] == "deploy [secret] [2J now"
    assert "[secret]" in event["tools"][0]["input"]
    assert viewer.raw
    assert SECRET.encode() not in b"".join(viewer.raw)
    redis = stack.fleet.scripts.client
    record = str(await redis.get(keys.record(session.sid)))
    assert "[secret]" in record
    assert SECRET not in record
    await redis.config_set("rdbcompression", "no")
    dumps = [await redis.dump(key) for key in await redis.keys()]
    assert not [data for data in dumps if data and SECRET.encode() in data]


@pytest.mark.parametrize(
    ("chat", "channel", "tools"),
    [
        ("chat-1", {}, ["Bash", "Read"]),
        ("chat-1", {"activity": "arguments"}, ["Bash deploy [secret] [2J now", "Read /etc/hosts"]),
        ("alice", {"activity": "names"}, ["Bash", "Read"]),
        ("alice", {"activity": "off"}, []),
    ],
)
async def test_how_much_of_a_tool_is_shown_depends_on_the_chat(
    stack: Stack, directory: Path, chat: str, channel: Mapping[str, str], tools: list[str]
) -> None:
    """A group sees only names by default, because other people read there."""
    at_work(stack, directory, **channel)
    await stack.start_worker()
    session = session_in(chat)
    async with viewing(stack, session) as viewer:
        accepted = await stack.append("go", channel_id=chat)
        await viewer.sees(tools[:1])
        (directory / "one").touch()
        await viewer.sees(tools)
        await eventually(lambda: viewer.live and viewer.live[-1]["text"])
        (directory / "two").touch()
        await stack.outcome(accepted)

    assert viewer.tools == tools
