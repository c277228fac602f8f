"""What works for a session, as its agent is told it in the line of a turn."""

from typing import Any

import orjson

from remoteclaw.bridge.task_lines import MAX_BYTES, MAX_ITEMS, work_of
from remoteclaw.bridge.turn_prompt import build_turn_prompt
from remoteclaw.messages import Entry, SessionKey, Turn, Work
from tests.support.hostile import HOSTILE
from tests.support.stack import message

SESSION = SessionKey("main", "telegram", "default", "42", "alice", task="a1")
#: 2026-11-18 00:58 UTC.
SINCE_MS = 1_795_049_880_000


def item(**fields: Any) -> Work:
    about: dict[str, Any] = {
        "session": SESSION,
        "parent": "0" * 32,
        "run": "a1-1-0",
        "kind": "task",
        "state": "running",
        "since_ms": SINCE_MS,
        "age_ms": 4 * 60_000,
    }
    return Work(**about | fields)


def prompt(**more: Any) -> str:
    return build_turn_prompt(Turn(SESSION, (Entry("1-0", message("hello", id="m1")),)), **more)


def test_what_works_is_told_in_the_turns_line() -> None:
    links = item(
        label="links", tool="Bash", argument="pytest -q", said="Two fail.", progress="3 of 7"
    )
    branch = item(run="b2-2-0", kind="branch", state="waiting", age_ms=5_000)

    told = work_of([links, branch, item(state="done")], zone="Europe/Berlin")

    assert told == [
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
    line, _, text = prompt(work=told).partition("\n\n")
    assert orjson.loads(line.removeprefix("[remoteclaw ").removesuffix("]"))["work"] == told
    assert text == "hello"


def test_a_turn_for_which_nothing_works_is_as_it_was() -> None:
    """Not a byte more, also after what has worked has ended."""
    assert prompt(work=work_of([item(state="done")])) == prompt()
    assert '"work"' not in prompt()


def test_what_works_is_told_within_limits() -> None:
    many = [item(run=f"r{number}") for number in range(25)]
    long = [item(said="ä" * 200, progress="ö" * 256, argument="ü" * 100) for _ in range(9)]

    assert work_of(many)[MAX_ITEMS:] == [{"more": 15}]
    *shown, more = work_of(long)
    assert len(orjson.dumps([*shown, more])) <= MAX_BYTES
    assert more == {"more": 9 - len(shown)}
    assert len(shown) > 1


def test_what_it_says_can_not_pretend_to_be_a_part_of_the_prompt() -> None:
    for words in HOSTILE:
        told = work_of([item(label=words, tool=words, argument=words, said=words, progress=words)])
        line, _, rest = prompt(work=told).partition("\n\n")
        header = orjson.loads(line.removeprefix("[remoteclaw ").removesuffix("]"))

        assert header["work"] == told
        assert rest == "hello"
