"""The hook by which claude asks before each use of a tool, and the directories of its commands."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from remoteclaw.events import AgentEvent, Intent, PermissionEvent, TextEvent
from remoteclaw.protocols import Decision
from remoteclaw.runtimes.claude.peer import ClaudePeer
from remoteclaw.runtimes.claude.turn import ClaudeConversation, ClaudeTurn
from tests.support.silent import SilentPipes

PROJECTS = Path("/home/me/.claude/projects")
SESSION = "7a77350b-aaaa-4bbb-8ccc-123456789abc"


class Claude(SilentPipes):
    """Claude's side of a turn: its requests, and the answers that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[dict[str, Any]] = []
        peer = ClaudePeer(self)
        self.turn = ClaudeTurn(self, peer, ClaudeConversation(None), ("remoteclaw",))

    async def write(self, line: bytes) -> None:
        if "response" in (sent := orjson.loads(line)):
            self.answers.append(sent["response"]["response"])

    async def hook(self, call: str, tool: str, mode: str = "default", **given: Any) -> Any:
        """Send the request of the hook before a tool; return its event, or its answer."""
        hook_input = {
            "transcript_path": f"{PROJECTS}/-work/{SESSION}.jsonl",
            "permission_mode": mode,
            "cwd": given.pop("cwd", "/work"),
            **{"tool_name": tool, "tool_use_id": call, "tool_input": given},
        }
        return await self._send(call, {"subtype": "hook_callback", "input": hook_input})

    async def asks(self, call: str, tool: str, **given: Any) -> Any:
        """Send claude's own request, which follows the hook's if a rule demands it."""
        request = {"tool_name": tool, "tool_use_id": call, "input": given}
        return await self._send(f"ask-{call}", {"subtype": "can_use_tool", **request})

    async def _send(self, id_: str, request: dict[str, Any]) -> Any:
        message = {"type": "control_request", "request_id": id_, "request": request}
        events = await self.turn.take(message)
        return events[0] if events else self.answers.pop()

    async def ended(self, call: str) -> list[AgentEvent]:
        result = {"type": "tool_result", "tool_use_id": call, "content": "done"}
        return await self.turn.take({"type": "user", "message": {"content": [result]}})


def denial(answer: dict[str, Any]) -> str:
    output = answer["hookSpecificOutput"]
    assert output["permissionDecision"] == "deny"
    return str(output["permissionDecisionReason"])


@pytest.fixture
def claude() -> Claude:
    return Claude()


async def test_what_the_hook_allows_is_not_decided_again(claude: Claude) -> None:
    event = await claude.hook("1", "Bash", command="make", cwd="/work/sub")
    assert event.intent == Intent("Bash", command="make", cwd="/work/sub")

    await claude.turn.answer(event.id, Decision("allow"))

    output = {"hookEventName": "PreToolUse", "permissionDecision": "allow"}
    assert claude.answers.pop() == {"hookSpecificOutput": output}
    allowed = {"behavior": "allow", "updatedInput": {"command": "make"}}
    assert await claude.asks("1", "Bash", command="make") == allowed
    again = await claude.asks("1", "Bash", command="make")  # once
    assert isinstance(again, PermissionEvent)


async def test_other_arguments_than_those_that_were_allowed_are_decided(claude: Claude) -> None:
    """A hook of the user may change the arguments."""
    event = await claude.hook("1", "Bash", command="make")
    await claude.turn.answer(event.id, Decision("allow"))

    changed = await claude.asks("1", "Bash", command="make clean")

    assert changed.intent == Intent("Bash", command="make clean", cwd="/work")


async def test_a_denial_is_given_to_claude_by_the_hook(claude: Claude) -> None:
    event = await claude.hook("1", "Edit", file_path="/etc/hosts")

    await claude.turn.answer(event.id, Decision("deny", "Ada denied this."))

    assert denial(claude.answers.pop()) == "Ada denied this."
    assert claude.turn.result().permission_denials == ()  # until the turn ends


async def test_a_command_without_a_hook_runs_in_an_unknown_directory(claude: Claude) -> None:
    event = await claude.asks("1", "Bash", command="ls")

    assert event.intent == Intent("Bash", command="ls", cwd=None)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("cd sub", "cat ../x"),
        ("cat ../x", "cd sub"),
        ("true && cd sub", "ls"),
        ("ls", "pushd sub"),
        ("ls", "eval c''d sub"),
        ("ls", "x; . ./go"),
    ],
)
async def test_no_command_runs_beside_one_that_changes_the_directory(
    claude: Claude, first: str, second: str
) -> None:
    """It would run in another directory than the one that people were shown."""
    event = await claude.hook("1", "Bash", command=first)
    await claude.turn.answer(event.id, Decision("allow"))

    assert "change the directory" in denial(await claude.hook("2", "Bash", command=second))
    await claude.ended("1")
    assert isinstance(await claude.hook("3", "Bash", command=second), PermissionEvent)


async def test_commands_that_stay_in_their_directory_run_beside_each_other(claude: Claude) -> None:
    for call in ("1", "2", "3"):
        assert isinstance(await claude.hook(call, "Bash", command="ls cd.txt"), PermissionEvent)


@pytest.mark.parametrize(
    ("tool", "mode", "path", "is_own"),
    [
        ("Read", "default", f"{PROJECTS}/-work/{SESSION}/tool-results/x.txt", True),
        ("Read", "default", f"{PROJECTS}/-work/memory/user.md", True),
        ("Read", "default", f"{PROJECTS}/-work/other/tool-results/x.txt", False),
        ("Read", "default", f"{PROJECTS}/-work/{SESSION}.jsonl", False),
        ("Read", "default", f"{PROJECTS}/-work/{SESSION}/tool-results/../../o.jsonl", False),
        ("Read", "default", f"{PROJECTS}/-other/memory/user.md", False),
        ("Write", "default", f"{PROJECTS}/-work/memory/user.md", False),
        ("Write", "plan", "/home/me/.claude/plans/a-plan.md", True),
        ("Write", "default", "/home/me/.claude/plans/a-plan.md", False),
        ("Write", "plan", "/home/me/.claude/plans/../settings.json", False),
    ],
)
async def test_claude_uses_its_own_files_of_the_conversation_alone(
    claude: Claude, tool: str, mode: str, path: str, is_own: bool
) -> None:
    answer = await claude.hook("1", tool, mode, file_path=path)

    assert isinstance(answer, PermissionEvent) != is_own


async def test_tools_about_which_claude_decides_itself_get_no_decision(claude: Claude) -> None:
    for tool in ("TaskCreate", "Agent", "AskUserQuestion", "mcp__remoteclaw__session_status"):
        assert await claude.hook("1", tool) == {}
    for tool in ("mcp__other__tool", "WebFetch", "EnterWorktree"):
        assert isinstance(await claude.hook("1", tool), PermissionEvent)
    of_later_version = await claude.hook("1", "Monitor", command="make")
    assert of_later_version.intent is None


async def test_a_command_of_claude_that_fails_says_why(claude: Claude) -> None:
    """Such as one that runs commands in its text."""
    await claude.turn.command("/review")
    why = "Error: Shell command permission check failed"
    content = f"<local-command-stderr>{why}</local-command-stderr>"
    await claude.turn.take({"type": "user", "message": {"role": "user", "content": content}})

    events = await claude.turn.take({"type": "result", "num_turns": 0, "result": ""})

    assert TextEvent(why) in events
