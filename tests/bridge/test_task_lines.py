"""The list of a session's unfinished tasks in the header of a turn's prompt."""

from typing import Any

import orjson

from remoteclaw.bridge.task_lines import MAX_BYTES, MAX_ITEMS, describe_tasks
from remoteclaw.bridge.turn_prompt import build_turn_prompt
from remoteclaw.messages import Entry, SessionKey, TaskStatus, Turn
from tests.support.hostile import HOSTILE
from tests.support.stack import message

SESSION = SessionKey("main", "telegram", "default", "42", "alice", task="a1")
#: 2026-11-18 00:58 UTC.
SINCE_MS = 1_795_049_880_000


def item(**fields: Any) -> TaskStatus:
    about: dict[str, Any] = {
        "session": SESSION,
        "parent": "0" * 32,
        "run": "a1-1-0",
        "kind": "task",
        "state": "running",
        "since_ms": SINCE_MS,
        "age_ms": 4 * 60_000,
    }
    return TaskStatus(**about | fields)


def prompt(**more: Any) -> str:
    return build_turn_prompt(Turn(SESSION, (Entry("1-0", message("hello", id="m1")),)), **more)


def test_unfinished_tasks_are_in_the_header_of_a_turn() -> None:
    links = item(
        label="links", tool="Bash", argument="pytest -q", last_text="Two fail.", progress="3 of 7"
    )
    branch = item(run="b2-2-0", kind="branch", state="waiting", age_ms=5_000)

    lines = describe_tasks([links, branch, item(state="done")], zone="Europe/Berlin")

    assert lines == [
        {
            "run": "a1-1-0",
            "label": "links",
            "kind": "task",
            "state": "running",
            "since": "01:58 (4 min)",
            "doing": "Bash: pytest -q",
            "said": "Two fail.",
            "progress": "3 of 7",
        },
        {"run": "b2-2-0", "kind": "branch", "state": "waiting", "since": "01:58 (5 s)"},
    ]
    line, _, text = prompt(tasks=lines).partition("\n\n")
    assert orjson.loads(line.removeprefix("[remoteclaw ").removesuffix("]"))["work"] == lines
    assert text == "hello"


def test_ended_tasks_do_not_change_the_prompt() -> None:
    """The prompt has not one byte more than without tasks."""
    assert prompt(tasks=describe_tasks([item(state="done")])) == prompt()
    assert '"work"' not in prompt()


def test_the_list_of_tasks_is_limited_in_length_and_bytes() -> None:
    many = [item(run=f"r{number}") for number in range(25)]
    long = [item(last_text="ä" * 200, progress="ö" * 256, argument="ü" * 100) for _ in range(9)]

    assert describe_tasks(many)[MAX_ITEMS:] == [{"more": 15}]
    *shown, more = describe_tasks(long)
    assert len(orjson.dumps([*shown, more])) <= MAX_BYTES
    assert more == {"more": 9 - len(shown)}
    assert len(shown) > 1


def test_text_of_a_task_cannot_break_out_of_the_header() -> None:
    for text in HOSTILE:
        lines = describe_tasks(
            [item(label=text, tool=text, argument=text, last_text=text, progress=text)]
        )
        line, _, body = prompt(tasks=lines).partition("\n\n")
        header = orjson.loads(line.removeprefix("[remoteclaw ").removesuffix("]"))

        assert header["work"] == lines
        assert body == "hello"
