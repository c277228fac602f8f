"""One message to claude and its answer; claude also speaks unasked.

When a background task ends, claude takes a turn of its own to hear of it, with text and a result
like any other. What it says is the answer to our message only once claude has repeated that
message, which it does with the first complete block of its answer: after the block's deltas.
So text is passed on at once while nothing else can be speaking, and held back otherwise.
"""

from typing import Any

from remoteclaw.events import AgentEvent
from remoteclaw.runtimes.claude_text import AnswerReading
from remoteclaw.runtimes.wire import text

__all__ = ["ClaudeActivity", "Exchange"]


class ClaudeActivity:
    """The state of claude, from all that it prints."""

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
        self.reading = AnswerReading()
        self._held: list[AgentEvent] | None = [] if holds_back else None

    def read(self, message: dict[str, Any], *, is_unasked: bool) -> list[AgentEvent]:
        """Return what a line means, as far as it can be passed on."""
        if message.get("type") == "user" and message.get("uuid") == self.message_id:
            return self._claim(is_unasked)
        events = self.reading.read(message)
        if self._held is None:
            return events
        self._held += events
        return []

    def _claim(self, is_unasked: bool) -> list[AgentEvent]:
        """Pass on what was held back, unless claude's own turn took our message up."""
        self.is_claimed = True
        held, self._held = self._held, None
        if is_unasked and held is not None:
            self.reading = AnswerReading()
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
        taken_back = self.reading.take_back()
        is_shown, self._held = self._held is None, []
        return taken_back if is_shown else []
