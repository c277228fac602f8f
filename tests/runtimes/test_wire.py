"""Reading what another program prints, whatever it is."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.events import DoneEvent
from remoteclaw.runtimes.claude_text import AnswerReading
from remoteclaw.runtimes.claude_turn import Conversation
from remoteclaw.runtimes.wire import UnreadableLine, count, decode
from tests.support.rows import for_each


def test_half_a_character_costs_that_character_alone() -> None:
    """JavaScript's strings may end in the middle of one; JSON then has an escape for a half."""
    message = decode(b'{"a": "x \\ud83d y", "b": ["\\ude00", "\\ud83d\\ude00"]}')

    assert message == {"a": "x ? y", "b": ["?", "\U0001f600"]}
    assert orjson.dumps(message)


def test_bytes_that_are_no_utf_8_cost_those_bytes_alone() -> None:
    assert decode(b'{"a": "x \xff y"}') == {"a": "x \N{REPLACEMENT CHARACTER} y"}


@pytest.mark.parametrize("line", [b"Warning: something", b"[1]", b'"text"', b"17", b"null"])
def test_what_is_no_message_is_an_empty_one(line: bytes) -> None:
    assert decode(line) == {}


@pytest.mark.parametrize(
    "line",
    [b'{"type": "result", "resu', b"{} {}", b"{" * 10_000, b""],
    ids=["cut off", "two", "deep", "too long"],
)
def test_a_damaged_message_is_told_from_one_that_is_none(line: bytes) -> None:
    with pytest.raises(UnreadableLine):
        decode(line)


@for_each("value", [None, True, "many", [], {}, float("inf"), float("nan"), -3])
def test_what_is_no_count_counts_nothing(value: Any) -> None:
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
def test_no_shape_of_a_line_raises(lines: list[dict[str, Any]]) -> None:
    conversation, answer = Conversation("ours"), AnswerReading("ours")

    for line in lines:
        conversation.note(line)
        assert not any(isinstance(event, DoneEvent) for event in answer.read(line))
