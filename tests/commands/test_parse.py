"""Parsing of messages as commands."""

import pytest

from remoteclaw.commands.parse import ParsedCommand, is_plain_command, parse, unescaped
from tests.support.rows import for_each


@for_each(
    ("text", "command"),
    [
        ("/status", ParsedCommand("status")),
        ("  /STATUS  ", ParsedCommand("status")),
        ("/new fix the tests", ParsedCommand("new", "fix the tests")),
        ("/new\nfix\nit", ParsedCommand("new", "fix\nit")),
        ("/new@its_bot now", ParsedCommand("new", "now")),
        ("/unknown-one", ParsedCommand("unknown-one")),
        ("stop", ParsedCommand("stop")),
        ("Stop!", ParsedCommand("stop")),
        (" stop. ", ParsedCommand("stop")),
        ("!status", ParsedCommand("status")),
        (" !CLEAR now", ParsedCommand("clear", "now")),
    ],
)
def test_a_chat_command_is_parsed(text: str, command: ParsedCommand) -> None:
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
        "!unknown-one",
        "!!status",
        "! status",
        "!status!",
    ],
)
def test_other_text_is_not_parsed_as_a_command(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "sent"),
    [("//new", "/new"), (" //x y", " /x y"), ("///x", "//x"), ("a //b", "a //b"), ("/x", "/x")],
)
def test_two_slashes_become_one_for_the_agent(text: str, sent: str) -> None:
    assert unescaped(text) == sent


@for_each(
    ("text", "is_plain"),
    [
        ("/status", True),
        ("!stop", True),
        (" /clear now", True),
        ("stop", False),
        ("/unknown-one", False),
        ("/status@its_bot", False),
        ("say /status", False),
        ("", False),
    ],
)
def test_a_known_command_that_names_no_bot_is_plain(text: str, is_plain: bool) -> None:
    assert is_plain_command(text) == is_plain
