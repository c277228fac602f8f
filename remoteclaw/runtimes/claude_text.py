"""The text and the tools of one answer of claude's, read from its lines.

Claude says everything twice, as deltas and as whole blocks. It repeats the message that it answers
with the first whole block of the answer: behind the block's deltas, so text is passed on before it
is certain what it answers.
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
from remoteclaw.runtimes.turn_text import Prose
from remoteclaw.runtimes.wire import count, mapping, mappings, text


class AnswerReading:
    """The answer to one message of ours, as far as it was read."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.is_ours = False
        """Whether claude has repeated our message."""
        self._prose = Prose()
        self._is_streaming = False
        """Whether a block of text has come as deltas and not as a whole yet."""

    @property
    def text(self) -> str:
        """The text so far."""
        return self._prose.text

    def read(self, message: dict[str, Any]) -> list[AgentEvent]:
        """Return what a line means; nothing for one of an unknown kind."""
        if message.get("parent_tool_use_id"):
            return []  # a subagent talks to claude, not to the person
        match message.get("type"):
            case "stream_event":
                return self._delta(mapping(message.get("event")))
            case "assistant":
                return self._assistant(message)
            case "user":
                self.is_ours |= message.get("uuid") == self.message_id
                return _tool_results(message)
            case "system" if message.get("subtype") == "api_retry":
                return [_retry_notice(message)]
        return []

    def _delta(self, event: dict[str, Any]) -> list[AgentEvent]:
        delta = mapping(event.get("delta"))
        if event.get("type") == "content_block_start":
            return self._begin(mapping(event.get("content_block")))
        match delta.get("type"):
            case "text_delta":
                events = [] if self._is_streaming else self._begin({"type": "text"})
                return [*events, *self._prose.add(text(delta.get("text")))]
            case "thinking_delta":
                return [ThinkingEvent(text(delta.get("thinking")))]
        return []

    def _begin(self, block: dict[str, Any]) -> list[AgentEvent]:
        """Begin a block of text; one that began and never came as a whole is taken back."""
        if block.get("type") != "text":
            return []
        if self._is_streaming:
            return self._prose.take_back()
        self._prose.begin_block()
        self._is_streaming = True
        return []

    def _assistant(self, message: dict[str, Any]) -> list[AgentEvent]:
        said = mapping(message.get("message"))
        if message.get("error") or said.get("model") == "<synthetic>":
            return []  # an error as if claude had said it; the result reports it as one
        events: list[AgentEvent] = []
        for block in mappings(said.get("content")):
            if block.get("type") == "text":
                if not self._is_streaming:
                    self._prose.begin_block()
                self._is_streaming = False
                events += self._prose.complete(text(block.get("text")))
            elif block.get("type") == "tool_use":
                name, tool_id = text(block.get("name")), text(block.get("id"))
                events.append(ToolUseEvent(name, tool_id, mapping(block.get("input"))))
        return events

    def take_back(self) -> list[AgentEvent]:
        """Withdraw all that was said."""
        shown = len(self._prose.text)
        self._prose, self._is_streaming = Prose(), False
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
    """Return what the person is to know of a request to the model that claude repeats."""
    status, kind = count(message.get("error_status")), text(message.get("error"))
    if status in (401, 403) or kind == "authentication_failed":
        what = "The model refuses the sign-in"
    elif status in (429, 529) or kind in ("rate_limit", "overloaded"):
        what = "The model is busy"
    else:
        what = "The model can't be reached"
    delay_s = round(count(message.get("retry_delay_ms")) / 1000)
    return NoticeEvent(f"{what}; trying again in {delay_s} s.")
