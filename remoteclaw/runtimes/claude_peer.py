"""Control requests of claude's stream-json protocol, both ways."""

from collections.abc import Mapping
from typing import Any

from remoteclaw.runtimes.wire import Lines, mapping, text

__all__ = ["ClaudePeer"]

#: The answer to a request for a permission outside of a turn.
_BETWEEN_TURNS = "No permission can be asked for now: go on without it."


class ClaudePeer(Lines):
    """Our end of the line."""

    last_id = 0
    """The number of the last request."""

    async def request(self, subtype: str, **fields: Any) -> str:
        """Send a request; return the id under which its answer will come."""
        self.last_id += 1
        request_id = f"rc-{self.last_id}"
        request = {"subtype": subtype, **fields}
        await self.send({"type": "control_request", "request_id": request_id, "request": request})
        return request_id

    async def respond(self, message: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Answer a request of claude's."""
        await self._respond(message, subtype="success", response=answer)

    async def deny(self, message: Mapping[str, Any]) -> None:
        """Answer a request that gets no decision."""
        if mapping(message.get("request")).get("subtype") == "can_use_tool":
            await self.respond(message, {"behavior": "deny", "message": _BETWEEN_TURNS})
        else:
            await self.refuse(message)

    async def refuse(self, message: Mapping[str, Any]) -> None:
        """Answer a request that we don't know: claude would wait for ever."""
        await self._respond(message, subtype="error", error="not supported")

    async def _respond(self, message: Mapping[str, Any], **fields: Any) -> None:
        response = {"request_id": text(message.get("request_id")), **fields}
        await self.send({"type": "control_response", "response": response})
