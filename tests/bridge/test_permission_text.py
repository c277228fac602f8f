"""The description of an agent's request, as people see it."""

from typing import Any

import pytest

from remoteclaw.bridge.permission_text import as_shown, description_of
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
def test_the_description_of_a_request_shows_all_that_it_would_do(
    given: dict[str, Any], intent: Intent | None, shown: str
) -> None:
    event = PermissionEvent("1", "tool", given, intent=intent, workspace="/work")

    assert description_of(event, Scrubber()) == shown


@pytest.mark.parametrize(
    ("plan", "shown"),
    [(" Look\u202e,\ndo\n", "Look\\u202e,\ndo"), (" ", "(It has written no plan.)")],
)
def test_a_plan_is_shown_as_text(plan: str, shown: str) -> None:
    event = PermissionEvent("1", "ExitPlanMode", {"planFilePath": "/p"}, plan=plan)

    assert description_of(event, Scrubber()) == shown


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
    assert "evil" in description_of(PermissionEvent("1", "mcp__any__tool", given), Scrubber())


def test_the_full_text_of_a_truncated_description_is_kept() -> None:
    def request_to_write(content: str) -> PermissionEvent:
        event = PermissionEvent("1", "Write", {"file_path": "/x", "content": content})
        return as_shown(event, Scrubber(["a-password"]))

    assert request_to_write("short").full_description == ""
    long = request_to_write("begin\n" + "a line\n" * 500 + "a-password \u202e\n" + "a line\n" * 500)
    assert "characters …" in long.description
    assert long.full_description.count("+a line\n") == 999
    assert "+[secret] \\u202e\n" in long.full_description


def test_a_change_of_many_lines_is_shown_without_a_diff() -> None:
    old, new = ("\n".join(str(number * step % 150) for number in range(1500)) for step in (1, 7))
    given = {"file_path": "/x", "old_string": old, "new_string": new}

    full_text = as_shown(PermissionEvent("1", "Edit", given), Scrubber()).full_description
    assert full_text.startswith("/x\n-0\n-1\n")
    assert full_text.count("\n+") == 1500


def test_a_long_command_shows_both_ends_and_the_omitted_length() -> None:
    def shown(length: int) -> str:
        command = "begin" + " x" * length + " end"
        return description_of(PermissionEvent("1", "Bash", {"command": command}), Scrubber())

    assert shown(1400) == "begin" + " x" * 1400 + " end"
    assert shown(100_000).startswith("begin x x")
    assert "\n… 197,009 characters …\n" in shown(100_000)
    assert shown(100_000).endswith("x x end")
