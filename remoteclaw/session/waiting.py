"""The waiting entries of a session, decoded."""

from collections.abc import Sequence

from remoteclaw.fleet.turns.inbound import NewerEntry, RawEntry, decode_entry
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.messages import ChannelMessage, Deliver, Entry, SessionKey


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


def decode(raw: RawEntry, session: SessionKey) -> Entry:
    """Return a decoded entry; for a damaged entry, a stand-in with the reason in `unreadable`."""
    entry_id, fields = raw
    try:
        return decode_entry(entry_id, fields)
    except ValueError as error:
        return _stand_in(entry_id.decode(), session, str(error))


def _stand_in(entry_id: str, session: SessionKey, why: str) -> Entry:
    # Unchecked: the session's channel name may no longer be valid.
    message = ChannelMessage.model_construct(
        id=entry_id,
        text="(unreadable)",
        from_=session.user,
        channel_id=session.channel_id,
        provider=session.provider,
        account=session.account,
        thread_id=session.thread,
        timestamp=int(entry_id.partition("-")[0]),
    )
    deliver: Deliver = "parent" if session.task else "channel"
    return Entry(entry_id, message, deliver=deliver, unreadable=why)
