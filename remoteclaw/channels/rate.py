"""The rate limit of incoming messages: per person, chat and minute."""

from remoteclaw.protocols import Incoming

#: A person may write this many messages a minute in a chat, because a person can forward a hundred
#: messages at once.
MAX_PER_MINUTE = 120
#: At most this many people are counted at once. The one who wrote least recently is dropped first.
MAX_KNOWN = 10_000


class RateLimiter:
    """Counts messages in memory, which suffices because one process at a time reads an account.

    Minutes are those of the messages' own timestamps, so messages that queued up while the process
    was away are no burst. A message that is delivered twice counts once.
    """

    def __init__(self) -> None:
        self._minutes: dict[tuple[str, str], tuple[int, set[str]]] = {}
        """The newest minute of each person in each chat, and the ids of its messages."""

    def count(self, incoming: Incoming) -> int | None:
        """Count `incoming`. Return the minute whose limit it exceeds, or None if it is allowed.

        Minutes are numbered since 1970.
        """
        person = incoming.chat, incoming.sender
        minute = incoming.at_ms // 60_000
        newest_minute, ids = self._minutes.get(person, (minute, set[str]()))
        if newest_minute < minute:
            newest_minute, ids = minute, set()
        if incoming.id in ids:
            return None
        if len(ids) >= MAX_PER_MINUTE:
            return newest_minute
        ids.add(incoming.id)
        self._minutes.pop(person, None)
        self._minutes[person] = newest_minute, ids
        if len(self._minutes) > MAX_KNOWN:
            del self._minutes[next(iter(self._minutes))]
        return None
