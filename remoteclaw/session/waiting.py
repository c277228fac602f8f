"""The waiting entries of a session, decoded."""

from collections.abc import Sequence

from remoteclaw.fleet.turns.inbound import NewerEntry, RawEntry, decode
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.messages import Entry, SessionKey


async def read_waiting(lease: Lease) -> list[Entry]:
    """Return the entries that wait, oldest first; a damaged entry is returned alone.

    Raises `NewerEntry` if the first entry needs a newer worker.
    """
    entries = decode_all(await lease.entries(), lease.session)
    readable = next((i for i, entry in enumerate(entries) if entry.unreadable), len(entries))
    return entries[: readable or 1]


def decode_all(raw: Sequence[RawEntry], session: SessionKey) -> list[Entry]:
    """Return the decoded entries before the first one that needs a newer worker.

    Raises `NewerEntry` if the very first entry needs a newer worker.
    """
    entries: list[Entry] = []
    for raw_entry in raw:
        try:
            entries.append(decode(raw_entry, session))
        except NewerEntry:
            if not entries:
                raise
            break
    return entries
