"""What was written while the account had no connection, from the histories of Slack.

A channel's history has no replies in threads, so each followed thread is read as well, and each
thread whose first message is found. Calls are paced, and live events go on meanwhile.
"""

import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.channels.slack.api import SlackRefused, WebApi, next_page
from remoteclaw.channels.slack.events import Event, source_of, thread_of
from remoteclaw.errors import PlatformAway, PlatformBusy

#: At most this many calls a minute; the rest of Slack's limit is for what agents do.
CALLS, PER_S = 40, 60.0
#: Pages of this many messages are read.
PAGE = 200
#: A thread is followed for this long after its last message, in seconds.
FOLLOWED_S = 7 * 24 * 3600.0
#: After a failure, the next call is made after this time, in seconds.
AWAY_S = 5.0
#: The kinds of conversations, by the first part of the scope with which they can be listed.
TYPES = {"channels": "public_channel", "groups": "private_channel", "mpim": "mpim", "im": "im"}
#: What Slack says of a place that the account can't read any more.
GONE = ("channel_not_found", "not_in_channel", "thread_not_found")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Found:
    """The messages of a source after its cursor."""

    source: str
    after: str
    messages: list[Event] = field(default_factory=list)
    """Oldest first, once all pages are read."""
    begun: dict[str, str] = field(default_factory=dict)
    """The cursors of the threads that it shows, which are read next."""
    is_gone: bool = False
    """Whether the account can't read the source any more."""
    next_page: str = ""

    @property
    def chat(self) -> str:
        """The conversation of the source."""
        return self.source.partition("/")[0]

    @property
    def thread(self) -> str | None:
        """The thread of the source."""
        return self.source.partition("/")[2] or None


class CatchUp:
    """The sources that have to be read, newest activity first."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._left: dict[str, str] = {}
        """The cursors of the sources that are not read yet."""
        self._reading: dict[str, Found] = {}
        """Those of which some pages are read. Others may be read between two pages."""
        self._calls: deque[float] = deque()
        self._not_before = 0.0

    @property
    def is_over(self) -> bool:
        """Whether all is read."""
        return not self._left

    @property
    def wait_s(self) -> float:
        """The time until the next call may be made, in seconds."""
        now = time.monotonic()
        while self._calls and now - self._calls[0] > PER_S:
            self._calls.popleft()
        due = self._calls[0] + PER_S if len(self._calls) >= CALLS else now
        return max(0.0, due - now, self._not_before - now)

    def has(self, source: str) -> bool:
        """Whether a source is not read yet."""
        return source in self._left

    def hasten(self, source: str, after: str) -> None:
        """Read a source next, because somebody has just written there; one that is read, again."""
        self._left = {source: self._left.pop(source, after), **self._left}

    async def begin(self, cursors: Mapping[str, str]) -> dict[str, str | None]:
        """Find out what to read after the cursors; return the cursors of all of it.

        A conversation without a cursor begins at that of the source `""`, which is the newest of
        all. None forgets a thread in which nobody has written for a week.
        """
        since, now = cursors.get("", "0"), time.time()
        threads = {source: cursor for source, cursor in cursors.items() if "/" in source}
        old = {source for source, at in threads.items() if now - float(at) > FOLLOWED_S}
        left = {source: cursor for source, cursor in threads.items() if source not in old}
        more: str | None = None
        scopes = self._api.scopes or {f"{each}:read" for each in TYPES}
        types = ",".join(kind for each, kind in TYPES.items() if f"{each}:read" in scopes)
        while more != "" and types:
            about = {"types": types, "exclude_archived": True, "limit": 999, "cursor": more}
            found = await self._call("users.conversations", **about)
            left |= {each["id"]: cursors.get(each["id"], since) for each in found["channels"]}
            more = next_page(found)
        self._left = dict(sorted(left.items(), key=lambda each: float(each[1]), reverse=True))
        self._reading = {}
        return {**self._left, **dict.fromkeys(old)}

    async def step(self) -> Found | None:
        """Make one call; return a source once it is read. A failed call leaves it for later."""
        source, after = next(iter(self._left.items()))
        found = self._reading.setdefault(source, Found(source, after))
        about = {
            "channel": found.chat,
            "oldest": after,
            "limit": PAGE,
            "cursor": found.next_page or None,
        }
        method = "conversations.history"
        if found.thread:
            method, about = "conversations.replies", {**about, "ts": found.thread}
        try:
            page = await self._call(method, **about)
        except (PlatformAway, PlatformBusy) as error:
            self._not_before = time.monotonic() + getattr(error, "after_s", AWAY_S)
            if isinstance(error, PlatformAway):  # perhaps this one alone
                self._left[source] = self._left.pop(source)
            return None
        except SlackRefused as refusal:
            page, found.is_gone = {"messages": []}, refusal.error in GONE
            if not found.is_gone:  # the other sources are read all the same
                log.warning("the history of %s is not read: %s", source, refusal)
        found.messages += page["messages"]
        found.next_page = next_page(page)
        if found.next_page:
            return None
        del self._left[source], self._reading[source]
        self._follow(found)
        of_source = [
            each
            for each in found.messages
            if source_of(found.chat, thread_of(each)) == source and float(each["ts"]) > float(after)
        ]
        found.messages = sorted(of_source, key=lambda each: float(each["ts"]))
        return found

    def _follow(self, found: Found) -> None:
        """Read the threads in which somebody has written meanwhile, if their channel shows it."""
        for message in found.messages if not found.thread else ():
            its, thread = str(message["ts"]), thread_of(message)  # of a reply that it shows, too
            if thread or message.get("reply_count"):
                source = source_of(found.chat, thread or its)
                found.begun.setdefault(source, found.after if thread else its)
        self._left = {**self._left, **found.begun, **self._left}

    async def _call(self, method: str, **arguments: Any) -> dict[str, Any]:
        self._calls.append(time.monotonic())
        return await self._api.call(method, **arguments)
