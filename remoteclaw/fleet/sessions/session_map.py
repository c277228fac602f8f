"""The bridge's session map in Redis, written under a session's lease."""

from remoteclaw.fleet.turns.lease import Lease

#: The separator between a CLI's session id and the note of the CLI's last process.
NOTE_SEPARATOR = "\n"


class LeasedSessionMap:
    """The session map of one session, in Redis."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    async def get(self, name: str) -> str | None:
        """Return the CLI's session id under `name`, a runtime and workspace; None without one."""
        return id_of(self._lease.session_map.get(name, "")) or None

    async def note(self, name: str) -> str:
        """Return the note that the CLI's last process left under `name`."""
        return self._lease.session_map.get(name, "").partition(NOTE_SEPARATOR)[2]

    async def set(self, name: str, session_id: str, note: str = "") -> None:
        """Store a session id and a note under `name`, for 7 days."""
        await self._lease.remember(name, f"{session_id}{NOTE_SEPARATOR}{note}")

    async def delete(self, name: str) -> None:
        """Delete the session id under `name`, which the CLI no longer knows."""
        await self._lease.remember(name, None)


def id_of(stored: str) -> str:
    """Return the CLI's session id in a stored value, without the note."""
    return stored.partition(NOTE_SEPARATOR)[0]
