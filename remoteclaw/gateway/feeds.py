"""Feeds of session events, for subscribed clients.

Each session is followed once, for all its subscribers. Each of them gets every outcome once; live
text may be left out.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import Any, Protocol

import orjson

from remoteclaw.clock import now_ms
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.outcomes import Outcome
from remoteclaw.fleet.request import Request
from remoteclaw.fleet.subscriptions import Listener, Subscriptions
from remoteclaw.gateway.asks import shown
from remoteclaw.gateway.task_tree import tree_of
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import Work

#: The events of a session.
EVENTS = ("session.live", "session.ask", "session.outcome", "session.work")
#: How many of a session's newest entries are read when announcements may have been missed.
LOOKED_AT = 32
#: How many entries are remembered as sent: more than are read.
REMEMBERED = 128
#: The least pause between two reports of what works for a session, in seconds.
WORK_S = 1.0

log = logging.getLogger(__name__)


class Audience(Protocol):
    """A client that gets events of sessions."""

    def tell(self, event: str, payload: dict[str, Any], *, may_be_missed: bool = False) -> None:
        """Queue an event for sending."""


class Feeds:
    """The sessions that clients of this gateway follow."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._news = Subscriptions(fleet.scripts)
        self._followed: dict[str, _Followed] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._beginning = asyncio.Lock()
        self._news.hear(keys.ASKING, self._heard_asking)
        self._news.hear(keys.WORK, self._heard_work)

    def hear(self, channel: str, listener: Listener) -> None:
        """Call this one, too, with each announcement on a channel; it must not wait."""
        self._news.hear(channel, listener)

    def ignore(self, channel: str) -> None:
        """Call no one any more with a channel's announcements."""
        self._news.ignore(channel)

    async def run(self) -> None:
        """Receive announcements, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await self._news.run()

    async def subscribe(self, audience: Audience, sid: str, session_key: str) -> None:
        """Send an audience a session's events from now on."""
        async with self._beginning:
            followed = self._followed.get(sid)
            if followed is None:
                followed = await self._follow(sid, session_key)
            followed.audience.add(audience)
        await followed.tell_shown([audience])
        await followed.tell_asks([audience])
        await followed.tell_work([audience])

    async def _follow(self, sid: str, session_key: str) -> "_Followed":
        assert self._tasks is not None, "it runs"
        followed = _Followed(self._fleet, self._tasks, sid, session_key)
        await followed.look(is_first=True)
        self._followed[sid] = followed
        self._news.follow(sid, live=followed.heard_live, done=followed.heard_done)
        return followed

    def _heard_asking(self, ask_id: bytes | None) -> None:
        """Tell the followers of a session of a request, or of all that may have been missed."""
        assert self._tasks is not None, "it runs"
        self._tasks.create_task(self._tell_asking((ask_id or b"").decode(errors="replace")))

    async def _tell_asking(self, ask_id: str) -> None:
        if not ask_id:
            for followed in list(self._followed.values()):
                await followed.tell_asks(list(followed.audience))
            return
        with _surviving("a request"):
            request = await self._fleet.asks.find(ask_id)
            if request and (asking := self._followed.get(request.session.sid)):
                asking.tell_ask(request, list(asking.audience))

    def _heard_work(self, sids: bytes | None) -> None:
        """Have those told who follow a session below which something has changed."""
        named = set(self._followed) if sids is None else set(sids.decode().split(","))
        for sid in named & set(self._followed):
            self._followed[sid].heard_work()

    def unsubscribe(self, audience: Audience, sid: str) -> None:
        """Send an audience no more of a session's events."""
        followed = self._followed.get(sid)
        if followed is None:
            return
        followed.audience.discard(audience)
        if not followed.audience:
            del self._followed[sid]
            self._news.unfollow(sid)


@contextlib.contextmanager
def _surviving(what: str) -> Iterator[None]:
    """Log an error and go on: an odd record must not end the process."""
    try:
        yield
    except (RedisUnavailable, RedisRefused):
        pass  # the next look tells
    except Exception as error:  # noqa: BLE001 - any record may be in Redis
        log.error("%s can't be followed: %s", what, frames_of(error))


class _Followed:
    """One session that is followed."""

    def __init__(self, fleet: Fleet, tasks: asyncio.TaskGroup, sid: str, key: str) -> None:
        self.audience: set[Audience] = set()
        self._fleet = fleet
        self._tasks = tasks
        self._sid = sid
        self._key = key
        self._told: OrderedDict[str, None] = OrderedDict()
        """Entries whose outcome was sent."""
        self._heard = 0
        """How often live text was heard: what was read before is older."""
        self._work: tuple[Work, ...] | None = None
        """What worked for the session when all were told last; None if not all were."""
        self._has_work_news = False
        self._is_telling_work = False

    def heard_live(self, text: bytes | None) -> None:
        """Pass on the live text of an answer, or what may have been missed of it."""
        with _surviving(f"session {self._sid[:8]}"):
            self._heard += 1
            if text is None:  # what is shown since before may stay for minutes
                self._tasks.create_task(self.tell_shown(list(self.audience)))
            else:
                self._tell_live(orjson.loads(text), self.audience)

    async def tell_shown(self, audience: Collection[Audience]) -> None:
        """Send these, who are among the audience, what was shown last of a turn that runs."""
        with _surviving(f"session {self._sid[:8]}"):
            heard = self._heard
            shown = await self._fleet.replies.shown(self._sid)
            if shown and heard == self._heard:
                self._tell_live(shown, audience)

    async def tell_asks(self, audience: Collection[Audience]) -> None:
        """Send these, who are among the audience, what people can answer."""
        with _surviving(f"session {self._sid[:8]}"):
            for request in await self._fleet.asks.of_session(self._sid):
                self.tell_ask(request, audience)

    def tell_ask(self, request: Request, audience: Collection[Audience]) -> None:
        """Send these a request to people."""
        self._tell("session.ask", shown(request).told(), audience)

    def heard_work(self) -> None:
        """Tell before long what works for the session."""
        self._has_work_news = True
        if not self._is_telling_work:
            self._is_telling_work = True
            self._tasks.create_task(self._tell_work_changes())

    async def _tell_work_changes(self) -> None:
        try:
            while self._has_work_news and self.audience:
                self._has_work_news = False
                await self.tell_work()
                await asyncio.sleep(WORK_S)
        finally:
            self._is_telling_work = False

    async def tell_work(self, audience: Collection[Audience] | None = None) -> None:
        """Tell those who are new what works for the session; the others only of changes."""
        with _surviving(f"session {self._sid[:8]}"):
            below = await self._fleet.work.below(self._sid)
            if audience is None and below.looks == self._work:
                return
            self._work = below.looks if audience is None else None
            if below.items or audience is None:
                told = tree_of(self._key, below).told()
                self._tell("session.work", told, audience, may_be_missed=bool(below.unfinished))

    def _tell_live(self, shown: dict[str, Any], audience: Collection[Audience]) -> None:
        self._tell("session.live", {**shown, "at": now_ms()}, audience, may_be_missed=True)

    def heard_done(self, entry_id: bytes | None) -> None:
        """Send the outcome of an entry, or all that may have been missed."""
        if entry_id is None:
            self._tasks.create_task(self._retried_look())
        else:
            self._tasks.create_task(self._follow_up(entry_id.decode(errors="replace")))

    async def look(self, *, is_first: bool = False) -> None:
        """Send the newest outcomes that weren't sent yet; the first time, only note them."""
        view = await self._fleet.sessions.view(self._sid)
        entry_id = view.last_entry if view else None
        outcomes = []
        for _ in range(LOOKED_AT):
            outcome = entry_id and await self._fleet.outcomes.read(self._sid, entry_id)
            if not outcome:
                break
            outcomes.append(outcome)
            entry_id = outcome.previous
        for outcome in reversed(outcomes):
            if is_first and outcome.is_final:
                self._told[outcome.entry_id] = None
            else:
                self._tell_of(outcome)

    async def _retried_look(self) -> None:
        with _surviving(f"session {self._sid[:8]}"):
            await self.look()

    async def _follow_up(self, entry_id: str) -> None:
        """Send an entry's outcome."""
        with _surviving(f"session {self._sid[:8]}"):
            if outcome := await self._fleet.outcomes.read(self._sid, entry_id):
                self._tell_of(outcome)

    def _tell_of(self, outcome: Outcome) -> None:
        """Send an outcome, once."""
        if not outcome.is_final or outcome.entry_id in self._told:
            return
        texts = [str(part["text"]) for part in outcome.reply if part["text"]]
        ended = {
            "runId": f"{self._sid}-{outcome.entry_id}",
            "turn": outcome.turn,
            "status": outcome.status,
            "reply": "\n\n".join(texts),
            "error": (outcome.error or {}).get("category"),
            "usage": outcome.usage.plain() if outcome.usage else None,
        }
        self._tell("session.outcome", ended)
        self._told[outcome.entry_id] = None
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)

    def _tell(
        self,
        event: str,
        payload: dict[str, Any],
        audience: Collection[Audience] | None = None,
        *,
        may_be_missed: bool = False,
    ) -> None:
        for one in list(self.audience if audience is None else audience):
            one.tell(event, {"sessionKey": self._key, **payload}, may_be_missed=may_be_missed)
