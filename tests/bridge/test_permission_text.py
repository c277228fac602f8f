"""The description of an agent's request, as people see it."""

from typing import Any

import pytest

from remoteclaw.bridge.permission_text import (
    MAX_CHOICE_CHARS,
    MAX_FULL_CHARS,
    MAX_SHOWN_CHARS,
    TOO_LONG,
    as_shown,
    place_shown,
    shortened,
)
from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.events import Intent, PermissionEvent, Question

BASH = Intent("Bash", command="make", cwd="/etc")


def description_of(event: PermissionEvent) -> str:
    return as_shown(event, Scrubber()).description


@pytest.mark.parametrize(
    ("given", "intent", "shown"),
    [
        ({"command": "make"}, Intent("Bash", command="make"), "make"),
        ({"command": "make", "cwd": "/etc"}, BASH, "make\n▸ in /etc"),
        (
            {"command": "make\n▸ in /"},
            Intent("Bash", "make\n▸ in /", cwd="/etc"),
            "make⏎\n\\u25b8 in /\n▸ in /etc",
        ),
        (
            {"command": "make"},
            Intent("Bash", command="make", cwd=None),
            "make\n▸ in a directory that the agent does not tell",
        ),
        ({"command": "a\u202eb\U000e0041"}, None, "a\\u202eb\\u{e0041}"),
        (
            {"command": "make", "dangerouslyDisableSandbox": True},
            Intent("Bash", command="make"),
            'make\n▸ with {\n  "dangerouslyDisableSandbox": true\n}',
        ),
        (
            {"title": "make", "kind": "x"},
            Intent("Bash", "make"),
            'make\n▸ with {\n  "kind": "x"\n}',
        ),
        (
            {"file_path": "/x", "content": "new"},
            Intent("Edit", paths=("/x",)),
            "/x\n@@ -0,0 +1 @@\n+new",
        ),
        (
            {"file_path": "/x\n@@ -0,0 +1 @@\n+old", "content": "a\n\tb\u2028c \n"},
            Intent("Edit", paths=("/x",)),
            "/x⏎@@ -0,0 +1 @@⏎+old\n@@ -0,0 +1,2 @@\n+a⏎\n+⇥b\\u2028c␣⏎",
        ),
        (
            {"file_path": "/x", "old_string": "1\n2\n3\n4\n5\n", "new_string": "1\n2\n3\n4\n6"},
            Intent("Edit", paths=("/x",)),
            "/x\n@@ -1,5 +1,5 @@\n 1⏎\n 2⏎\n 3⏎\n 4⏎\n-5⏎\n+6",
        ),
        (
            {"file_path": "/x", "old_string": "a", "new_string": "b", "replace_all": True},
            Intent("Edit", paths=("/x",)),
            "/x\n@@ -1 +1 @@\n-a\n+b\n▸ everywhere in it",
        ),
        (
            {
                "changes": [
                    {"path": "/x", "kind": "add", "diff": "new\n▸ /y"},
                    {"path": "/y", "kind": "add", "diff": "new\r\n"},
                ]
            },
            Intent("Edit", paths=("/x", "/y")),
            '▸ /x {"kind": "add"}\nnew⏎\n\\u25b8 /y\n▸ /y {"kind": "add"}\nnew\\u000d⏎',
        ),
        (
            {"url": "https://user:word@аpple.com/?q=\u200b", "prompt": "x\ny\ud800"},
            Intent("WebFetch"),
            '{\n  "url": "https://user:word@\\u0430pple.com/?q=\\u200b",\n'
            '  "prompt": "x\\ny\\ud800"\n}',
        ),
        (
            {"size": 2**70, "text": "\\u202e \u202e [secret]" + " " * 99},
            Intent("mcp__any__tool"),
            '{\n  "size": 1180591620717411303424,\n'
            '  "text": "\\\\u202e \\u202e \\u005bsecret][␣×99]"\n}',
        ),
    ],
)
def test_the_description_of_a_request_shows_all_that_it_would_do(
    given: dict[str, Any], intent: Intent | None, shown: str
) -> None:
    event = PermissionEvent("1", "tool", given, intent=intent, workspace="/work")

    assert description_of(event) == shown


@pytest.mark.parametrize(
    ("plan", "shown"),
    [(" Look\u202e,\ndo\n", "Look\\u202e,\ndo"), (" ", "(It has written no plan.)")],
)
def test_a_plan_is_shown_as_text(plan: str, shown: str) -> None:
    event = PermissionEvent("1", "ExitPlanMode", {"planFilePath": "/p"}, plan=plan)

    assert description_of(event) == shown


def test_a_question_and_its_choices_hide_nothing() -> None:
    choice = "Yes\u200b\n2. No" + " " * 99 + "; and delete it"
    question = Question("Go\u202e on?\n1. Yes", header="A\nB", choices=((choice, "x" * 999),))

    (shown,) = as_shown(
        PermissionEvent("1", "Ask", {}, questions=(question,)), Scrubber()
    ).questions

    assert (shown.text, shown.header) == ("Go\\u202e on?\n1. Yes", "A⏎B")
    ((label, meaning),) = shown.choices
    assert label == "Yes\\u200b⏎2. No[␣×99]; and delete it"
    assert meaning == "x" * MAX_CHOICE_CHARS + " …"


def test_a_question_that_is_too_long_can_only_be_left_open() -> None:
    event = PermissionEvent("1", "Ask", {}, questions=(Question("x" * 3001),))

    assert as_shown(event, Scrubber()).incomplete == TOO_LONG


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
    assert "evil" in description_of(PermissionEvent("1", "mcp__any__tool", given))


def request_to_write(content: str) -> PermissionEvent:
    event = PermissionEvent("1", "Write", {"file_path": "/x", "content": content})
    return as_shown(event, Scrubber(["a-password"]))


def test_the_full_text_of_a_truncated_description_is_kept() -> None:
    assert request_to_write("short").full_description == ""
    long = request_to_write("begin\n" + "a line\n" * 500 + "a-password \u202e\n" + "a line\n" * 500)
    assert "characters …" in long.description
    assert long.full_description.count("+a line⏎\n") == 999
    assert "+[secret] \\u202e⏎\n" in long.full_description
    assert long.incomplete == ""


def test_an_action_that_not_even_a_file_shows_can_only_be_denied() -> None:
    assert request_to_write("x" * (MAX_FULL_CHARS - 100)).incomplete == ""
    assert request_to_write("x" * MAX_FULL_CHARS).incomplete == TOO_LONG


def test_a_shortened_text_has_no_half_of_an_escape() -> None:
    for offset in range(12):
        text = "x" * offset + "\\u{e0041}" * 1000 + "[␣×400]" * 1000
        shown = shortened(text).text

        assert len(shown) <= MAX_SHOWN_CHARS + 100
        begin, note, end = shown.split("\n")
        assert begin.endswith("\\u{e0041}")
        assert note.startswith("▸ ")
        assert end.startswith("[␣×400]")


def test_a_directory_is_shown_on_one_line_of_code() -> None:
    assert place_shown("/a`:\n\n```\nls\u202e") == "/a\\u0060:⏎⏎\\u0060\\u0060\\u0060⏎ls\\u202e"


def test_a_change_of_many_lines_is_shown_without_a_diff() -> None:
    old, new = ("\n".join(str(number * step % 150) for number in range(1500)) for step in (1, 7))
    given = {"file_path": "/x", "old_string": old, "new_string": new}

    full_text = as_shown(PermissionEvent("1", "Edit", given), Scrubber()).full_description
    assert full_text.startswith("/x\n-0⏎\n-1⏎\n")
    assert full_text.count("\n+") == 1500


def test_a_long_command_shows_both_ends_and_the_omitted_length() -> None:
    def shown(length: int) -> str:
        command = "begin" + " x" * length + " end"
        return description_of(PermissionEvent("1", "Bash", {"command": command}))

    assert shown(1400) == "begin" + " x" * 1400 + " end"
    assert shown(100_000).startswith("begin x x")
    assert "\n▸ … 197,009 characters …\n" in shown(100_000)
    assert shown(100_000).endswith("x x end")
