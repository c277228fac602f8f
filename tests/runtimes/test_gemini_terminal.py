"""Gemini's own program in a terminal: its launch, and its activity from title and record."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.protocols import AgentSpec, Launch, TranscriptItem
from remoteclaw.runtimes.gemini.chats import GeminiTranscript
from remoteclaw.runtimes.gemini.runtime import GeminiRuntime
from remoteclaw.runtimes.gemini.terminal import GeminiTerminal, GeminiWatch

ID = "8e7203f5-0e99-4388-b6fa-bf6d7fe5c040"
READY, WORKING = "◇  Ready (work)      ", "✦  Working… (work)    "
NOTICE = "Gemini CLI needs your attention {}"
SILENT, NEW_REQUESTS = "⏲  Working… (work)     ", "✋  Action Required (work)"


def spec(home: Path, **more: Any) -> AgentSpec:
    given = AgentSpec(
        runtime="gemini",
        command=("gemini",),
        workspace="/w",
        env={"HOME": str(home), "NO_COLOR": "1", "GEMINI_DEBUG_LOG_FILE": "/dev/stderr"},
    )
    return replace(given, **more)


def launched(directory: Path, *, id_: str | None = None, prompt: str = "", **more: Any) -> Launch:
    run_dir = directory / "run"
    run_dir.mkdir()
    given = spec(directory, **more)
    return GeminiTerminal().launch(given, session_id=id_, prompt=prompt, run_dir=run_dir)


# -- the start ------------------------------------------------------------------------------------


def test_geminis_terminal_has_the_same_options_as_its_turns(directory: Path) -> None:
    given = spec(directory, model="flash", inherit_mcp=False, trust_workspace=True)
    turn = GeminiRuntime().launch(given, session_id=None, fork=False, run_dir=directory)
    launch = launched(directory, model="flash", inherit_mcp=False, trust_workspace=True)

    assert {"--allowed-mcp-server-names", "none", "-m", "flash", "default"} < set(launch.argv)
    assert launch.argv[-2:] == turn.argv[-2:]
    assert launch.env["GEMINI_CLI_TRUST_WORKSPACE"] == "true"
    assert launch.env.keys() == turn.env.keys() - {"NO_COLOR", "GEMINI_DEBUG_LOG_FILE"}


@pytest.mark.parametrize(
    ("permissions", "mode"),
    [("ask", "default"), ("edits", "default"), ("auto", "yolo"), ("deny", "default")],
)
def test_geminis_terminal_has_the_permissions_of_its_agent(
    directory: Path, permissions: str, mode: str
) -> None:
    argv = launched(directory, permissions=permissions).argv

    assert argv[argv.index("--approval-mode") + 1] == mode
    assert ("--admin-policy" in argv) is (permissions == "deny")


def test_a_conversation_that_gemini_has_lost_restarts_with_another_id(directory: Path) -> None:
    chat = Chat(directory)
    lost = launched(directory, id_=ID, prompt="--help")
    assert lost.session_id != ID
    assert f"--session-id={lost.session_id}" in lost.argv
    assert lost.argv[-1] == "--prompt-interactive=--help", "a prompt is never an option"

    chat.say("user", "plum")
    for place, is_kept in (("/w", True), ("/elsewhere", False)):
        again = directory / place[1:]
        again.mkdir()
        kept = launched(again, id_=ID, env={"HOME": str(directory)}, workspace=place)
        assert (f"--resume={ID}" in kept.argv) is is_kept
        assert (kept.session_id == ID) is is_kept


# -- activity -------------------------------------------------------------------------------------


def set_title(watch: GeminiWatch, title: str) -> str:
    """Set the title; return the activity after it."""
    watch.title(title)
    return watch.activity


async def poll(watch: GeminiWatch) -> str:
    """Poll gemini's files; return the activity."""
    await watch.poll()
    return watch.activity


@pytest.fixture
def chat(directory: Path) -> "Chat":
    return Chat(directory)


async def test_geminis_idle_title_counts_only_once_its_record_exists(
    directory: Path, chat: "Chat"
) -> None:
    """The sign-in dialog has the idle title, and Enter there would choose an option."""
    launch = launched(directory, id_=None)
    watch = chat.watch(conversation=launch.session_id)
    watch.title(READY)
    assert await poll(watch) == "unknown"
    assert not watch.is_ready

    Chat(directory, launch.session_id or "")
    assert await poll(watch) == "idle"
    assert watch.is_ready
    for title, activity in {WORKING: "busy", SILENT: "busy", NEW_REQUESTS: "waiting"}.items():
        assert set_title(watch, title) == activity
    for title in ("", "Gemini CLI (work)", "~/work"):
        assert set_title(watch, title) == "unknown", (
            "the user may have turned the status in the title off"
        )


async def test_an_old_record_does_not_prove_that_gemini_has_resumed_it(
    directory: Path, chat: "Chat"
) -> None:
    chat.say("user", "plum")
    os.utime(chat.file, (1, 1))
    launched(directory, id_=ID)
    watch = chat.watch()
    watch.title(READY)
    assert await poll(watch) == "unknown"

    chat.write({"$set": {"sessionId": ID}})
    assert await poll(watch) == "idle"


async def test_after_a_key_while_idle_geminis_activity_is_unknown_even_after_a_restart(
    directory: Path, chat: "Chat"
) -> None:
    chat.say("user", "plum")
    launched(directory, id_=ID)
    chat.write({"$set": {"sessionId": ID}})
    watch = chat.watch()
    await watch.poll()
    watch.title(READY)
    watch.typed()
    assert watch.activity == "unknown"

    following = chat.watch()
    following.title(WORKING)  # a restored screen reports its titles again
    following.title(READY)
    assert await poll(following) == "unknown"
    following.title(NEW_REQUESTS)
    following.typed()
    assert await poll(following) == "waiting", "any key may have been pressed"
    assert set_title(following, READY) == "idle"


async def test_a_notification_alone_makes_gemini_waiting(directory: Path, chat: "Chat") -> None:
    """Gemini asks about loops and about files outside the workspace while its title is idle."""
    chat.say("user", "plum")
    launched(directory, id_=ID)
    chat.write({"$set": {"sessionId": ID}})
    watch = chat.watch()
    await watch.poll()
    watch.title(NEW_REQUESTS)
    watch.osc(9, NOTICE.format("Approval required | Approve tool action: ls"))
    assert set_title(watch, READY) == "idle", "the title showed that request"
    watch.osc(9, "Gemini CLI session complete Run finished | The session finished.")
    assert set_title(watch, READY) == "idle"

    watch.osc(9, NOTICE.format("Loop detection confirmation required | A loop was detected."))
    assert await poll(watch) == "waiting"
    assert watch.waiting_for == "A loop was detected."
    following = chat.watch()
    following.title(READY)
    assert await poll(following) == "unknown"
    watch.typed()
    assert await poll(watch) == "unknown", "the dialog may be answered, or not"
    watch.title(WORKING)
    assert set_title(watch, READY) == "idle"


async def test_gemini_is_not_idle_before_it_has_accepted_its_first_prompt(
    directory: Path, chat: "Chat"
) -> None:
    chat.say("user", "plum")
    launched(directory, id_=ID, prompt="go on")
    chat.write({"$set": {"sessionId": ID}})
    watch = chat.watch()
    await watch.poll()
    assert set_title(watch, READY) == "unknown"
    watch.title(WORKING)
    assert set_title(watch, READY) == "idle"


# -- the record -----------------------------------------------------------------------------------


class Chat:
    """A file of gemini's for one conversation."""

    def __init__(self, directory: Path, id_: str = ID, minute: str = "2026-11-23T09-37") -> None:
        self.directory = directory
        chats = directory / ".gemini" / "tmp" / "work" / "chats"
        chats.mkdir(parents=True, exist_ok=True)
        self.file = chats / f"session-{minute}-{id_[:8]}.jsonl"
        project = hashlib.sha256(b"/w").hexdigest()
        self.write({"sessionId": id_, "projectHash": project, "kind": "main"})
        self.write({"$set": {"messages": [CONTEXT], "lastUpdated": AT}})

    def watch(self, *, conversation: str | None = ID) -> GeminiWatch:
        return GeminiTerminal().watch(
            run_dir=self.directory / "run",
            workspace="/w",
            env={"HOME": str(self.directory)},
            conversation=conversation,
        )

    def write(self, record: dict[str, Any]) -> None:
        with self.file.open("ab") as file:
            file.write(orjson.dumps(record) + b"\n")

    def say(self, kind: str, text: Any, id_: str = "m1", **more: Any) -> None:
        content = [{"text": text}] if kind == "user" and isinstance(text, str) else text
        self.write({"id": id_, "timestamp": AT, "type": kind, "content": content, **more})
        self.write({"$set": {"lastUpdated": AT}})


AT = "2026-11-23T09:37:44.045Z"
CONTEXT = {"id": "c", "type": "user", "content": [{"text": "<session_context>\nThis is the Ge"}]}
CALLS = [
    {"id": "t1", "name": "run_shell_command", "args": {"command": "touch  x"}, "timestamp": AT},
    {"id": "t2", "name": "read_file", "args": {"file_path": "/w/a"}},
]


def test_each_item_is_read_once_however_often_gemini_writes_it(chat: Chat) -> None:
    """The records are as gemini writes them: after a denied tool, it writes everything again."""
    transcript = GeminiTranscript(ID, {"HOME": str(chat.directory)})
    seen: list[TranscriptItem] = []
    position = ""

    def read() -> None:
        nonlocal position
        items, position = transcript.read(position)
        seen.extend(items)

    assert not transcript.is_resumable
    chat.say("user", '[remoteclaw {"id": "1"}]\n\nplum', "m1")
    read()
    chat.say("gemini", "I will.", "m2")
    read()
    chat.say("gemini", "I will.", "m2", toolCalls=CALLS[:1])
    read()
    chat.say("gemini", "I will.", "m2", toolCalls=CALLS)
    chat.say("user", [{"functionResponse": {"id": "t2"}}], "m3")
    chat.say("info", "Request cancelled.", "m4")
    chat.say("info", "", "m5")
    read()
    before = position
    chat.say("user", [*CONTEXT["content"], {"text": "plum"}], "n1")
    chat.say("gemini", [{"text": "I will."}], "n2")
    read()
    assert position == before, "the conversation is only half written again"
    chat.write({"$set": {"messages": [{"id": "n1"}, {"id": "n2"}]}})
    chat.write({"sessionId": ID, "kind": "main"})  # it is resumed
    chat.write({"$set": {"messages": [CONTEXT, {"id": "n2", "type": "gemini"}]}})
    chat.say("user", "expanded", "m6", displayContent=[{"text": "read @a"}])
    with chat.file.open("ab") as file:
        file.write(b'{"id":"m7","type":"gemini","content":"ha')
    read()
    read()

    assert [(item.id, item.kind, item.name, item.text) for item in seen] == [
        ("m1", "user", "", "plum"),
        ("m2", "agent", "", "I will."),
        ("t1", "tool", "run_shell_command", "touch x"),
        ("t2", "tool", "read_file", "/w/a"),
        ("m4", "notice", "", "Request cancelled."),
        ("m6", "user", "", "read @a"),
    ]
    assert seen[0].at_ms == 1795426664045
    assert transcript.read("")[0] == seen
    assert transcript.is_resumable
    assert transcript.read(transcript.end())[0] == []


def test_a_conversation_is_read_from_the_file_in_which_it_began(chat: Chat) -> None:
    """Each process that resumes it in another minute adds a file without messages."""
    chat.say("user", "plum")
    Chat(chat.directory, minute="2026-11-23T09-40")
    other = Chat(chat.directory, f"{ID[:-1]}1", minute="2026-11-23T08-00")
    other.say("user", "of another conversation, whose id begins alike")

    items, _ = GeminiTranscript(ID, {"HOME": str(chat.directory)}).read("")

    assert [item.text for item in items] == ["plum"]
