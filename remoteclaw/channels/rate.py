"""The limit of messages that one person may write in a chat in a minute."""

from remoteclaw.protocols import Incoming

#: How many messages of a person are taken in a minute; platforms forward a hundred at once.
MOST = 120
#: How many people are remembered. Who wrote first is forgotten first, and may write again.
MAX_KNOWN = 10_000


class Rate:
    """Counts messages in the memory of the process that reads an account: one does at a time.

    A minute is one of the platform's clock. So a message that is taken twice counts once, and what
    has waited for the process is no burst.
    """

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str], tuple[int, set[str]]] = {}

    def exceeded(self, incoming: Incoming) -> int | None:
        """Count a message; return the minute in which it is one too many, None if it is not."""
        person = incoming.chat, incoming.sender
        minute = incoming.at_ms // 60_000
        counted, taken = self._windows.get(person, (minute, set[str]()))
        if counted < minute:
            counted, taken = minute, set()
        if incoming.id in taken:
            return None
        if len(taken) >= MOST:
            return counted
        taken.add(incoming.id)
        self._windows.pop(person, None)
        self._windows[person] = counted, taken
        if len(self._windows) > MAX_KNOWN:
            del self._windows[next(iter(self._windows))]
        return None
