"""The bridge's session map in Redis, written under a session's lease."""

from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.protocols import Conversation


class LeasedSessionMap:
    """The session map of one session, in Redis."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    async def get(self, name: str) -> Conversation | None:
        """Return the CLI's conversation under `name`; None without one."""
        return self._lease.session_map.get(name)

    async def set(self, name: str, conversation: Conversation) -> None:
        """Store a conversation under `name`, for 7 days."""
        await self._lease.remember(name, conversation)

    async def delete(self, name: str) -> None:
        """Delete the conversation under `name`, which the CLI no longer knows."""
        await self._lease.remember(name, None)
