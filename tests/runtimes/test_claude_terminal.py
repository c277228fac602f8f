"""Claude's own program in a terminal: its launch, and its activity (hooks, records, title)."""

import asyncio
import contextlib
import shutil
import subprocess
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.messages import McpServerConfig
from remoteclaw.protocols import AgentSpec, Decision, Launch
from remoteclaw.runtimes.claude.runtime import ClaudeRuntime
from remoteclaw.runtimes.claude.terminal import ClaudeTerminal, ClaudeWatch
from tests.support.waiting import HANG_S, eventually

ID = "11111111-2222-4333-8444-555555555555"
OTHER = "66666666-7777-4888-9999-000000000000"
SPEC = AgentSpec(
    runtime="claude",
    command=("claude",),
    workspace="/w",
    env={"HOME": "/home/ada"},
    system_prompt="who you are",
    mcp_servers={"remoteclaw": McpServerConfig(url="http://x", headers={"A": "Bearer secret"})},
    tools=("send",),
)
BUSY_TITLE, IDLE_TITLE = "⠂ a title", "✳ a title"


def launched(spec: AgentSpec, run_dir: Path, *, id_: str | None = ID, prompt: str = "") -> Launch:
    run_dir.mkdir(exist_ok=True)
    return ClaudeTerminal().launch(spec, session_id=id_, prompt=prompt, run_dir=run_dir)


# -- the start ------------------------------------------------------------------------------------


def test_secrets_and_instructions_are_in_files_that_only_the_owner_can_read(
    directory: Path,
) -> None:
    launch = launched(SPEC, directory / "run", prompt="--help")

    argv = " ".join(launch.argv)
    assert "secret" not in argv, "other users read command lines"
    assert "who you are" not in argv
    mcp = Path(launch.argv[launch.argv.index("--mcp-config") + 1])
    assert orjson.loads(mcp.read_bytes())["mcpServers"]["remoteclaw"]["headers"] == {
        "A": "Bearer secret"
    }
    system = Path(launch.argv[launch.argv.index("--append-system-prompt-file") + 1])
    assert system.read_text() == "who you are"
    assert {file.stat().st_mode & 0o777 for file in (directory / "run").iterdir()} == {0o600}
    assert launch.argv[-2:] == ("--", "--help"), "a prompt is never an option"


def test_a_terminal_has_the_same_options_as_a_turn(directory: Path) -> None:
    spec = replace(SPEC, model="haiku", inherit_mcp=False, trust_workspace=True)
    turn = ClaudeRuntime().launch(spec, session_id=ID, fork=False, run_dir=directory / "run")
    terminal = launched(spec, directory / "run")

    both = set(turn.argv) & set(terminal.argv)
    assert {"--strict-mcp-config", "--setting-sources=user,project,local", "haiku"} < both
    assert {f"--resume={ID}", turn.argv[-1]} < both, "the allowed tools are the last option"
    assert terminal.env == turn.env


@pytest.mark.parametrize(
    ("permissions", "mode"),
    [("ask", "default"), ("edits", "acceptEdits"), ("auto", "acceptEdits"), ("deny", "dontAsk")],
)
def test_a_terminal_has_the_permissions_of_its_agent(
    directory: Path, permissions: str, mode: str
) -> None:
    argv = launched(replace(SPEC, permissions=permissions), directory / "run").argv

    assert argv[argv.index("--permission-mode") + 1] == mode
    allowed = argv[argv.index("--allowedTools") + 1].split(",")
    assert ("Bash" in allowed) is (permissions == "auto")
    assert ("mcp__remoteclaw" in allowed) is (permissions != "deny")


def test_a_new_conversation_has_an_id_before_it_begins(directory: Path) -> None:
    launch = launched(SPEC, directory / "run", id_=None)

    assert launch.session_id
    assert f"--session-id={launch.session_id}" in launch.argv


def test_a_hook_that_cannot_write_its_note_still_succeeds(directory: Path) -> None:
    """Exit status 2, as of a shell that can't open a file, would refuse a prompt or a tool."""
    argv = launched(SPEC, directory / "run").argv
    settings = orjson.loads(Path(argv[argv.index("--settings") + 1]).read_bytes())
    shutil.rmtree(directory / "run")

    for ((hook,),) in ([each["hooks"] for each in of] for of in settings["hooks"].values()):
        ran = subprocess.run(["/bin/sh", "-c", hook["command"]], input=b"{}", check=False)
        assert ran.returncode == 0


# -- activity -------------------------------------------------------------------------------------


class Claude:
    """Stands in for a claude: writes its hooks' notes and its records, and sets its title."""

    def __init__(self, directory: Path, *, prompt: str = "") -> None:
        self.run_dir, self.home = directory / "run", directory
        launched(SPEC, self.run_dir, prompt=prompt)
        self.changes = 0
        self.new_watch()

    def new_watch(self) -> None:
        """Start a new watch, as a restarted gateway does."""
        self.watch: ClaudeWatch = ClaudeTerminal().watch(
            run_dir=self.run_dir, workspace="/w", env={"HOME": str(self.home)}, conversation=ID
        )

    def transcript(self, id_: str = ID) -> Path:
        path = self.home / ".claude" / "projects" / "-w" / f"{id_}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    async def run_hook(self, event: str, prompt: str = "p1", **more: Any) -> str:
        """Write the note of a hook about an event; return the activity after it."""
        note = {"hook_event_name": event, "prompt_id": prompt, **more}
        with (self.run_dir / "notes").open("ab") as file:
            file.write(orjson.dumps(note) + b"\n\n")
        return await self.poll()

    async def begin(self, id_: str = ID, source: str = "startup") -> str:
        path = str(self.transcript(id_))
        return await self.run_hook(
            "SessionStart", "", source=source, session_id=id_, transcript_path=path
        )

    async def record(self, *, prompt: str = "p1", kind: str = "user", text: str) -> str:
        record = {
            "type": kind,
            "promptId": prompt,
            "uuid": "u",
            "message": {"content": [{"type": "text", "text": text}]},
        }
        with self.transcript().open("ab") as file:
            file.write(orjson.dumps(record) + b"\n")
        return await self.poll()

    async def poll(self) -> str:
        await self.watch.poll()
        return self.watch.activity


STOPPED = "[Request interrupted by user for tool use]"


@pytest.fixture
def claude_of(directory: Path) -> Claude:
    return Claude(directory)


async def test_an_idle_title_alone_leaves_the_activity_unknown(
    claude_of: Claude,
) -> None:
    """A dialog at the start has no hook, and typing would answer it."""
    assert await claude_of.poll() == "unknown"
    assert not claude_of.watch.is_ready
    claude_of.watch.title(IDLE_TITLE)
    assert await claude_of.poll() == "unknown"
    claude_of.watch.title(BUSY_TITLE)
    assert await claude_of.poll() == "busy"


async def test_claude_is_busy_from_a_prompt_to_the_stop_hook(claude_of: Claude) -> None:
    assert await claude_of.begin() == "idle"
    assert claude_of.watch.is_ready
    for event in ("UserPromptSubmit", "PreToolUse", "PostToolUse"):
        assert await claude_of.run_hook(event) == "busy"
    claude_of.watch.title(BUSY_TITLE)
    assert await claude_of.run_hook("Stop") == "busy", "its title is the busy one"
    claude_of.watch.title(IDLE_TITLE)
    assert claude_of.watch.activity == "idle"
    await claude_of.run_hook("UserPromptSubmit")
    assert await claude_of.run_hook("StopFailure") == "idle"


async def test_claude_is_not_idle_before_it_has_accepted_its_first_prompt(
    directory: Path,
) -> None:
    claude = Claude(directory, prompt="go on")

    assert await claude.begin() == "unknown"
    assert claude.watch.is_ready
    assert await claude.run_hook("UserPromptSubmit") == "busy"
    await claude.run_hook("Stop")
    assert await claude.begin(OTHER, "clear") == "idle"


async def test_claude_is_waiting_until_its_dialog_is_answered(claude_of: Claude) -> None:
    claude = claude_of
    await claude.begin()
    await claude.run_hook("UserPromptSubmit")
    claude.watch.title(IDLE_TITLE)
    asked: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "rm  -r\nx"}}
    assert await claude.run_hook("PermissionRequest", **asked) == "waiting"
    assert claude.watch.waiting_for == "Bash: rm -r ⏎ x"

    assert await claude.run_hook("PostToolUse") == "waiting", "the event is about another tool"
    claude.watch.typed()
    assert await claude.poll() == "waiting", "any key may have been pressed"
    claude.watch.title(BUSY_TITLE)
    assert await claude.poll() == "busy"
    assert claude.watch.waiting_for == ""


async def test_a_permission_notification_alone_makes_claude_waiting(claude_of: Claude) -> None:
    await claude_of.run_hook("UserPromptSubmit")

    asked = await claude_of.run_hook("Notification", notification_type="idle_prompt", message="?")
    assert asked == "busy"
    asked = await claude_of.run_hook(
        "Notification", notification_type="permission_prompt", message="?"
    )
    assert (asked, claude_of.watch.waiting_for) == ("waiting", "?")
    assert await claude_of.run_hook("PostToolUse") == "busy"


async def test_an_interruption_is_detected_from_the_record_and_the_title_together(
    claude_of: Claude,
) -> None:
    """No hook reports Esc, and the title during a dialog is the idle one."""
    claude = claude_of
    await claude.run_hook("UserPromptSubmit")
    await claude.run_hook("PermissionRequest")
    claude.watch.title(IDLE_TITLE)
    assert await claude.record(prompt="p0", text=STOPPED) == "waiting", (
        "the record is of an earlier prompt"
    )
    assert await claude.record(text=STOPPED) == "idle"
    claude.watch.title(BUSY_TITLE)
    assert claude.watch.activity != "idle"
    claude.watch.title(IDLE_TITLE)
    assert await claude.record(kind="assistant", text="but then") != "idle"
    assert await claude.record(text=f"He said: {STOPPED}") != "idle"


async def test_after_a_key_while_idle_the_activity_is_unknown_even_after_a_restart(
    claude_of: Claude,
) -> None:
    await claude_of.begin()
    claude_of.watch.typed()
    assert claude_of.watch.activity == "unknown"

    claude_of.new_watch()
    assert await claude_of.poll() == "unknown"
    assert claude_of.watch.is_ready
    await claude_of.run_hook("UserPromptSubmit")
    assert await claude_of.run_hook("Stop") == "idle"


async def test_compaction_ends_no_turn_and_leaves_claude_idle_between_turns(
    claude_of: Claude,
) -> None:
    await claude_of.begin()
    await claude_of.run_hook("UserPromptSubmit")
    assert await claude_of.begin(source="compact") == "busy"
    await claude_of.run_hook("Stop")
    claude_of.watch.typed()
    claude_of.watch.title(BUSY_TITLE)
    assert await claude_of.begin(source="compact") == "busy"
    claude_of.watch.title(IDLE_TITLE)
    assert await claude_of.poll() == "idle"


async def test_an_unreadable_note_makes_the_activity_unknown(claude_of: Claude) -> None:
    await claude_of.begin()
    with (claude_of.run_dir / "notes").open("ab") as file:
        file.write(b'{"hook_event_name":"PermissionReq{"hook_\n')

    assert await claude_of.poll() == "unknown"


async def test_clear_moves_to_another_conversation(claude_of: Claude) -> None:
    claude = claude_of
    await claude.begin()
    await claude.record(text="before")
    await claude.run_hook("SessionEnd", reason="clear")
    await claude.begin(OTHER, "clear")

    assert claude.watch.conversation == OTHER
    transcript = claude.watch.transcript
    assert transcript is not None
    assert not transcript.is_resumable
    await claude.begin("--help", "clear")
    assert claude.watch.conversation == OTHER, "an id becomes an argument"


@contextlib.asynccontextmanager
async def permission_hook(claude: Claude, tool: str, **tool_input: Any) -> AsyncIterator[Process]:
    """Run claude's hook for a permission request, as claude runs it."""
    settings = orjson.loads((claude.run_dir / "settings.json").read_bytes())
    (hook,) = settings["hooks"]["PermissionRequest"][0]["hooks"]
    event = {"hook_event_name": "PermissionRequest", "tool_name": tool, "tool_input": tool_input}
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", hook["command"], stdin=PIPE, stdout=PIPE
    )
    try:
        assert process.stdin is not None
        process.stdin.write(orjson.dumps({**event, "prompt_id": "p1"}))
        process.stdin.close()

        async def is_waiting() -> bool:
            return await claude.poll() == "waiting"

        await eventually(is_waiting)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def decision_of(process: Process) -> Any:
    assert process.stdout is not None
    async with asyncio.timeout(HANG_S):
        output = await process.stdout.read()
        assert await process.wait() == 0
    return orjson.loads(output)["hookSpecificOutput"]["decision"] if output else None


async def test_a_permission_request_of_claude_is_answered_through_its_hook(
    claude_of: Claude,
) -> None:
    await claude_of.begin()
    async with permission_hook(claude_of, "Bash", command="touch x", description="a file") as hook:
        claude_of.new_watch()  # of a restarted gateway
        await claude_of.poll()
        (request,) = claude_of.watch.requests
        assert request.intent is not None
        assert request.intent.command == "touch x"
        await eventually(lambda: answers(claude_of, request.id, Decision("allow")))
        assert await decision_of(hook) == {"behavior": "allow"}
        assert claude_of.watch.requests == []
    await claude_of.run_hook("Stop")
    async with permission_hook(claude_of, "Write", file_path="/w/x", content="x") as hook:
        (request,) = claude_of.watch.requests
        denial = Decision("deny", "Alice denied this.")
        await eventually(lambda: answers(claude_of, request.id, denial))
        assert await decision_of(hook) == {"behavior": "deny", "message": "Alice denied this."}


async def answers(claude: Claude, request: str, decision: Decision) -> bool:
    """Answer as soon as the hook reads."""
    with contextlib.suppress(OSError):
        await claude.watch.answer(request, decision)
        return True
    return False


async def test_a_hook_ends_when_its_dialog_is_answered_with_keys(claude_of: Claude) -> None:
    await claude_of.begin()
    async with permission_hook(claude_of, "Bash", command="touch x") as hook:
        claude_of.watch.title(IDLE_TITLE)
        assert len(claude_of.watch.requests) == 1
        claude_of.watch.title(BUSY_TITLE)

        async def has_ended() -> bool:
            await claude_of.poll()
            return hook.returncode is not None

        await eventually(has_ended)
        assert await decision_of(hook) is None


async def test_questions_and_plans_are_answered_only_with_keys(claude_of: Claude) -> None:
    await claude_of.begin()
    questions = [{"question": "Which one?"}]
    async with permission_hook(claude_of, "AskUserQuestion", questions=questions):
        assert claude_of.watch.requests == []
        assert claude_of.watch.waiting_for == "Which one?"
    async with permission_hook(claude_of, "ExitPlanMode", plan="all of it"):
        assert claude_of.watch.requests == []


async def test_changes_of_claudes_activity_are_reported_at_once(claude_of: Claude) -> None:
    async with watching(claude_of):
        first = claude_of.changes
        with (claude_of.run_dir / "notes").open("ab") as file:
            file.write(b'{"hook_event_name":"UserPromptSubmit"}\n')
        await eventually(lambda: claude_of.changes > first and claude_of.watch.activity == "busy")
        before = claude_of.changes
        claude_of.watch.title(BUSY_TITLE)
        assert claude_of.changes == before, "it was busy already"


@contextlib.asynccontextmanager
async def watching(claude: Claude) -> AsyncIterator[None]:
    def changed() -> None:
        claude.changes += 1

    task = asyncio.create_task(claude.watch.run(changed))
    await eventually(lambda: claude.changes)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
