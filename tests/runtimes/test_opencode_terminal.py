"""Opencode's own program in a terminal: its launch, and its activity from its server and title."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.messages import McpServerConfig
from remoteclaw.protocols import AgentSpec, Launch
from remoteclaw.runtimes.local_http import MAX_BYTES
from remoteclaw.runtimes.opencode.runtime import OpencodeRuntime
from remoteclaw.runtimes.opencode.terminal import OpencodeTerminal, OpencodeWatch
from remoteclaw.runtimes.terminal import TerminalNotes
from tests.support.opencode import MAIN, Server, Store
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
OTHER, SUB = "ses_other", "ses_sub"


def launched(directory: Path, *, id_: str | None = MAIN, prompt: str = "", **more: Any) -> Launch:
    run_dir = directory / "terminals" / "s"
    run_dir.mkdir(parents=True)
    given = replace(SPEC, **more)
    return OpencodeTerminal().launch(given, session_id=id_, prompt=prompt, run_dir=run_dir)


def configuration(launch: Launch) -> dict[str, Any]:
    return dict(orjson.loads(launch.env["OPENCODE_CONFIG_CONTENT"]))


# -- the start ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("chosen", "expected"), [("p/o", "p/o"), (None, "p/d")])
def test_opencodes_terminal_has_the_chosen_or_the_default_model(
    directory: Path, chosen: str | None, expected: str
) -> None:
    """Without one, opencode continues a session with its last model."""
    argv = launched(directory, model=chosen, note="p/d").argv

    assert argv[argv.index("--model") + 1] == expected


def test_the_port_of_opencodes_terminal_has_a_password_in_a_private_file(directory: Path) -> None:
    launch = launched(directory)

    (notes,) = (directory / "terminals" / "s").glob("terminal-notes")
    password = launch.env["OPENCODE_SERVER_PASSWORD"]
    assert len(password) >= 32
    assert password not in " ".join(launch.argv), "other users read command lines"
    assert password in notes.read_text()
    assert notes.stat().st_mode & 0o777 == 0o600
    assert launch.argv[1:3] == ("--hostname", "127.0.0.1")


def test_opencodes_terminal_has_the_same_options_as_its_turns(directory: Path) -> None:
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
    assert launch.env["BUN_TMPDIR"] == str(
        directory / "terminals" / "s"
    )  # so that its files don't stay in /tmp


def test_under_deny_opencodes_terminal_asks_for_no_permission(directory: Path) -> None:
    config = configuration(launched(directory, permissions="deny"))
    for rules in (config, config["agent"]["build"]):
        assert b'"ask"' not in orjson.dumps(rules["permission"])
        assert rules["permission"]["bash *"] == "deny"


def test_a_prompt_of_opencode_is_never_read_as_an_option(directory: Path) -> None:
    assert launched(directory, id_=None, prompt="--help").argv[-1] == "--prompt=--help"


# -- activity -------------------------------------------------------------------------------------


@pytest.fixture
def store(directory: Path) -> Iterator[Store]:
    store = Store(directory)
    yield store
    store.close()


class Program:
    """A scripted server of opencode, with its notes and watches."""

    def __init__(self, directory: Path, server: Server, port: int) -> None:
        self.notes = TerminalNotes(directory)
        self.server = server
        self.port = port
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self, **more: Any) -> None:
        """Write the notes that a start leaves."""
        self.server.password = "secret"
        about = {"prompt": "", "message": "msg_1", "goes_on": True}
        self.notes.begin(port=self.port, password="secret", **{**about, **more})

    def watch(
        self, conversation: str | None = MAIN, home: Path = Path("/nowhere")
    ) -> OpencodeWatch:
        """Start a new watch, as a restarted gateway does."""
        watch = OpencodeWatch(self.notes, {"HOME": str(home)}, conversation)
        self.tasks.append(asyncio.create_task(watch.run(lambda: None)))
        return watch

    async def idle_watch(self, conversation: str | None = MAIN) -> OpencodeWatch:
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


async def test_opencode_is_idle_once_it_reports_so_and_its_screen_is_drawn(
    program: Program,
) -> None:
    """Its server starts seconds before its screen, and does not answer the first client."""
    program.begin()
    program.server.unanswered = 1
    watch = program.watch()
    assert watch.activity == "unknown"
    await eventually(lambda: watch._is_connected)
    assert (watch.activity, watch.is_ready) == ("unknown", False)

    watch.title("OC | a title")
    assert (watch.activity, watch.is_ready) == ("idle", True)


async def test_opencode_is_busy_during_a_turn_and_waiting_while_it_asks(program: Program) -> None:
    program.begin()
    watch = await program.idle_watch()
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


async def test_a_new_watch_requests_opencodes_current_state(program: Program) -> None:
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
    assert watch.conversation == MAIN, "a subagent's conversation is not on the screen"


async def test_a_switch_to_another_conversation_is_kept_after_a_restart(program: Program) -> None:
    program.begin()
    watch = await program.idle_watch(None)
    assert watch.transcript is None
    program.server.say("session.created", info={"id": MAIN})
    await eventually(lambda: watch.conversation == MAIN)
    program.server.say("session.created", SUB, info={"id": SUB, "parentID": MAIN})
    program.server.status("busy", SUB)
    program.server.status("busy", "ses_x/../../config")
    await eventually(lambda: watch.activity == "busy")
    assert watch.conversation == MAIN
    program.server.status("busy")
    program.server.say("session.created", "ses_2", info={"id": "ses_2"})
    program.server.status("busy", "ses_2")
    program.server.status("busy")  # its next step: a person has left it while it works
    program.server.say("permission.asked", id="per_1", permission="bash", metadata={})
    await eventually(lambda: watch.activity == "waiting")
    assert watch.conversation == "ses_2"

    assert program.watch(None).conversation == "ses_2"


async def test_after_a_key_while_idle_opencodes_activity_is_unknown_even_after_a_restart(
    program: Program,
) -> None:
    program.begin()
    watch = await program.idle_watch()
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


async def test_opencodes_activity_is_unknown_while_its_connection_is_lost(
    program: Program,
) -> None:
    program.begin()
    watch = await program.idle_watch()
    del program.server.answers["/session/status"]  # as in a version that doesn't report it
    program.server.hang_up()
    await eventually(lambda: watch.activity == "unknown")
    program.server.answers["/session/status"] = {MAIN: {"type": "busy"}}
    await eventually(lambda: watch.activity == "busy")


async def test_another_program_on_opencodes_port_is_ignored(program: Program) -> None:
    program.begin()
    program.server.password = "another's"
    watch = program.watch()
    watch.title("OpenCode")
    await eventually(lambda: program.server.refused > 1)
    assert (watch.activity, watch.is_ready) == ("unknown", False)


async def test_an_oversized_event_of_opencode_is_skipped(program: Program) -> None:
    program.begin()
    watch = await program.idle_watch()
    program.server.say("message.part.updated", part="x" * (MAX_BYTES + 100_000))
    program.server.status("busy")
    await eventually(lambda: watch.activity == "busy")


async def test_a_prompt_for_a_resumed_conversation_is_sent_once(program: Program) -> None:
    """Opencode's own option would keep the prompt for the next new conversation."""
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
    assert watch.activity == "unknown", "it has not accepted the prompt yet"

    program.server.answers[f"/session/{MAIN}/message/msg_1"] = {"info": {}}
    await program.idle_watch()  # as if the gateway had died after its request
    assert len(program.server.posted) == 1


async def test_a_conversation_begun_before_the_watch_is_found_by_its_prompt(
    program: Program, store: Store, directory: Path
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
