"""Claude's own program in a terminal: how it is started, and what it says of itself."""

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
from remoteclaw.runtimes.claude import ClaudeRuntime
from remoteclaw.runtimes.claude_terminal import ClaudeTerminal, ClaudeWatch
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
WORKS, RESTS = "⠂ a title", "✳ a title"


def launched(spec: AgentSpec, run_dir: Path, *, id_: str | None = ID, prompt: str = "") -> Launch:
    run_dir.mkdir(exist_ok=True)
    return ClaudeTerminal().launch(spec, session_id=id_, prompt=prompt, run_dir=run_dir)


# -- the start ------------------------------------------------------------------------------------


def test_secrets_and_instructions_are_in_files_of_this_user_alone(directory: Path) -> None:
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


def test_a_terminal_is_started_as_turns_are(directory: Path) -> None:
    spec = replace(SPEC, model="haiku", inherit_mcp=False, trust_workspace=True)
    turn = ClaudeRuntime().launch(spec, session_id=ID, fork=False, run_dir=directory / "run")
    terminal = launched(spec, directory / "run")

    both = set(turn.argv) & set(terminal.argv)
    assert {"--strict-mcp-config", "--setting-sources=user,project,local", "haiku"} < both
    assert {f"--resume={ID}", turn.argv[-1]} < both, "what is allowed is the last option"
    assert terminal.env == turn.env


@pytest.mark.parametrize(
    ("permissions", "mode"),
    [("ask", "default"), ("edits", "acceptEdits"), ("auto", "acceptEdits"), ("deny", "dontAsk")],
)
def test_its_permissions_are_those_of_the_agent(
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


def test_a_hook_that_can_not_write_blocks_nothing(directory: Path) -> None:
    """Status 2, as of a shell that can't open a file, refuses a prompt or a tool."""
    argv = launched(SPEC, directory / "run").argv
    settings = orjson.loads(Path(argv[argv.index("--settings") + 1]).read_bytes())
    shutil.rmtree(directory / "run")

    for ((hook,),) in ([each["hooks"] for each in of] for of in settings["hooks"].values()):
        ran = subprocess.run(["/bin/sh", "-c", hook["command"]], input=b"{}", check=False)
        assert ran.returncode == 0


# -- what it does ---------------------------------------------------------------------------------


class Claude:
    """What a claude says, without one: its hooks' notes, its records, its title."""

    def __init__(self, directory: Path, *, prompt: str = "") -> None:
        self.run_dir, self.home = directory / "run", directory
        launched(SPEC, self.run_dir, prompt=prompt)
        self.changes = 0
        self.new_watch()

    def new_watch(self) -> None:
        """Begin to watch as a gateway does that is restarted."""
        self.watch: ClaudeWatch = ClaudeTerminal().watch(
            run_dir=self.run_dir, workspace="/w", env={"HOME": str(self.home)}, conversation=ID
        )

    def transcript(self, id_: str = ID) -> Path:
        path = self.home / ".claude" / "projects" / "-w" / f"{id_}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    async def hear(self, event: str, prompt: str = "p1", **more: Any) -> str:
        """Have a hook tell of an event; return what is known then."""
        note = {"hook_event_name": event, "prompt_id": prompt, **more}
        with (self.run_dir / "notes").open("ab") as file:
            file.write(orjson.dumps(note) + b"\n\n")
        return await self.look()

    async def begin(self, id_: str = ID, source: str = "startup") -> str:
        path = str(self.transcript(id_))
        return await self.hear(
            "SessionStart", "", source=source, session_id=id_, transcript_path=path
        )

    async def record(self, *, prompt: str = "p1", kind: str = "user", said: str) -> str:
        record = {
            "type": kind,
            "promptId": prompt,
            "uuid": "u",
            "message": {"content": [{"type": "text", "text": said}]},
        }
        with self.transcript().open("ab") as file:
            file.write(orjson.dumps(record) + b"\n")
        return await self.look()

    async def look(self) -> str:
        await self.watch.look()
        return self.watch.activity


STOPPED = "[Request interrupted by user for tool use]"


@pytest.fixture
def claude_of(directory: Path) -> Claude:
    return Claude(directory)


async def test_nothing_heard_is_unknown_and_no_title_says_that_it_is_idle(
    claude_of: Claude,
) -> None:
    """A dialog of its start has no hook; to type then would answer it."""
    assert await claude_of.look() == "unknown"
    assert not claude_of.watch.is_ready
    claude_of.watch.title(RESTS)
    assert await claude_of.look() == "unknown"
    claude_of.watch.title(WORKS)
    assert await claude_of.look() == "busy"


async def test_a_turn_is_busy_from_its_prompt_to_its_stop(claude_of: Claude) -> None:
    assert await claude_of.begin() == "idle"
    assert claude_of.watch.is_ready
    for event in ("UserPromptSubmit", "PreToolUse", "PostToolUse"):
        assert await claude_of.hear(event) == "busy"
    claude_of.watch.title(WORKS)
    assert await claude_of.hear("Stop") == "busy", "its title says that it works"
    claude_of.watch.title(RESTS)
    assert claude_of.watch.activity == "idle"
    await claude_of.hear("UserPromptSubmit")
    assert await claude_of.hear("StopFailure") == "idle"


async def test_it_is_not_idle_before_it_has_taken_up_the_prompt_of_its_start(
    directory: Path,
) -> None:
    claude = Claude(directory, prompt="go on")

    assert await claude.begin() == "unknown"
    assert claude.watch.is_ready
    assert await claude.hear("UserPromptSubmit") == "busy"
    await claude.hear("Stop")
    assert await claude.begin(OTHER, "clear") == "idle"


async def test_a_dialog_waits_until_it_is_answered(claude_of: Claude) -> None:
    claude = claude_of
    await claude.begin()
    await claude.hear("UserPromptSubmit")
    claude.watch.title(RESTS)
    asked: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "rm  -r\nx"}}
    assert await claude.hear("PermissionRequest", **asked) == "waiting"
    assert claude.watch.waiting_for == "Bash: rm -r x"

    assert await claude.hear("PostToolUse") == "waiting", "of another tool"
    claude.watch.typed()
    assert await claude.look() == "waiting", "any key may have been pressed"
    claude.watch.title(WORKS)
    assert await claude.look() == "busy"
    assert claude.watch.waiting_for == ""


async def test_a_notification_of_a_dialog_is_enough(claude_of: Claude) -> None:
    await claude_of.hear("UserPromptSubmit")

    asked = await claude_of.hear("Notification", notification_type="idle_prompt", message="?")
    assert asked == "busy"
    asked = await claude_of.hear("Notification", notification_type="permission_prompt", message="?")
    assert (asked, claude_of.watch.waiting_for) == ("waiting", "?")
    assert await claude_of.hear("PostToolUse") == "busy"


async def test_who_stopped_it_is_told_by_its_record_and_its_title_together(
    claude_of: Claude,
) -> None:
    """No hook tells of Esc, and the title of a dialog is that of idleness."""
    claude = claude_of
    await claude.hear("UserPromptSubmit")
    await claude.hear("PermissionRequest")
    claude.watch.title(RESTS)
    assert await claude.record(prompt="p0", said=STOPPED) == "waiting", "an earlier one"
    assert await claude.record(said=STOPPED) == "idle"
    claude.watch.title(WORKS)
    assert claude.watch.activity != "idle"
    claude.watch.title(RESTS)
    assert await claude.record(kind="assistant", said="but then") != "idle"
    assert await claude.record(said=f"He said: {STOPPED}") != "idle"


async def test_what_is_typed_while_idle_may_open_a_menu_also_for_the_next_gateway(
    claude_of: Claude,
) -> None:
    await claude_of.begin()
    claude_of.watch.typed()
    assert claude_of.watch.activity == "unknown"

    claude_of.new_watch()
    assert await claude_of.look() == "unknown"
    assert claude_of.watch.is_ready
    await claude_of.hear("UserPromptSubmit")
    assert await claude_of.hear("Stop") == "idle"


async def test_compacting_ends_no_turn_and_leaves_it_idle_between_turns(claude_of: Claude) -> None:
    await claude_of.begin()
    await claude_of.hear("UserPromptSubmit")
    assert await claude_of.begin(source="compact") == "busy"
    await claude_of.hear("Stop")
    claude_of.watch.typed()
    claude_of.watch.title(WORKS)
    assert await claude_of.begin(source="compact") == "busy"
    claude_of.watch.title(RESTS)
    assert await claude_of.look() == "idle"


async def test_a_line_that_can_not_be_read_makes_it_unknown(claude_of: Claude) -> None:
    await claude_of.begin()
    with (claude_of.run_dir / "notes").open("ab") as file:
        file.write(b'{"hook_event_name":"PermissionReq{"hook_\n')

    assert await claude_of.look() == "unknown"


async def test_clear_moves_to_another_conversation(claude_of: Claude) -> None:
    claude = claude_of
    await claude.begin()
    await claude.record(said="before")
    await claude.hear("SessionEnd", reason="clear")
    await claude.begin(OTHER, "clear")

    assert claude.watch.conversation == OTHER
    transcript = claude.watch.transcript
    assert transcript is not None
    assert not transcript.is_there
    await claude.begin("--help", "clear")
    assert claude.watch.conversation == OTHER, "it becomes an argument"


@contextlib.asynccontextmanager
async def asking(claude: Claude, tool: str, **given: Any) -> AsyncIterator[Process]:
    """Have claude's hook told of a request, as claude runs it."""
    settings = orjson.loads((claude.run_dir / "settings.json").read_bytes())
    (hook,) = settings["hooks"]["PermissionRequest"][0]["hooks"]
    about = {"hook_event_name": "PermissionRequest", "tool_name": tool, "tool_input": given}
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", hook["command"], stdin=PIPE, stdout=PIPE
    )
    try:
        assert process.stdin is not None
        process.stdin.write(orjson.dumps({**about, "prompt_id": "p1"}))
        process.stdin.close()

        async def is_told() -> bool:
            return await claude.look() == "waiting"

        await eventually(is_told)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def said(process: Process) -> Any:
    assert process.stdout is not None
    async with asyncio.timeout(HANG_S):
        told = await process.stdout.read()
        assert await process.wait() == 0
    return orjson.loads(told)["hookSpecificOutput"]["decision"] if told else None


async def test_what_claude_asks_is_answered_by_its_hook(claude_of: Claude) -> None:
    await claude_of.begin()
    async with asking(claude_of, "Bash", command="touch x", description="a file") as hook:
        claude_of.new_watch()  # of a gateway that was started again
        await claude_of.look()
        (request,) = claude_of.watch.requests
        assert request.intent is not None
        assert request.intent.command == "touch x"
        await eventually(lambda: answers(claude_of, request.id, Decision("allow")))
        assert await said(hook) == {"behavior": "allow"}
        assert claude_of.watch.requests == []
    await claude_of.hear("Stop")
    async with asking(claude_of, "Write", file_path="/w/x", content="x") as hook:
        (request,) = claude_of.watch.requests
        denial = Decision("deny", "Alice denied this.")
        await eventually(lambda: answers(claude_of, request.id, denial))
        assert await said(hook) == {"behavior": "deny", "message": "Alice denied this."}


async def answers(claude: Claude, request: str, decision: Decision) -> bool:
    """Answer as soon as the hook reads."""
    with contextlib.suppress(OSError):
        await claude.watch.answer(request, decision)
        return True
    return False


async def test_a_hook_is_let_go_whose_dialog_was_answered_by_keys(claude_of: Claude) -> None:
    await claude_of.begin()
    async with asking(claude_of, "Bash", command="touch x") as hook:
        claude_of.watch.title(RESTS)
        assert len(claude_of.watch.requests) == 1
        claude_of.watch.title(WORKS)

        async def is_let_go() -> bool:
            await claude_of.look()
            return hook.returncode is not None

        await eventually(is_let_go)
        assert await said(hook) is None


async def test_questions_and_plans_are_answered_by_keys_alone(claude_of: Claude) -> None:
    await claude_of.begin()
    questions = [{"question": "Which one?"}]
    async with asking(claude_of, "AskUserQuestion", questions=questions):
        assert claude_of.watch.requests == []
        assert claude_of.watch.waiting_for == "Which one?"
    async with asking(claude_of, "ExitPlanMode", plan="all of it"):
        assert claude_of.watch.requests == []


async def test_changes_are_told_as_they_come(claude_of: Claude) -> None:
    async with following(claude_of):
        first = claude_of.changes
        with (claude_of.run_dir / "notes").open("ab") as file:
            file.write(b'{"hook_event_name":"UserPromptSubmit"}\n')
        await eventually(lambda: claude_of.changes > first and claude_of.watch.activity == "busy")
        before = claude_of.changes
        claude_of.watch.title(WORKS)
        assert claude_of.changes == before, "it is busy as before"


@contextlib.asynccontextmanager
async def following(claude: Claude) -> AsyncIterator[None]:
    def changed() -> None:
        claude.changes += 1

    task = asyncio.create_task(claude.watch.run(changed))
    await eventually(lambda: claude.changes)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
