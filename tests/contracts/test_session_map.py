"""Session maps: the contract for Redis and files, and then the tests of the file alone."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from remoteclaw.bridge.session_map import FILE_NAME, FileSessionMap
from remoteclaw.clock import now_ms
from remoteclaw.fleet import keys
from remoteclaw.fleet.sessions.session_map import LeasedSessionMap
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import Conversation, SessionMap, conversation_name, parts_of_name
from tests.support.stack import Stack, message
from tests.support.waiting import HANG_S

ALICE = SessionKey("main", "test", "default", "chat-1", "alice")
BOB = SessionKey("main", "test", "default", "chat-1", "bob")
DAY_MS = 24 * 3600 * 1000

#: A function that opens the map of a session, and one that lets days pass.
Store = tuple[Callable[[SessionKey], Awaitable[SessionMap]], Callable[[float], Awaitable[None]]]


@pytest.fixture(params=["file", "redis"])
async def store(
    request: pytest.FixtureRequest, directory: Path, stack: Stack
) -> AsyncIterator[Store]:
    if request.param == "file":
        clock = [1_795_000_000_000]

        async def open_file(session: SessionKey) -> SessionMap:
            return FileSessionMap(directory, session, now_ms=lambda: clock[0])

        async def pass_days(days: float) -> None:
            clock[0] += int(days * DAY_MS)

        yield open_file, pass_days
        return
    client = stack.fleet.scripts.client

    async def open_redis(session: SessionKey) -> SessionMap:
        """Open the map as a drain does for each conversation, with the lease."""
        sent = message("hi", from_=session.user)
        accepted = await stack.fleet.inbound.append(sent, agent="main")
        name = keys.state(accepted.session.sid)
        if await client.hget(name, "status") == b"running":
            await client.hset(name, "lease_until_ms", 1)
        lease = await stack.fleet.leases.acquire(accepted.session.sid, worker="t", host="here")
        assert lease is not None
        return LeasedSessionMap(lease)

    async def age(days: float) -> None:
        async for key in client.scan_iter(keys.session_map("*")):
            left = await client.pttl(key) - int(days * DAY_MS)
            await client.pexpire(key, max(left, 1))
        await asyncio.sleep(0.01)  # Redis expires keys by its own clock

    yield open_redis, age


async def test_an_id_is_stored_and_can_be_deleted(store: Store) -> None:
    open_map, _ = store
    sessions = await open_map(ALICE)
    assert await sessions.get("main|claude|/w") is None

    await sessions.set("main|claude|/w", Conversation("one"))
    await sessions.set("main|claude|/w", Conversation("two"))
    assert await sessions.get("main|claude|/w") == Conversation("two")

    await sessions.delete("main|claude|/w")
    await sessions.delete("main|claude|/w")
    assert await sessions.get("main|claude|/w") is None


async def test_what_is_known_of_a_conversation_is_stored_with_its_id(store: Store) -> None:
    open_map, _ = store
    conversation = Conversation("one", 'opus[1m]\n{"a": "\u00e9"}', seen="1-1", identity="x")
    await (await open_map(ALICE)).set("main|claude|/w", conversation)
    again = await open_map(ALICE)
    found = await again.get("main|claude|/w")
    await again.set("main|claude|/w", Conversation("two"))

    assert found == conversation
    assert await again.get("main|claude|/w") == Conversation("two")


@pytest.mark.parametrize(
    ("stored", "conversation"),
    [
        ("one", Conversation("one")),
        ("one\nopus[1m]", Conversation("one", "opus[1m]")),
        ("fork of one\nopus", Conversation("fork of one", "opus")),
        ('{"id":"one","of_later":1}', Conversation("one")),
        (Conversation("fork of one", seen="1-1").encode(), Conversation("fork of one", seen="1-1")),
    ],
)
def test_earlier_and_later_forms_of_a_conversation_are_read(
    stored: str, conversation: Conversation
) -> None:
    assert Conversation.decode(stored) == conversation
    assert Conversation.decode(conversation.encode()) == conversation


async def test_a_conversation_from_before_names_had_an_agent_is_found(
    directory: Path, stack: Stack
) -> None:
    """Its name was the runtime and the directory."""
    accepted = await stack.append("hi", from_="alice")
    sid, client = accepted.session.sid, stack.fleet.scripts.client
    await client.hset(keys.session_map(sid), "claude|/w|x", "a\nopus")
    entry = {"sessionId": "a", "lastAccessMs": now_ms(), "note": "opus"}
    (directory / FILE_NAME).write_text(json.dumps({f"{ALICE}|claude|/w|x": entry}))

    lease = await stack.fleet.leases.acquire(sid, worker="t", host="here")
    assert lease is not None
    maps: list[SessionMap] = [LeasedSessionMap(lease), FileSessionMap(directory, ALICE)]

    for each in maps:
        assert await each.get("main|claude|/w|x") == Conversation("a", "opus")
        assert await each.get("other|claude|/w|x") is None
        await each.delete("main|claude|/w|x")
    assert await client.hgetall(keys.session_map(sid)) == {}
    assert not json.loads((directory / FILE_NAME).read_text())


async def test_two_agents_with_one_cli_have_a_conversation_each(store: Store) -> None:
    open_map, _ = store
    sessions = await open_map(ALICE)
    await sessions.set(conversation_name("main", "claude", "/w"), Conversation("a"))
    await sessions.set(conversation_name("a/b|c", "claude", "/w"), Conversation("b"))
    await sessions.delete(conversation_name("a/b|c", "claude", "/w"))

    assert await sessions.get(conversation_name("main", "claude", "/w")) == Conversation("a")
    assert parts_of_name(conversation_name("a/b|c", "claude", "/w|x"))[1:] == ("claude", "/w|x")


async def test_each_runtime_workspace_and_session_has_its_own_id(store: Store) -> None:
    open_map, _ = store
    alice, bob = await open_map(ALICE), await open_map(BOB)
    await alice.set("main|claude|/w", Conversation("a"))
    await alice.set("main|demo|/w", Conversation("b"))
    await bob.set("main|claude|/w", Conversation("c"))

    assert await alice.get("main|claude|/w") == Conversation("a")
    assert await alice.get("main|demo|/w") == Conversation("b")
    assert await alice.get("main|claude|/x") is None
    assert await bob.get("main|claude|/w") == Conversation("c")


async def test_a_map_that_is_opened_again_has_the_id(store: Store) -> None:
    open_map, _ = store
    await (await open_map(ALICE)).set("main|claude|/w", Conversation("a"))

    assert await (await open_map(ALICE)).get("main|claude|/w") == Conversation("a")


async def test_an_id_expires_seven_days_after_its_last_use(store: Store) -> None:
    open_map, pass_days = store
    await (await open_map(ALICE)).set("main|claude|/w", Conversation("a"))

    for _ in range(3):
        await pass_days(6)
        assert await (await open_map(ALICE)).get("main|claude|/w") == Conversation("a")
    await pass_days(7.1)
    assert await (await open_map(ALICE)).get("main|claude|/w") is None


# -- the file -------------------------------------------------------------------------------------


async def test_a_damaged_file_is_set_aside(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / FILE_NAME).write_text('{"half": ')
    sessions = FileSessionMap(directory, ALICE)

    await sessions.set("main|claude|/w", Conversation("a"))

    assert await sessions.get("main|claude|/w") == Conversation("a")
    (aside,) = directory.glob("remoteclaw-sessions.damaged-*")
    assert aside.read_text() == '{"half": '
    assert "is set aside" in caplog.text


async def test_concurrent_processes_lose_no_ids_of_each_other(directory: Path) -> None:
    code = (
        "import asyncio, sys; from pathlib import Path\n"
        "from remoteclaw.bridge.session_map import FileSessionMap\n"
        "from remoteclaw.messages import SessionKey\n"
        "from remoteclaw.protocols import Conversation\n"
        "async def main():\n"
        "    for n in range(40):\n"
        "        key = SessionKey('main', 'test', 'default', 'c', f'{sys.argv[2]}-{n}')\n"
        "        sessions = FileSessionMap(Path(sys.argv[1]), key)\n"
        "        await sessions.set('main|claude|/w', Conversation('x'))\n"
        "        assert await sessions.get('main|claude|/w') == Conversation('x')\n"
        "asyncio.run(main())\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(directory), str(number)])
        for number in range(2)
    ]
    assert [writer.wait(HANG_S) for writer in writers] == [0] * 2

    assert len(json.loads((directory / FILE_NAME).read_text())) == 80
    assert not list(directory.glob(f".{FILE_NAME}-*"))


async def test_only_the_owner_can_read_the_session_file(directory: Path) -> None:
    await FileSessionMap(directory, ALICE).set("main|claude|/w", Conversation("a"))

    assert (directory / FILE_NAME).stat().st_mode & 0o077 == 0


def test_the_documented_bridge_example_continues_its_conversation(directory: Path) -> None:
    """The example of docs/bridge.md runs twice."""
    page = Path(__file__).parents[2] / "docs" / "bridge.md"
    code, additions = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (directory / "ask.py").write_text(code)
    for given, with_more in (
        ("async def ask", f"{additions}\n\nasync def ask"),
        ("        runtime=runtime,\n", "        runtime=runtime,\n        hooks=hooks,\n"),
        ("bridge.handle(message)", "bridge.handle(message, callbacks=callbacks)"),
    ):
        assert given in code
        code = code.replace(given, with_more)
    (directory / "ask_with_more.py").write_text(code)
    env = {**os.environ, "REMOTECLAW_HOME": str(directory / "home")}

    def ask(text: str, program: str = "ask.py") -> str:
        argv = [sys.executable, program, text]
        return subprocess.run(
            argv, cwd=directory, env=env, check=True, capture_output=True, text=True
        ).stdout

    assert "demo agent" in ask("hello")
    assert "- hello" in ask("memory")
    printed = ask("memory", "ask_with_more.py").splitlines()
    assert printed[0].startswith("message: ")
    assert "done" in printed
