"""Linear time in all code that parses texts of people, models and CLIs."""

import contextlib
from collections.abc import Callable

import pytest

from remoteclaw.bridge.activity import label_of
from remoteclaw.bridge.chunks import Chunker
from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.bridge.untrusted import clean, clean_name
from remoteclaw.errors import classify_error
from remoteclaw.events import ToolUseEvent
from remoteclaw.fleet.turns.commands import immediate_effect
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import file_name
from remoteclaw.runtimes.gemini.runtime import GeminiRuntime
from remoteclaw.runtimes.model_wait import retry_at_ms
from remoteclaw.runtimes.opencode.runtime import OpencodeRuntime
from remoteclaw.runtimes.wire import commented_json
from remoteclaw.session.record import digest
from tests.support.growth import is_linear
from tests.support.stack import message

#: Texts at which a pattern starts a match or backtracks: runs, halves of pairs, searched words.
PIECES = (
    *("a", " ", "\n", "-", "|", "*", "`", "1", "\\", '"', '\\"', "/*", "//", "[[", "a=", 'a="'),
    *("NO_REPLY ", "```\n", " ```", " \u0301", "| a |\n", "|-|\n", "image", "model ", "usage "),
    *("retry in 1", "resets 1", "Attempt 1 failed ", "\u200d", "\U0001f468\u200d"),
)


def cut(text: str, limit: int) -> None:
    chunker = Chunker(limit, "utf16")
    chunker.feed(text)
    chunker.finish()


def settings(text: str) -> None:
    with contextlib.suppress(ValueError):
        commented_json(text)


def label(text: str) -> None:
    event = ToolUseEvent("shell", "1", {"command": f"bash -lc '{text}"})
    label_of(event, "arguments", Scrubber(["swordfish"]), "/w")


READERS: dict[str, Callable[[str], object]] = {
    "chunks": lambda text: cut(text, 200),
    "one chunk": lambda text: cut(text, 1_000_000),
    "tool": label,
    "failure": classify_error,
    "limit": lambda text: retry_at_ms(f"retry in {text}"),
    "gemini's log": GeminiRuntime().read_log,
    "settings": settings,
    "opencode's log": OpencodeRuntime().read_log,
    "command": lambda text: immediate_effect(message(f"/{text}")),
    "data": clean,
    "name": clean_name,
    "file": file_name,
    "line": one_line,
    "record": lambda text: digest(f'{{"role":"user","from":"a","text":"{text}'.encode()),
}


@pytest.mark.parametrize("reader", READERS)
def test_no_text_takes_more_than_linear_time(reader: str) -> None:
    read = READERS[reader]
    for piece in PIECES:

        def attack(size: int, piece: str = piece) -> None:
            read(piece * (size // len(piece)) + "x")

        assert is_linear(attack), piece


@pytest.mark.parametrize("digits", [400, 5_000])
def test_very_long_numbers_are_parsed_without_an_error(digits: int) -> None:
    number = "9" * digits

    assert retry_at_ms(f"try again in {number} hours") is None
    for line in (f"Retrying after {number}ms", f"Attempt {number} failed. Retrying with backoff"):
        assert GeminiRuntime().read_log(line) is None
    line = f"Attempt 1 failed with status {number}. Retrying with backoff"
    assert GeminiRuntime().read_log(line) is not None
