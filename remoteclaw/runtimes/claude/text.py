"""The text and tool calls of one answer of claude, read from its lines.

Claude reports everything twice, as deltas and as whole blocks. It repeats the answered message only
with the first whole block of the answer, after the block's deltas. So text is passed on before it
is certain which message it answers, and may have to be withdrawn.
"""

from typing import Any

from remoteclaw.events import (
    AgentEvent,
    NoticeEvent,
    TextResetEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.runtimes.turn_text import TurnText
from remoteclaw.runtimes.wire import count, mapping, mappings, text

#: The reasons for which a model stops that end its answer; after others, a tool's result or the
#: rest of the text is missing.
_ENDS = ("end_turn", "stop_sequence")


class AnswerReader:
    """The answer to one message of ours, so far."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.is_confirmed = False
        """Whether claude has repeated our message, so that the answer certainly belongs to it."""
        self._text = TurnText()
        self._is_streaming = False
        """Whether deltas of a text block have arrived, but not the whole block."""
        self.has_ended = False
        """Whether the model has ended the answer."""

    @property
    def text(self) -> str:
        """The text so far."""
        return self._text.text

    @property
    def last_text(self) -> str:
        """The last block of the text so far."""
        return self._text.block

    def read(self, message: dict[str, Any]) -> list[AgentEvent]:
        """Return the events of a line; none for an unknown type."""
        if message.get("parent_tool_use_id"):
            return []  # a subagent talks to claude, not to the person
        match message.get("type"):
            case "stream_event":
                return self._delta(mapping(message.get("event")))
            case "assistant":
                return self._assistant(message)
            case "user":
                self.is_confirmed |= message.get("uuid") == self.message_id
                return _tool_results(message)
            case "system" if message.get("subtype") == "api_retry":
                return [_retry_notice(message)]
        return []

    def _delta(self, event: dict[str, Any]) -> list[AgentEvent]:
        delta = mapping(event.get("delta"))
        if event.get("type") in ("message_start", "message_delta"):
            self.has_ended = delta.get("stop_reason") in _ENDS and bool(self.text)
        if event.get("type") == "content_block_start":
            return self._begin(mapping(event.get("content_block")))
        match delta.get("type"):
            case "text_delta":
                events = [] if self._is_streaming else self._begin({"type": "text"})
                return [*events, *self._text.add(text(delta.get("text")))]
            case "thinking_delta":
                return [ThinkingEvent(text(delta.get("thinking")))]
        return []

    def _begin(self, block: dict[str, Any]) -> list[AgentEvent]:
        """Begin a block of text, and withdraw one that was never completed."""
        if block.get("type") != "text":
            return []
        if self._is_streaming:
            return self._text.withdraw_block()
        self._text.begin_block()
        self._is_streaming = True
        return []

    def _assistant(self, message: dict[str, Any]) -> list[AgentEvent]:
        reply = mapping(message.get("message"))
        if message.get("error") or reply.get("model") == "<synthetic>":
            return []  # an error in the form of a message; the result also reports it
        events: list[AgentEvent] = []
        for block in mappings(reply.get("content")):
            if block.get("type") == "text":
                if not self._is_streaming:
                    self._text.begin_block()
                self._is_streaming = False
                events += self._text.complete(text(block.get("text")))
            elif block.get("type") == "tool_use":
                name, tool_id = text(block.get("name")), text(block.get("id"))
                events.append(ToolUseEvent(name, tool_id, mapping(block.get("input"))))
        return events

    def withdraw(self) -> list[AgentEvent]:
        """Withdraw the whole text."""
        shown = len(self._text.text)
        self._text, self._is_streaming = TurnText(), False
        return [TextResetEvent(shown)] if shown else []


def _tool_results(message: dict[str, Any]) -> list[AgentEvent]:
    events: list[AgentEvent] = []
    for block in mappings(mapping(message.get("message")).get("content")):
        if block.get("type") == "tool_result":
            output = block.get("content")
            if isinstance(output, list):
                output = "".join(text(part.get("text")) for part in mappings(output))
            is_error = bool(block.get("is_error"))
            tool_id = text(block.get("tool_use_id"))
            events.append(ToolResultEvent(tool_id, text(output), is_error))
    return events


def _retry_notice(message: dict[str, Any]) -> NoticeEvent:
    """Return a notice about a request to the model that claude retries."""
    status, kind = count(message.get("error_status")), text(message.get("error"))
    if status in (401, 403) or kind == "authentication_failed":
        problem = "The model refuses the sign-in"
    elif status in (429, 529) or kind in ("rate_limit", "overloaded"):
        problem = "The model is busy"
    else:
        problem = "The model can't be reached"
    delay_s = round(count(message.get("retry_delay_ms")) / 1000)
    return NoticeEvent(f"{problem}; trying again in {delay_s} s.")
