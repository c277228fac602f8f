"""Which messages are commands of the chat, and which are for the agent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.config.model import QueueConfig
from remoteclaw.fleet.turns.commands import Command, command_of
from remoteclaw.messages import Entry
from remoteclaw.session.queue import next_batch
from tests.support.rows import for_each
from tests.support.stack import message


def command(text: str, **fields: object) -> Command | None:
    return command_of(Entry("1-0", message(text, **fields)))


@for_each(
    ("text", "word", "rest"),
    [
        ("/new", "/new", ""),
        ("/NEW", "/new", ""),
        ("/Reset", "/reset", ""),
        (" /new", "/new", ""),
        ("/new\n", "/new", ""),
        ("\n\t/new \r\n", "/new", ""),
        ("/new fix the tests", "/new", "fix the tests"),
        ("/new\nfix\n\n  the tests\n", "/new", "fix\n\n  the tests"),
        ("/new\u00a0fix", "/new", "fix"),
        ("/new /reset", "/new", "/reset"),
        ("/new @bob look", "/new", "@bob look"),
        ("/new@claw_bot", "/new", ""),
        ("/NEW@Claw_Bot2 fix", "/new", "fix"),
    ],
)
def test_text_that_is_a_command(text: str, word: str, rest: str) -> None:
    assert command(text) == Command("reset", word, rest)


@for_each(
    "text",
    [
        "/newish",
        "/new\u200b",
        "\u200b/new",
        "\ufeff/new",
        "\u200e/new",
        "/\u200bnew",
        "/new!",
        "/new,",
        "/new/",
        "/new:",
        "//new",
        "/ new",
        "new",
        "\\/new",
        "\uff0fnew",
        "/ne\u0301w",
        "/n\u0435w",  # a Cyrillic letter
        "`/new`",
        "```\n/new\n```",
        "> /new",
        "- /new",
        '"/new"',
        "Please send /new",
        "fix it\n/new",
        "/new@",
        "/new@a@b",
        "/new@bot!",
        "/new@b\u043et",
        "/new@" + "b" * 65,
        "/new" + "n" * 500_000,
        "@bot /new",
        "@/new",
        "/",
        "!",
        "/stop now",
    ],
)
def test_text_that_is_no_command(text: str) -> None:
    assert command(text) is None


def test_a_file_can_have_a_command_as_its_caption() -> None:
    file = {"name": "a.txt", "mime_type": "text/plain", "size": 1, "blob": "0" * 32}

    found = command("/new", attachments=(file,))

    assert found is not None
    assert not found.is_alone
    assert command("", attachments=(file,)) is None


@pytest.mark.parametrize("origin", ["session", "cron"])
def test_only_people_give_commands(origin: str) -> None:
    entry = Entry("1-0", message("/new"), origin=origin)  # type: ignore[arg-type]

    assert command_of(entry) is None


@given(st.text(min_size=1).filter(str.strip))
def test_no_other_text_is_mistaken_for_a_command(text: str) -> None:
    found = command(text)

    if found is not None:
        first = text.split()[0].casefold()
        assert first.partition("@")[0] in ("/new", "/reset", "/stop")
        assert found.rest in message(text).text
    assert command(f"x{text}") is None
    with_arguments = command(f"/new {text}")
    assert with_arguments is not None
    assert with_arguments.rest == message(text).text.strip()


# -- order ----------------------------------------------------------------------------------------


TEXTS = st.sampled_from(["/new", "/reset", "/new x", "a", "b"])
DELIVERS = st.sampled_from(["channel", "channel", "channel", "caller"])


@given(
    waiting=st.lists(st.tuples(TEXTS, DELIVERS), min_size=1, max_size=12),
    mode=st.sampled_from(["collect", "followup", "steer", "interrupt"]),
    cap=st.integers(0, 4),
    drop=st.sampled_from(["old", "new", "summarize"]),
    busy_since=st.sampled_from([None, 0, 5]),
)
def test_no_command_is_lost_or_overtaken(
    waiting: list[tuple[str, Any]], mode: Any, cap: int, drop: Any, busy_since: int | None
) -> None:
    """This holds for any waiting entries and any queue settings, until no entry is left."""
    queue = QueueConfig(mode=mode, cap=cap, drop=drop)
    left = [
        Entry(f"{number}-0", message(text), deliver=deliver)
        for number, (text, deliver) in enumerate(waiting)
    ]

    while left:
        plan = next_batch(left, queue, busy_since_ms=busy_since)
        batch = [entry for entry in left if entry.id in plan.batch]
        before = left[: left.index(batch[0])]
        assert [entry.id for entry in batch] == [*plan.batch]
        commands = [command for entry in batch if (command := command_of(entry))]
        # A command is alone in its batch, or repeated. Only one with arguments can be dropped.
        assert len(commands) in (0, len(batch))
        assert len(commands) <= 1 or all(command.is_alone for command in commands)
        if commands:
            assert before == []
            assert not plan.left_out
            assert not plan.is_dropped or not commands[0].is_alone
        # The entries for the agent came before every waiting command.
        if not plan.is_dropped and not commands:
            assert not any(map(command_of, left[: left.index(batch[-1])]))
        assert set(plan.left_out) < set(plan.batch) or not plan.left_out
        left = [entry for entry in left if entry not in batch]
