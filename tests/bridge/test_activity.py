"""Running tools in live text: their labels, and how long they are shown."""

from typing import Any

import pytest

from remoteclaw.bridge.activity import MAX_ARGUMENT_CHARS, MAX_TOOLS, Activity, label_of
from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.events import ToolActivity, ToolUseEvent
from remoteclaw.messages import tool_label
from tests.support.rows import for_each

SCRUBBER = Scrubber(["swordfish"])


def label(tool: str, shown: str = "arguments", **arguments: Any) -> tuple[str, str]:
    return label_of(ToolUseEvent(tool, "1", arguments), shown, SCRUBBER, "/home/me/work")


@for_each(
    ("tool", "arguments", "argument"),
    [
        # claude
        ("Bash", {"command": "git status", "description": "Look"}, "git status"),
        ("Bash", {"command": "cat <<E\nswordfish\nE"}, "cat <<E [secret] E"),
        ("Read", {"file_path": "/home/me/work/src/a.py", "limit": 5}, "src/a.py"),
        ("Edit", {"file_path": "/etc/hosts", "old_string": "x"}, "/etc/hosts"),
        ("Grep", {"path": "/home/me/work", "pattern": "def main"}, "def main"),
        ("Glob", {"pattern": "**/*.py"}, "**/*.py"),
        (
            "WebFetch",
            {"url": "https://a:b@example.org/", "prompt": "x"},
            "https://[secret]@example.org/",
        ),
        ("WebSearch", {"query": "a question"}, "a question"),
        ("Task", {"description": "Find it", "prompt": "Look everywhere …"}, "Find it"),
        ("TodoWrite", {"todos": [{"content": "x"}]}, ""),
        ("mcp__search__find", {"deep": True, "words": "this"}, "this"),
        # codex
        ("shell", {"command": "/bin/bash -lc 'git status'", "cwd": "/home/me/work"}, "git status"),
        ("shell", {"command": "bash -lc 'half"}, "bash -lc 'half"),
        ("shell", {"command": ["git", "log"]}, "git log"),
        ("apply_patch", {"paths": ["/home/me/work/a.py", "/home/me/work/b.py"]}, "a.py b.py"),
        # gemini and opencode
        ("run_shell_command", {"title": "git status"}, "git status"),
        ("read", {"filePath": "/home/me/work/a.py"}, "a.py"),
        ("Reading a.py", {"title": "Reading a.py"}, ""),
        # odd ones
        ("Bash", {"command": {"a": 1}}, ""),
        ("Bash", {"command": "\x1b[2Jls \u202egpj"}, "[2Jls gpj"),
        ("Bash", {}, ""),
    ],
)
def test_the_label_of_a_tool_has_its_most_informative_argument(
    tool: str, arguments: dict[str, Any], argument: str
) -> None:
    assert label(tool, **arguments) == (tool_label(tool), argument)


def test_a_tool_of_a_server_has_a_name_that_people_can_read() -> None:
    """In every chat, whatever the CLI calls it."""
    for prefix in ("mcp__remoteclaw__", "mcp_remoteclaw_", "remoteclaw_", ""):
        assert label(f"{prefix}message_send")[0] == "message_send"
    assert label("mcp__github__create_issue")[0] == "github/create_issue"
    assert label("mcp__remoteclaws__x")[0] == "remoteclaws/x"


def test_a_long_argument_of_a_tool_is_truncated() -> None:
    _, argument = label("Bash", command="x" * 5000)

    assert (len(argument), argument[-1]) == (MAX_ARGUMENT_CHARS, "…")


@pytest.mark.parametrize(
    ("tool", "name"),
    [("Bash", "Bash"), ("mcp__a__b", "a/b"), ("Run `git push`", "a tool"), ("", "a tool")],
)
def test_the_setting_names_shows_only_the_names_of_tools(tool: str, name: str) -> None:
    """A title, which some agents report instead of a name, is not shown."""
    assert label(tool, "names", command="git status") == (name, "")


class Shown:
    """Collects the activity of a turn, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now_ms = 1000
        self.tools: list[tuple[ToolActivity, ...]] = []
        self.activity = Activity(
            lambda event: (event.tool_name, ""), self.tools.append, now_ms=lambda: self.now_ms
        )

    def begin(self, name: str) -> None:
        self.activity.begin(ToolUseEvent(name, name, {}))

    @property
    def now(self) -> list[tuple[str, float | None]]:
        return [(tool.tool, tool.seconds) for tool in self.tools[-1]]


def test_an_ended_tool_is_shown_until_text_or_another_tool_follows() -> None:
    shown = Shown()
    shown.begin("a")
    assert shown.tools == [(ToolActivity("a", "", 1000),)]
    shown.now_ms += 2500
    shown.activity.end("a")
    assert shown.now == [("a", 2.5)]

    shown.begin("b")
    assert shown.now == [("b", None)]
    shown.activity.end("b")
    shown.activity.clear_ended()
    assert shown.now == []


def test_a_running_tool_stays_visible_after_text() -> None:
    shown = Shown()
    shown.begin("a")
    shown.begin("b")
    shown.activity.end("a")
    shown.activity.clear_ended()

    assert shown.now == [("b", None)]


def test_unchanged_activity_is_not_reported_again() -> None:
    shown = Shown()
    shown.activity.clear_ended()
    shown.activity.end("unknown")
    shown.begin("a")
    shown.activity.end("a")
    shown.activity.end("a")
    shown.activity.clear_ended()
    shown.activity.clear_ended()

    assert len(shown.tools) == 3


def test_only_the_last_of_many_tools_are_shown() -> None:
    shown = Shown()
    for number in range(50):
        shown.begin(str(number))

    assert [name for name, _ in shown.now] == [str(n) for n in range(50 - MAX_TOOLS, 50)]
