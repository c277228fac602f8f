"""Linear time for everything that reads texts of people, models and CLIs."""

from collections.abc import Callable

import pytest

from remoteclaw.bridge.activity import label_of
from remoteclaw.bridge.chunks import Chunker
from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.bridge.untrusted import clean, clean_name
from remoteclaw.errors import classify_error
from remoteclaw.events import ToolUseEvent
from remoteclaw.fleet.commands import at_once
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import file_name
from remoteclaw.runtimes.gemini import _COMMENTS, GeminiRuntime
from remoteclaw.runtimes.model_wait import retry_at_ms
from remoteclaw.runtimes.opencode import OpencodeRuntime
from remoteclaw.session.record import digest
from tests.support.growth import is_linear
from tests.support.stack import message

#: What a pattern tries at each place, or goes back over: runs, halves of pairs, words it looks for.
PIECES = (
    *("a", " ", "\n", "-", "|", "*", "`", "1", "\\", '"', '\\"', "/*", "//", "[[", "a=", 'a="'),
    *("NO_REPLY ", "```\n", " ```", " \u0301", "| a |\n", "|-|\n", "image", "model ", "usage "),
    *("retry in 1", "resets 1", "Attempt 1 failed ", "\u200d", "\U0001f468\u200d"),
)


def cut(text: str, limit: int) -> None:
    chunker = Chunker(limit, "utf16")
    chunker.feed(text)
    chunker.finish()


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
    "gemini's settings": lambda text: _COMMENTS.sub(r"\1", text),
    "opencode's log": OpencodeRuntime().read_log,
    "command": lambda text: at_once(message(f"/{text}")),
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
def test_no_number_is_too_long(digits: int) -> None:
    number = "9" * digits

    assert retry_at_ms(f"try again in {number} hours") is None
    for said in (f"Retrying after {number}ms", f"Attempt {number} failed. Retrying with backoff"):
        assert GeminiRuntime().read_log(said) is None
    said = f"Attempt 1 failed with status {number}. Retrying with backoff"
    assert GeminiRuntime().read_log(said) is not None
