"""The rate limit of incoming messages: per person, chat and minute."""

from remoteclaw.protocols import Incoming

#: A person may write this many messages a minute in a chat; platforms forward a hundred at once.
MAX_PER_MINUTE = 120
#: At most this many people are counted at once. The one who wrote least recently is dropped first.
MAX_KNOWN = 10_000


class RateLimiter:
    """Counts messages in memory, which suffices because one process at a time reads an account.

    Minutes are those of the messages' own timestamps, so messages that queued up while the process
    was away are no burst. A message that is delivered twice counts once.
    """

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str], tuple[int, set[str]]] = {}

    def exceeded(self, incoming: Incoming) -> int | None:
        """Count `incoming`. Return the minute whose limit it exceeds, or None if it is allowed.

        Minutes are numbered since 1970.
        """
        person = incoming.chat, incoming.sender
        minute = incoming.at_ms // 60_000
        window, ids = self._windows.get(person, (minute, set[str]()))
        if window < minute:
            window, ids = minute, set()
        if incoming.id in ids:
            return None
        if len(ids) >= MAX_PER_MINUTE:
            return window
        ids.add(incoming.id)
        self._windows.pop(person, None)
        self._windows[person] = window, ids
        if len(self._windows) > MAX_KNOWN:
            del self._windows[next(iter(self._windows))]
        return None
