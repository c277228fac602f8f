"""Asides of claude, which answers them without tools from the state after its last finished turn.

In the first turn of a process, claude also includes the running turn so far.
"""

import re
from abc import abstractmethod
from typing import Any

from remoteclaw.events import ContextSize
from remoteclaw.runtimes.asides import CliAside
from remoteclaw.runtimes.claude.peer import ClaudePeer
from remoteclaw.runtimes.claude.turn import ClaudeConversation
from remoteclaw.runtimes.wire import count, mapping, text

#: The texts with which claude itself replaces an answer that the model has not given.
_NO_ANSWER = re.compile(
    r"(Please run /login · |Failed to authenticate\. )?API Error: |Invalid API key · "
    r"|(Not logged in|OAuth token revoked) · |You've hit your .+ limit"
    r"|(Prompt is too long|Credit balance is too low)$"
)


class ClaudeQuestion(CliAside[dict[str, Any]]):
    """A question that claude answers with one message.

    Claude can't cancel it, so the answer to an abandoned one is dropped.
    """

    subtype = ""
    """The kind of the request."""

    def __init__(self, peer: ClaudePeer) -> None:
        super().__init__()
        self._peer = peer
        self._id = peer.reserve()

    async def ask(self, prompt: str) -> None:
        """Send the question."""
        self.awaits_message = True
        fields = {"question": prompt} if prompt else {}
        await self._peer.request(self.subtype, self._id, **fields)

    async def take(self, message: dict[str, Any]) -> bool:
        """Handle the answer."""
        response = mapping(message.get("response"))
        if message.get("type") != "control_response" or response.get("request_id") != self._id:
            return False
        self.awaits_message = False
        self.read(response)
        return True

    @abstractmethod
    def read(self, response: dict[str, Any]) -> None:
        """Read the answer."""

    async def stop(self) -> None:
        """Do nothing: claude can't cancel the question."""


class ClaudeContext(ClaudeQuestion):
    """The question how long the conversation is."""

    subtype = "get_context_usage"
    size: ContextSize | None = None
    """The answer; None if claude does not tell it."""

    def read(self, response: dict[str, Any]) -> None:
        """Read the size."""
        told = mapping(response.get("response"))
        used, limit = count(told.get("totalTokens")), count(told.get("maxTokens"))
        self.size = ContextSize(used, limit) if used and limit else None
        self.succeed("")


class ClaudeAside(ClaudeQuestion):
    """A question to the model.

    Claude doesn't report its tokens, but the totals at the end of a turn include them. So the turn
    counts them, unless it ends before the question is answered; then they are estimated.
    """

    subtype = "side_question"

    def __init__(self, peer: ClaudePeer, conversation: ClaudeConversation) -> None:
        super().__init__(peer)
        self._conversation = conversation

    def read(self, response: dict[str, Any]) -> None:
        """Read the answer."""
        answered = mapping(response.get("response"))
        answer = text(answered.get("response"))
        for copy in self._conversation.last_answer:  # after a compaction, claude repeats it
            answer = answer.removeprefix(f"{copy}\n\n")
        is_of_model = response.get("subtype") == "success" and not answered.get("synthetic")
        if is_of_model and answer and not _NO_ANSWER.match(answer):
            if not self._conversation.is_answering and not self.is_over:
                self.usage = self._conversation.totals.estimate(self._conversation.context)
                self.is_estimated = True
            self.succeed(answer)
        else:
            problem = answer or text(response.get("error")) or "nothing"
            self.fail(f"claude says {problem.rstrip('.')}")
