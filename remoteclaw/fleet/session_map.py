"""The bridge's session map in Redis, kept under a session's lease."""

from remoteclaw.fleet.lease import Lease

#: Separates a CLI's session id from the note of its last process.
NOTE_SEPARATOR = "\n"


class LeasedSessionMap:
    """The bridge's session map, kept in Redis under a session's lease."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    async def get(self, name: str) -> str | None:
        """Return the CLI's session id for a runtime and workspace."""
        return id_of(self._lease.session_map.get(name, "")) or None

    async def note(self, name: str) -> str:
        """Return what the CLI's last process has noted with it."""
        return self._lease.session_map.get(name, "").partition(NOTE_SEPARATOR)[2]

    async def set(self, name: str, session_id: str, note: str = "") -> None:
        """Keep both for 7 days."""
        await self._lease.remember(name, f"{session_id}{NOTE_SEPARATOR}{note}")

    async def delete(self, name: str) -> None:
        """Drop it: the CLI no longer knows it."""
        await self._lease.remember(name, None)


def id_of(kept: str) -> str:
    """Return the CLI's session id of what is kept under a name; the note is left out."""
    return kept.partition(NOTE_SEPARATOR)[0]
