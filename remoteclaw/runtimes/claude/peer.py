"""RemoteClaw's side of claude's protocol."""

from collections.abc import Mapping
from typing import Any

from remoteclaw.protocols import Decision
from remoteclaw.runtimes.claude.hook import answer_of
from remoteclaw.runtimes.wire import Lines, mapping, text

#: The denial of a permission that is requested outside of a turn.
_BETWEEN_TURNS = "No permission can be asked for now: continue without it."


class ClaudePeer(Lines):
    """Sends messages, and requests and their answers."""

    last_id = 0
    """The number of the last request."""

    def reserve(self) -> str:
        """Return the id for a new request."""
        self.last_id += 1
        return f"rc-{self.last_id}"

    async def request(self, subtype: str, request_id: str = "", **fields: Any) -> str:
        """Send a request; return its id, which its answer will have."""
        request_id = request_id or self.reserve()
        request = {"subtype": subtype, **fields}
        await self.send({"type": "control_request", "request_id": request_id, "request": request})
        return request_id

    async def set_mode(self, mode: str) -> None:
        """Set claude's own permission mode."""
        await self.request("set_permission_mode", mode=mode)

    async def respond(self, message: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Answer a request of claude."""
        await self._respond(message, subtype="success", response=answer)

    async def deny(self, message: Mapping[str, Any]) -> None:
        """Answer a request without a decision: deny a permission, refuse anything else."""
        match mapping(message.get("request")).get("subtype"):
            case "can_use_tool":
                await self.respond(message, {"behavior": "deny", "message": _BETWEEN_TURNS})
            case "hook_callback":
                await self.respond(message, answer_of(Decision("deny", _BETWEEN_TURNS)))
            case _:
                await self.refuse(message)

    async def refuse(self, message: Mapping[str, Any]) -> None:
        """Answer an unknown request with an error, because claude waits for an answer forever."""
        await self._respond(message, subtype="error", error="not supported")

    async def _respond(self, message: Mapping[str, Any], **fields: Any) -> None:
        response = {"request_id": text(message.get("request_id")), **fields}
        await self.send({"type": "control_response", "response": response})
