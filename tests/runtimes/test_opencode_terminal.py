"""OpenCode's own program in a terminal: how it is started, and what it says of itself."""

import asyncio
import base64
import contextlib
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.config.home import Home
from remoteclaw.messages import McpServerConfig
from remoteclaw.protocols import AgentSpec, Launch, TranscriptItem
from remoteclaw.runtimes.local_http import MOST_BYTES
from remoteclaw.runtimes.opencode import OpencodeRuntime
from remoteclaw.runtimes.opencode_store import OpencodeTranscript
from remoteclaw.runtimes.opencode_terminal import OpencodeTerminal, OpencodeWatch
from remoteclaw.runtimes.terminal_notes import TerminalNotes
from tests.conftest import required
from tests.support.agents import ModelServerProcess
from tests.support.bridges import agent_bridge
from tests.support.stack import message
from tests.support.tty import Tty
from tests.support.waiting import eventually

SPEC = AgentSpec(
    runtime="opencode",
    command=("opencode",),
    workspace="/w",
    env={"OPENCODE_CONFIG_CONTENT": '{"mcp": {"mine": {"type": "local"}}}', "HOME": "/home/ada"},
    system_prompt="who you are",
    mcp_servers={
        "web": McpServerConfig(url="http://x", headers={"A": "Bearer secret"}),
        "local": McpServerConfig(command="probe", args=("-v",)),
    },
)
MAIN, OTHER, SUB = "ses_main", "ses_other", "ses_sub"


def launched(directory: Path, *, id_: str | None = MAIN, prompt: str = "", **more: Any) -> Launch:
    run_dir = directory / "terminals" / "s"
    run_dir.mkdir(parents=True)
    given = replace(SPEC, **more)
    return OpencodeTerminal().launch(given, session_id=id_, prompt=prompt, run_dir=run_dir)


def configuration(launch: Launch) -> dict[str, Any]:
    return dict(orjson.loads(launch.env["OPENCODE_CONFIG_CONTENT"]))


# -- the start ------------------------------------------------------------------------------------


def test_its_port_has_a_password_that_is_this_users_alone(directory: Path) -> None:
    launch = launched(directory)

    (notes,) = (directory / "terminals" / "s").glob("terminal-notes")
    password = launch.env["OPENCODE_SERVER_PASSWORD"]
    assert len(password) >= 32
    assert password not in " ".join(launch.argv), "other users read command lines"
    assert password in notes.read_text()
    assert notes.stat().st_mode & 0o777 == 0o600
    assert launch.argv[1:3] == ("--hostname", "127.0.0.1")


def test_a_terminal_is_started_as_turns_are(directory: Path) -> None:
    turn = OpencodeRuntime().launch(
        SPEC, session_id=MAIN, fork=False, run_dir=directory / "terminals" / "s"
    )
    launch = launched(directory, model="scripted/best")

    own, of_turn = configuration(launch), configuration(turn)
    servers = own.pop("mcp")
    of_turn.pop("mcp")
    assert own == of_turn
    assert Path(own["instructions"][-1]).read_text() == "who you are"
    assert servers["mine"] == {"type": "local"}
    assert servers["web"] == {
        "type": "remote",
        "url": "http://x",
        "headers": {"A": "Bearer secret"},
    }
    assert servers["local"]["command"] == ["probe", "-v"]
    assert launch.argv[-3:] == ("--model", "scripted/best", f"--session={MAIN}")
    assert launch.env["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"


def test_under_deny_nobody_is_asked(directory: Path) -> None:
    rules = orjson.dumps(configuration(launched(directory, permissions="deny"))["permission"])

    assert b'"ask"' not in rules
    assert b'"bash":"deny"' in rules


def test_a_prompt_is_never_an_option(directory: Path) -> None:
    assert launched(directory, id_=None, prompt="--help").argv[-1] == "--prompt=--help"


# -- what it does ---------------------------------------------------------------------------------


class Server:
    """What opencode's port says, without one."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"/session/status": {}, "/permission": [], "/question": []}
        """The answers by their paths; of others there are none."""
        self.posted: list[tuple[str, Any]] = []
        self.unanswered = 0
        """How many connections are left without an answer."""
        self.refused = 0
        """How many were refused for their password."""
        self._streams: list[asyncio.StreamWriter] = []
        self.password = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(maxsplit=2)
        secret = base64.b64encode(f"opencode:{self.password}".encode()).decode()
        if self.unanswered:
            self.unanswered -= 1
            self._streams.append(writer)
        elif f"Authorization: Basic {secret}" not in head:
            self.refused += 1
            await self._answer(writer, b"HTTP/1.1 401 Unauthorized\r\n\r\n")
        elif method == "POST":
            length = int(head.partition("Content-Length: ")[2].split()[0])
            self.posted.append((path, orjson.loads(await reader.readexactly(length))))
            await self._answer(writer, b"HTTP/1.1 204 No Content\r\n\r\n")
        elif path == "/event":
            self._streams.append(writer)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            self.say("server.connected")
        elif path in self.answers:
            answer = orjson.dumps(self.answers[path])
            await self._answer(writer, b"HTTP/1.1 200 OK\r\n\r\n" + answer)
        else:
            await self._answer(writer, b"HTTP/1.1 404 Not Found\r\n\r\n{}")

    async def _answer(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        writer.write(answer)
        await writer.drain()
        writer.close()

    def say(self, kind: str, session: str = MAIN, **more: Any) -> None:
        event = {"type": kind, "properties": {"sessionID": session, **more}}
        for stream in self._streams:
            stream.write(b"data: " + orjson.dumps(event) + b"\n\n")

    def status(self, kind: str, session: str = MAIN) -> None:
        self.say("session.status", session, status={"type": kind})

    def hang_up(self) -> None:
        while self._streams:
            self._streams.pop().close()


class Program:
    """One opencode with its watch."""

    def __init__(self, directory: Path, server: Server, port: int) -> None:
        self.notes = TerminalNotes(directory)
        self.server = server
        self.port = port
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self, **more: Any) -> None:
        """Write the notes of a start."""
        self.server.password = "secret"
        about = {"prompt": "", "message": "msg_1", "goes_on": True}
        self.notes.begin(port=self.port, password="secret", **{**about, **more})

    def watch(
        self, conversation: str | None = MAIN, home: Path = Path("/nowhere")
    ) -> OpencodeWatch:
        """Begin to watch, as each gateway does that is restarted."""
        watch = OpencodeWatch(self.notes, {"HOME": str(home)}, conversation)
        self.tasks.append(asyncio.create_task(watch.run(lambda: None)))
        return watch

    async def at_rest(self, conversation: str | None = MAIN) -> OpencodeWatch:
        watch = self.watch(conversation)
        watch.title("OpenCode")
        await eventually(lambda: watch.activity == "idle")
        return watch


@pytest.fixture
async def program(directory: Path) -> AsyncIterator[Program]:
    server = Server()
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        program = Program(directory, server, listening.sockets[0].getsockname()[1])
        yield program
        for task in program.tasks:
            task.cancel()
        await asyncio.gather(*program.tasks, return_exceptions=True)
        server.hang_up()


async def test_it_is_idle_once_it_says_so_and_its_screen_is_drawn(program: Program) -> None:
    """Its server is there seconds before its screen, and leaves who comes first without answer."""
    program.begin()
    program.server.unanswered = 1
    watch = program.watch()
    assert watch.activity == "unknown"
    await eventually(lambda: watch._is_connected)
    assert (watch.activity, watch.is_ready) == ("unknown", False)

    watch.title("OC | a title")
    assert (watch.activity, watch.is_ready) == ("idle", True)


async def test_a_turn_is_busy_and_what_it_asks_is_told(program: Program) -> None:
    program.begin()
    watch = await program.at_rest()
    program.server.status("busy")
    await eventually(lambda: watch.activity == "busy")
    asked: dict[str, Any] = {"permission": "bash", "metadata": {"command": "touch  x"}}
    program.server.say("permission.asked", id="per_1", **asked)
    await eventually(lambda: watch.activity == "waiting")
    assert watch.waiting_for == "bash: touch x"
    program.server.say("question.asked", id="que_1", questions=[{"question": "Which one?"}])
    program.server.say("permission.replied", requestID="per_1", reply="reject")
    await eventually(lambda: watch.waiting_for == "Which one?")
    program.server.say("question.rejected", requestID="que_1")
    await eventually(lambda: watch.activity == "busy")
    assert watch.waiting_for == ""
    program.server.status("retry")
    program.server.status("idle")
    await eventually(lambda: watch.activity == "idle")


async def test_who_comes_later_asks_how_it_is(program: Program) -> None:
    program.begin()
    program.server.answers |= {
        "/session/status": {SUB: {"type": "busy"}},
        f"/session/{SUB}": {"id": SUB, "parentID": MAIN},
        "/permission": [{"id": "per_1", "sessionID": SUB, "permission": "edit"}],
    }
    watch = program.watch()
    await eventually(lambda: watch.activity == "waiting")
    program.server.say("permission.replied", requestID="per_1")
    await eventually(lambda: watch.activity == "busy")
    assert watch.conversation == MAIN, "a subagent's is not on the screen"


async def test_another_conversation_is_followed_also_by_the_next_gateway(program: Program) -> None:
    program.begin()
    watch = await program.at_rest(None)
    assert watch.transcript is None
    program.server.say("session.created", info={"id": MAIN})
    await eventually(lambda: watch.conversation == MAIN)
    program.server.say("session.created", SUB, info={"id": SUB, "parentID": MAIN})
    program.server.status("busy", SUB)
    program.server.status("busy", "ses_x/../../config")
    await eventually(lambda: watch.activity == "busy")
    assert watch.conversation == MAIN
    program.server.say("session.created", "ses_2", info={"id": "ses_2"})
    await eventually(lambda: watch.conversation == "ses_2")

    assert program.watch(None).conversation == "ses_2"


async def test_what_is_typed_at_rest_may_open_a_menu_also_for_the_next_gateway(
    program: Program,
) -> None:
    program.begin()
    watch = await program.at_rest()
    watch.typed()
    assert watch.activity == "unknown"
    following = program.watch()
    following.title("OpenCode")
    await eventually(lambda: following.is_ready)
    assert following.activity == "unknown"
    program.server.status("busy")
    await eventually(lambda: following.activity == "busy")
    following.typed()
    program.server.status("idle")
    await eventually(lambda: following.activity == "idle")


async def test_a_connection_that_is_lost_leaves_nothing_known_until_it_is_back(
    program: Program,
) -> None:
    program.begin()
    watch = await program.at_rest()
    del program.server.answers["/session/status"]  # as of a version that doesn't say so
    program.server.hang_up()
    await eventually(lambda: watch.activity == "unknown")
    program.server.answers["/session/status"] = {MAIN: {"type": "busy"}}
    await eventually(lambda: watch.activity == "busy")


async def test_another_program_on_the_port_is_not_believed(program: Program) -> None:
    program.begin()
    program.server.password = "another's"
    watch = program.watch()
    watch.title("OpenCode")
    await eventually(lambda: program.server.refused > 1)
    assert (watch.activity, watch.is_ready) == ("unknown", False)


async def test_an_event_that_is_too_long_is_left_out(program: Program) -> None:
    program.begin()
    watch = await program.at_rest()
    program.server.say("message.part.updated", part="x" * (MOST_BYTES + 100_000))
    program.server.status("busy")
    await eventually(lambda: watch.activity == "busy")


async def test_a_prompt_for_a_conversation_that_goes_on_is_sent_once(program: Program) -> None:
    """Its own option for that keeps the prompt for the next new conversation."""
    program.begin(prompt="go on", model="scripted/best")
    watch = program.watch()
    watch.title("OpenCode")
    await eventually(lambda: program.server.posted)
    path, body = program.server.posted[0]
    assert path == f"/session/{MAIN}/prompt_async"
    assert body == {
        "messageID": "msg_1",
        "parts": [{"type": "text", "text": "go on"}],
        "model": {"providerID": "scripted", "modelID": "best"},
    }
    assert watch.activity == "unknown", "it has not taken it up"

    program.server.answers[f"/session/{MAIN}/message/msg_1"] = {"info": {}}
    await program.at_rest()  # as if the gateway had died behind its request
    assert len(program.server.posted) == 1


async def test_what_it_has_begun_before_anyone_was_there_is_found_by_its_words(
    program: Program, store: "Store", directory: Path
) -> None:
    store.session("ses_before", 1)
    store.message("msg_1", "user", "ses_before")
    store.part("prt_1", "msg_1", "text", text="go on")
    program.begin(prompt="go on", goes_on=False)
    watch = program.watch(None, directory)
    watch.title("OpenCode")
    await eventually(lambda: watch.is_ready)
    assert (watch.activity, watch.conversation) == ("unknown", None)

    store.session(OTHER)
    store.message("msg_2", "user", OTHER)
    store.part("prt_2", "msg_2", "text", text="go on")
    following = program.watch(None, directory)
    following.title("OpenCode")
    await eventually(lambda: following.activity == "idle")
    assert following.conversation == OTHER


# -- its record -----------------------------------------------------------------------------------


class Store:
    """Opencode's database, as version 1.18.33 has it, as far as it is read."""

    def __init__(self, home: Path) -> None:
        file = home / ".local" / "share" / "opencode" / "opencode.db"
        file.parent.mkdir(parents=True)
        self._database = sqlite3.connect(file)
        self._database.executescript(
            "PRAGMA journal_mode = WAL;"
            "CREATE TABLE session (id text PRIMARY KEY, parent_id text, time_created integer,"
            " time_archived integer);"
            "CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer,"
            " data text);"
            "CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text,"
            " time_created integer, data text);"
        )
        self.session(MAIN)

    def session(self, id_: str, created_ms: int = 1 << 50) -> None:
        self._write("INSERT INTO session VALUES (?, NULL, ?, NULL)", (id_, created_ms))

    def message(self, id_: str, role: str, session: str = MAIN, **data: Any) -> None:
        row = (id_, session, 1, orjson.dumps({"role": role, **data}).decode())
        self._write("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?)", row)

    def part(self, id_: str, message: str, kind: str, **data: Any) -> None:
        row = (id_, message, MAIN, 2, orjson.dumps({"type": kind, **data}).decode())
        self._write("INSERT OR REPLACE INTO part VALUES (?, ?, ?, ?, ?)", row)

    def _write(self, statement: str, row: tuple[Any, ...]) -> None:
        with self._database:
            self._database.execute(statement, row)

    def close(self) -> None:
        self._database.close()


@pytest.fixture
def store(directory: Path) -> Any:
    with contextlib.closing(Store(directory)) as store:
        yield store


DONE = {"completed": 9}
BASH = {"tool": "bash", "state": {"status": "running", "input": {"command": "ls  -l"}}}


def test_each_part_comes_once_when_it_is_complete(store: Store, directory: Path) -> None:
    transcript = OpencodeTranscript(MAIN, {"HOME": str(directory)})
    seen: list[TranscriptItem] = []
    position = ""

    def told() -> list[str]:
        nonlocal position
        items, position = transcript.read(position)
        seen.extend(items)
        return [item.text for item in items]

    assert transcript.is_there
    store.message("msg_1", "user", summary={"diffs": []})
    assert told() == []
    store.part("prt_1", "msg_1", "text", text='[remoteclaw {"id": "1"}]\n\nplum')
    assert told() == ["plum"]
    store.part("prt_2", "msg_1", "text", text="a file's content", synthetic=True)
    store.message("msg_2", "assistant")
    store.part("prt_3", "msg_2", "text", text="I w", time={"start": 1})
    assert told() == []
    store.part("prt_3", "msg_2", "text", text="I will.", time={"start": 1, "end": 2})
    store.part("prt_4", "msg_2", "tool", **BASH)
    assert told() == ["I will."]
    store.part("prt_4", "msg_2", "tool", **{**BASH, "state": {**BASH["state"], "status": "error"}})  # type: ignore[dict-item]
    assert told() == ["ls -l"]
    assert told() == []
    store.message("msg_2", "assistant", time=DONE)
    store.message("msg_3", "assistant", time=DONE, error={"name": "MessageAbortedError"})
    assert told() == ["Interrupted."]
    assert told() == []
    end = transcript.end()
    store.message("msg_4", "user")
    store.part("prt_5", "msg_4", "compaction")
    store.message("msg_5", "assistant", time=DONE, summary=True)
    store.part("prt_6", "msg_5", "text", text="a summary", time={"end": 1})
    store.message("msg_6", "user", OTHER)
    store.message("msg_7", "assistant")  # it dies
    store.part("prt_7", "msg_7", "text", text="half", time={"start": 1})
    assert told() == ["The conversation was compacted."]
    store.message("msg_8", "assistant", time=DONE)
    assert told() == ["half"]

    assert transcript.read("")[0] == seen
    assert transcript.read(end)[0] == seen[4:]
    assert [item.kind for item in seen] == ["user", "agent", "tool", "notice", "notice", "agent"]
    assert (seen[2].name, seen[2].id, seen[2].at_ms) == ("bash", "prt_4", 2)


def test_a_store_of_another_version_is_an_error_that_names_it(directory: Path) -> None:
    file = directory / "opencode" / "opencode.db"
    file.parent.mkdir()
    sqlite3.connect(file).close()
    transcript = OpencodeTranscript(MAIN, {"XDG_DATA_HOME": str(directory)})

    with pytest.raises(OSError, match=rf"opencode's record {file} can't be read: no such table"):
        transcript.read("")
    assert not transcript.is_there


# -- the real one ---------------------------------------------------------------------------------


async def test_opencode_goes_from_a_turn_to_a_terminal_and_back_with_its_memory_whole(
    model_server: ModelServerProcess, home: Home
) -> None:
    cli = required("opencode", model_server)
    runtime, terminal = OpencodeRuntime(), OpencodeTerminal()
    env = {**runtime.environment(os.environ), **cli.env}
    about: dict[str, Any] = {"command": cli.command, "env": env}
    async with agent_bridge(home, "opencode", **about) as (bridge, keeper, session_map):
        await bridge.handle(message("SAY: plum"))
        await keeper.discard()
        (conversation,) = session_map.values()
        workspace = str(home.path / "work")
        given = AgentSpec(runtime="opencode", workspace=workspace, **about)
        run_dir = home.path / "terminals" / "s"
        run_dir.mkdir(parents=True)
        record = terminal.transcript(conversation, workspace=workspace, env=env)
        position = record.end()
        launch = terminal.launch(given, session_id=conversation, prompt="RECALL", run_dir=run_dir)
        watch = terminal.watch(
            run_dir=run_dir,
            workspace=workspace,
            env=terminal.places(env),
            conversation=conversation,
        )

        async with Tty.running(launch, watch) as tty:
            await tty.becomes("idle")
            assert tty.seen == ["unknown", "busy", "idle"], "it takes up its prompt"
            await tty.submit("SHELL: touch x")
            await tty.becomes("waiting")
            assert watch.waiting_for == "bash: touch x"
            await tty.type("\x1b")
            await tty.becomes("idle")
            live, position = record.read(position)
            await tty.submit("SAY: quince")
            await tty.becomes("idle")
            assert watch.conversation == conversation
            await tty.end(signal.SIGTERM)
        items = [*live, *record.read(position)[0]]
        again = await bridge.handle(message("RECALL"))

    recalled = items.pop(1)
    assert "SAY: plum" in recalled.text, "it remembers the turn"
    assert [(item.kind, item.text) for item in items] == [
        ("user", "RECALL"),
        ("user", "SHELL: touch x"),
        ("tool", "touch x"),
        ("agent", "DONE The user rejected permission to use this specific tool call."),
        ("user", "SAY: quince"),
        ("agent", "quince"),
    ]
    assert not Path(workspace, "x").exists()
    answer = again.payloads[0].text
    assert answer.count("SAY: plum") == answer.count("SAY: quince") == 1, "the turn remembers both"
