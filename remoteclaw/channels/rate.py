"""The rate limits of people: messages per chat and minute, and threads that they begin per hour."""

from remoteclaw.protocols import Incoming

#: A person may write this many messages a minute in a chat, because a person can forward a hundred
#: messages at once.
MAX_PER_MINUTE = 120
#: A person may begin this many conversations in threads of groups an hour: each has an agent of its
#: own, so they cost more than messages.
MAX_THREADS_PER_HOUR = 20
#: At most this many people are counted at once. The one who wrote least recently is dropped first.
MAX_KNOWN = 10_000


class RateLimiter:
    """Counts messages in memory, which suffices because one process at a time reads an account.

    Times are those of the messages' own timestamps, so messages that queued up while the process
    was away are no burst. A message that is delivered twice counts once.
    """

    def __init__(self) -> None:
        self._messages = _Counts(MAX_PER_MINUTE, 60_000)
        self._threads = _Counts(MAX_THREADS_PER_HOUR, 3_600_000)

    def count(self, incoming: Incoming) -> int | None:
        """Count `incoming`. Return the minute whose limit it exceeds, or None if it is allowed.

        Minutes are numbered since 1970.
        """
        return self._messages.count((incoming.chat, incoming.sender), incoming.id, incoming.at_ms)

    def count_thread(self, incoming: Incoming) -> int | None:
        """Count the message that begins a thread. Return the hour, as `count()` the minute."""
        name = f"{incoming.chat} {incoming.thread}"
        return self._threads.count(("", incoming.sender), name, incoming.at_ms)


class _Counts:
    """What each person has done in their newest period, of which there may be `most` things."""

    def __init__(self, most: int, period_ms: int) -> None:
        self._most = most
        self._period_ms = period_ms
        self._newest: dict[tuple[str, str], tuple[int, set[str]]] = {}

    def count(self, person: tuple[str, str], id_: str, at_ms: int) -> int | None:
        period = at_ms // self._period_ms
        newest, ids = self._newest.get(person, (period, set[str]()))
        if newest < period:
            newest, ids = period, set()
        if id_ in ids:
            return None
        if len(ids) >= self._most:
            return newest
        ids.add(id_)
        self._newest.pop(person, None)
        self._newest[person] = newest, ids
        if len(self._newest) > MAX_KNOWN:
            del self._newest[next(iter(self._newest))]
        return None
