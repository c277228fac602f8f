"""Questions beside claude's turn: claude asks them of its last finished turn, without tools.

In the first turn of a process it adds the running turn to that, as far as it has come.
"""

import re
from typing import Any

from remoteclaw.runtimes.asides import CliAside
from remoteclaw.runtimes.claude_progress import Costs
from remoteclaw.runtimes.claude_turn import ClaudePeer
from remoteclaw.runtimes.wire import mapping, text

#: What claude itself says, as if it were an answer, where the model has given none.
_NO_ANSWER = re.compile(
    r"(Please run /login · |Failed to authenticate\. )?API Error: |Invalid API key · "
    r"|(Not logged in|OAuth token revoked) · |You've hit your .+ limit"
    r"|(Prompt is too long|Credit balance is too low)$"
)


class ClaudeAside(CliAside[dict[str, Any]]):
    """One question; claude doesn't take it back, so nobody listens to what is left of it."""

    def __init__(self, peer: ClaudePeer, costs: Costs) -> None:
        super().__init__()
        self._peer = peer
        self._costs = costs
        self._id = peer.reserve()

    async def ask(self, prompt: str) -> None:
        """Send the question."""
        self.goes_on = True
        await self._peer.request("side_question", self._id, question=prompt)

    async def take(self, message: dict[str, Any]) -> bool:
        """Take the answer."""
        response = mapping(message.get("response"))
        if message.get("type") != "control_response" or response.get("request_id") != self._id:
            return False
        self.goes_on = False
        self._costs.has_asides = True
        answered = mapping(response.get("response"))
        answer = text(answered.get("response"))
        is_of_model = response.get("subtype") == "success" and not answered.get("synthetic")
        if is_of_model and answer and not _NO_ANSWER.match(answer):
            self.tell(answer)
        else:
            said = answer or text(response.get("error")) or "nothing"
            self.fail(f"claude says {said.rstrip('.')}")
        return True

    async def stop(self) -> None:
        """Do nothing: what claude says of it is dropped."""
