"""What an agent asks to do, as people are shown it."""

from typing import Any

import pytest

from remoteclaw.bridge.permission_text import as_shown, wanted
from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.events import Intent, PermissionEvent

BASH = Intent("Bash", command="make", cwd="/etc")


@pytest.mark.parametrize(
    ("given", "intent", "shown"),
    [
        ({"command": "make"}, Intent("Bash", command="make"), "make"),
        ({"command": "make", "cwd": "/etc"}, BASH, "make\n(in /etc)"),
        ({"command": "a\u202eb\U000e0041"}, None, "a\\u202eb\\ue0041"),
        (
            {"command": "make", "dangerouslyDisableSandbox": True},
            Intent("Bash", command="make"),
            'make\n{\n  "dangerouslyDisableSandbox": true\n}',
        ),
        (
            {"file_path": "/x", "content": "new"},
            Intent("Edit", paths=("/x",)),
            "/x\n@@ -0,0 +1 @@\n+new",
        ),
        (
            {"changes": [{"path": "/x", "kind": "add", "diff": "new"}]},
            Intent("Edit", paths=("/x",)),
            '/x {"kind":"add"}\nnew',
        ),
    ],
)
def test_what_is_shown_is_what_would_be_done(
    given: dict[str, Any], intent: Intent | None, shown: str
) -> None:
    event = PermissionEvent("1", "tool", given, intent=intent, where="/work")

    assert wanted(event, Scrubber()) == shown


@pytest.mark.parametrize(
    ("plan", "shown"),
    [(" Look\u202e,\ndo\n", "Look\\u202e,\ndo"), (" ", "(It has written no plan.)")],
)
def test_a_plan_is_shown_as_it_is(plan: str, shown: str) -> None:
    event = PermissionEvent("1", "ExitPlanMode", {"planFilePath": "/p"}, plan=plan)

    assert wanted(event, Scrubber()) == shown


@pytest.mark.parametrize(
    "given",
    [
        {"changes": "evil"},
        {"changes": [], "other": "evil"},
        {"edits": None, "file_path": "/x", "other": "evil"},
        {"file_path": "/x", "content": "", "mode": "evil"},
        {"file_path": "/x", "old_string": "", "new_string": "", "other": "evil"},
        {"command": "ls", "description": "evil"},
    ],
)
def test_no_argument_of_a_tool_is_hidden(given: dict[str, Any]) -> None:
    assert "evil" in wanted(PermissionEvent("1", "mcp__any__tool", given), Scrubber())


def test_what_is_cut_is_whole_beside_it() -> None:
    def asked(content: str) -> PermissionEvent:
        event = PermissionEvent("1", "Write", {"file_path": "/x", "content": content})
        return as_shown(event, Scrubber(["a-password"]))

    assert asked("short").whole == ""
    long = asked("begin\n" + "a line\n" * 500 + "a-password \u202e\n" + "a line\n" * 500)
    assert "characters …" in long.shown
    assert long.whole.count("+a line\n") == 999
    assert "+[secret] \\u202e\n" in long.whole


def test_a_change_of_many_lines_is_not_compared() -> None:
    old, new = ("\n".join(str(number * step % 150) for number in range(1500)) for step in (1, 7))
    given = {"file_path": "/x", "old_string": old, "new_string": new}

    whole = as_shown(PermissionEvent("1", "Edit", given), Scrubber()).whole
    assert whole.startswith("/x\n-0\n-1\n")
    assert whole.count("\n+") == 1500


def test_a_long_command_shows_both_ends_and_how_much_is_between() -> None:
    def shown(length: int) -> str:
        command = "begin" + " x" * length + " end"
        return wanted(PermissionEvent("1", "Bash", {"command": command}), Scrubber())

    assert shown(1400) == "begin" + " x" * 1400 + " end"
    assert shown(100_000).startswith("begin x x")
    assert "\n… 197,009 characters …\n" in shown(100_000)
    assert shown(100_000).endswith("x x end")
