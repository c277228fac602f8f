"""A turn of claude's, translated; claude also speaks unasked.

When a background task ends, claude takes a turn of its own to hear of it, with text and a result
like any other. What it says is the answer to our message only once claude has repeated that
message, which it does with the first complete block of its answer: after the block's deltas.
So text is passed on at once while nothing else can be speaking, and held back otherwise.
"""

from typing import Any

from remoteclaw.events import (
    AgentEvent,
    NoticeEvent,
    TextEvent,
    TextResetEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.runtimes.wire import count, mapping, mappings, text

__all__ = ["Activity", "Exchange", "TurnReading"]


class Activity:
    """What claude is known to be doing, from all that it prints."""

    def __init__(self) -> None:
        self.is_in_turn = False
        self.is_unasked = False
        """Whether the turn that it is in is one of its own."""
        self._tasks: set[str] = set()
        """Background tasks that claude has not spoken of since they ended."""

    @property
    def may_speak(self) -> bool:
        """Whether it speaks, or could at any moment, without being asked."""
        return self.is_in_turn or bool(self._tasks)

    def note(self, message: dict[str, Any]) -> None:
        """Take notice of a line."""
        if message.get("type") == "result":
            self.is_in_turn = self.is_unasked = False
        if message.get("type") != "system":
            return
        match message.get("subtype"):
            case "init":
                self.is_in_turn = True
            case "task_started":
                self._tasks.add(text(message.get("task_id")))
            case "task_notification":
                self._tasks.discard(text(message.get("task_id")))
                # Within a turn it belongs to it; alone it is what claude's own turn begins with.
                if not self.is_in_turn:
                    self.is_in_turn = self.is_unasked = True

    def is_asked(self) -> None:
        """Take notice that a message goes to it: a turn that runs already is its own."""
        self.is_unasked = self.is_in_turn


class Exchange:
    """One message of ours, and what claude says until the answer to it is complete."""

    def __init__(self, message_id: str, *, holds_back: bool) -> None:
        self.message_id = message_id
        self.is_claimed = False
        """Whether claude has repeated our message: what it says now is the answer."""
        self.reading = TurnReading()
        self._held: list[AgentEvent] | None = [] if holds_back else None

    def read(self, message: dict[str, Any], *, is_unasked: bool) -> list[AgentEvent] | None:
        """Return what a line means, as far as it can be passed on; None for an unknown kind."""
        if message.get("type") == "user" and message.get("uuid") == self.message_id:
            return self._claim(is_unasked)
        events = self.reading.read(message)
        if events is None or self._held is None:
            return events
        self._held += events
        return []

    def _claim(self, is_unasked: bool) -> list[AgentEvent]:
        """Pass on what was held back, unless claude's own turn took our message up."""
        self.is_claimed = True
        held, self._held = self._held, None
        if is_unasked and held is not None:
            self.reading = TurnReading()
            return []
        return held or []

    def is_answered_by(self, result: dict[str, Any], *, is_unasked: bool) -> bool:
        """Whether a result is the end of our exchange.

        A message that no model was asked about is not repeated: one that a hook of the user's
        refused, or one for a conversation that claude doesn't know.
        """
        return self.is_claimed or (result.get("num_turns") == 0 and not is_unasked)

    def drop(self) -> list[AgentEvent]:
        """Forget what turned out to be a turn of claude's own; return how to take it back."""
        shown = 0 if self._held is not None else len(self.reading.text)
        self.reading = TurnReading()
        self._held = []
        return [TextResetEvent(shown)] if shown else []


class TurnReading:
    """What has been read of one turn: claude says everything twice, as deltas and as blocks."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._unconfirmed = ""
        """Text that came as deltas and whose block has not come yet."""
        self._break_due = False
        """Whether a paragraph has to end before more text: another block has begun."""

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self._parts)

    def read(self, message: dict[str, Any]) -> list[AgentEvent] | None:
        """Return what a line means; None for a kind that isn't known."""
        kind = message.get("type")
        if message.get("parent_tool_use_id"):
            return []  # a subagent talks to claude, not to the person
        if kind == "stream_event":
            return self._delta(mapping(message.get("event")))
        if kind == "assistant":
            return self._assistant(message)
        if kind == "user":
            return self._tool_results(message)
        if kind == "system":
            return self._system(message)
        return [] if kind in ("control_response", "rate_limit_event") else None

    def _delta(self, event: dict[str, Any]) -> list[AgentEvent]:
        delta = mapping(event.get("delta"))
        if event.get("type") == "content_block_start":
            block = mapping(event.get("content_block"))
            if block.get("type") == "text" and self._parts:
                self._break_due = True
        elif delta.get("type") == "text_delta":
            return self._add(text(delta.get("text")))
        elif delta.get("type") == "thinking_delta":
            return [ThinkingEvent(text(delta.get("thinking")))]
        return []

    def _add(self, words: str) -> list[AgentEvent]:
        if not words:
            return []
        self._unconfirmed += words
        if self._break_due:
            self._break_due = False
            words = "\n\n" + words
        self._parts.append(words)
        return [TextEvent(words)]

    def _assistant(self, message: dict[str, Any]) -> list[AgentEvent]:
        said = mapping(message.get("message"))
        if message.get("error") or said.get("model") == "<synthetic>":
            return []  # an error as if claude had said it; the result reports it as one
        events: list[AgentEvent] = []
        for block in mappings(said.get("content")):
            if block.get("type") == "text":
                events += self._confirm(text(block.get("text")))
            elif block.get("type") == "tool_use":
                name, tool_id = text(block.get("name")), text(block.get("id"))
                events.append(ToolUseEvent(name, tool_id, mapping(block.get("input"))))
        return events

    def _confirm(self, whole: str) -> list[AgentEvent]:
        """Compare a whole block with its deltas: after a broken stream they differ."""
        streamed, self._unconfirmed = self._unconfirmed, ""
        if whole.startswith(streamed):
            if not streamed and self._parts:
                self._break_due = True
            events = self._add(whole[len(streamed) :])
            self._unconfirmed = ""
            return events
        before = self.text
        self._parts = [before[: len(before) - len(streamed)]]
        reset = TextResetEvent(len(streamed))
        events = [reset, *self._add(whole)]
        self._unconfirmed = ""
        return events

    def _tool_results(self, message: dict[str, Any]) -> list[AgentEvent]:
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

    def _system(self, message: dict[str, Any]) -> list[AgentEvent]:
        if message.get("subtype") != "api_retry":
            return []
        status, kind = count(message.get("error_status")), text(message.get("error"))
        if status in (401, 403) or kind == "authentication_failed":
            what = "The model refuses the sign-in"
        elif status in (429, 529) or kind in ("rate_limit", "overloaded"):
            what = "The model is busy"
        else:
            what = "The model can't be reached"
        delay_s = round(count(message.get("retry_delay_ms")) / 1000)
        return [NoticeEvent(f"{what}; trying again in {delay_s} s.")]
