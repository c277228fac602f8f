"""Decoding lines that another program prints, also malformed ones."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.events import DoneEvent
from remoteclaw.runtimes.claude.text import AnswerReader
from remoteclaw.runtimes.claude.turn import ClaudeConversation
from remoteclaw.runtimes.wire import UnreadableLine, count, decode
from tests.support.rows import for_each


def test_half_a_surrogate_pair_is_replaced_with_a_question_mark() -> None:
    """A JavaScript string can end within a character; JSON then escapes half of the pair."""
    message = decode(b'{"a": "x \\ud83d y", "b": ["\\ude00", "\\ud83d\\ude00"]}')

    assert message == {"a": "x ? y", "b": ["?", "\U0001f600"]}
    assert orjson.dumps(message)


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    assert decode(b'{"a": "x \xff y"}') == {"a": "x \N{REPLACEMENT CHARACTER} y"}


@pytest.mark.parametrize("line", [b"Warning: something", b"[1]", b'"text"', b"17", b"null"])
def test_a_line_that_is_no_json_object_is_an_empty_message(line: bytes) -> None:
    assert decode(line) == {}


@pytest.mark.parametrize(
    "line",
    [b'{"type": "result", "resu', b"{} {}", b"{" * 10_000, b""],
    ids=["cut off", "two", "deep", "too long"],
)
def test_a_damaged_message_raises_unreadable_line(line: bytes) -> None:
    with pytest.raises(UnreadableLine):
        decode(line)


@for_each("value", [None, True, "many", [], {}, float("inf"), float("nan"), -3])
def test_a_value_that_is_no_count_counts_as_zero(value: Any) -> None:
    assert count(value) == 0


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
#: The shapes that claude's lines have, with something else in one place.
LINES = st.builds(
    lambda shape, value: json.loads(json.dumps(shape).replace('"?"', json.dumps(value))),
    st.sampled_from(
        [
            {"type": "assistant", "message": "?"},
            {"type": "assistant", "message": {"content": "?"}},
            {"type": "assistant", "message": {"content": ["?"]}},
            {"type": "assistant", "message": {"content": [{"type": "text", "text": "?"}]}},
            {"type": "assistant", "message": {"content": [{"type": "tool_use", "input": "?"}]}},
            {"type": "stream_event", "event": "?"},
            {"type": "stream_event", "event": {"delta": "?"}},
            {"type": "stream_event", "event": {"delta": {"type": "text_delta", "text": "?"}}},
            {
                "type": "stream_event",
                "event": {"type": "content_block_start", "content_block": "?"},
            },
            {"type": "user", "uuid": "?", "message": "?"},
            {"type": "user", "message": {"content": "?"}},
            {"type": "user", "message": {"content": [{"type": "tool_result", "content": "?"}]}},
            {"type": "user", "message": {"content": [{"type": "tool_result", "content": ["?"]}]}},
            {"type": "system", "subtype": "api_retry", "retry_delay_ms": "?", "error_status": "?"},
            {"type": "system", "subtype": "task_started", "task_id": "?"},
            {"type": "system", "subtype": "task_notification", "task_id": "?"},
            {"type": "result", "num_turns": "?"},
            {"type": "?", "subtype": "?"},
        ]
    ),
    ANYTHING,
)


@given(st.lists(LINES, max_size=6))
def test_no_malformed_line_of_claude_raises_or_ends_a_turn(lines: list[dict[str, Any]]) -> None:
    conversation, answer = ClaudeConversation("ours"), AnswerReader("ours")

    for line in lines:
        conversation.note(line)
        assert not any(isinstance(event, DoneEvent) for event in answer.read(line))
