"""Which messages are commands."""

import pytest

from remoteclaw.commands.parse import Command, parse, unescaped
from tests.support.rows import for_each


@for_each(
    ("text", "command"),
    [
        ("/status", Command("status")),
        ("  /STATUS  ", Command("status")),
        ("/new fix the tests", Command("new", "fix the tests")),
        ("/new\nfix\nit", Command("new", "fix\nit")),
        ("/new@its_bot now", Command("new", "now")),
        ("/unknown-one", Command("unknown-one")),
        ("stop", Command("stop")),
        ("Stop!", Command("stop")),
        (" stop. ", Command("stop")),
    ],
)
def test_a_command(text: str, command: Command) -> None:
    assert parse(text) == command


@for_each(
    "text",
    [
        "",
        "/",
        "//new",
        "/ new",
        "/etc/hosts is wrong",
        "/1",
        "say /new",
        "> /new",
        "```\n/new\n```",
        "stop it",
        "don't stop",
        "full stop",
        "/" + "x" * 33,
        "/new@not-a-bot",
    ],
)
def test_no_command(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "sent"),
    [("//new", "/new"), (" //x y", " /x y"), ("///x", "//x"), ("a //b", "a //b"), ("/x", "/x")],
)
def test_two_slashes_are_one_for_the_agent(text: str, sent: str) -> None:
    assert unescaped(text) == sent
