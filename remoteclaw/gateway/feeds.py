"""Feeds of session events, for subscribed clients.

Each session is followed once, for all its subscribers. Every outcome is told once to each of them;
of the live text, some may be missed.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Protocol

import orjson

from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.outcomes import Outcome
from remoteclaw.fleet.subscriptions import Subscriptions
from remoteclaw.host.logs import frames_of

__all__ = ["EVENTS", "Audience", "Feeds"]

#: What a client may be told of a session.
EVENTS = ("session.live", "session.outcome", "delivery")
#: How many sessions a gateway follows: a bound for its memory, far beyond what people look at.
MOST_SESSIONS = 1000
#: How many of a session's newest entries are looked at when announcements may have been missed.
LOOKED_AT = 32
#: Of how many entries it is known that they were told of: more than are looked at.
REMEMBERED = 128
#: When it is looked whether an answer was delivered, in seconds after its outcome.
DELIVERY_AFTER_S = (0.25, 0.5, 1.0, 2.0, 5.0, 15.0)

log = logging.getLogger(__name__)


class Audience(Protocol):
    """A client that hears of sessions."""

    def tell(self, event: str, payload: dict[str, Any], *, may_be_missed: bool = False) -> None:
        """Send an event, without waiting."""


class Feeds:
    """The sessions that clients of this gateway follow."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._news = Subscriptions(fleet.scripts)
        self._followed: dict[str, _Followed] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._beginning = asyncio.Lock()

    async def run(self) -> None:
        """Follow them, for ever."""
        async with asyncio.TaskGroup() as self._tasks:
            await self._news.run()

    async def subscribe(self, audience: Audience, sid: str, session_key: str) -> None:
        """Have an audience told of a session, from now on."""
        async with self._beginning:
            followed = self._followed.get(sid)
            if followed is None:
                followed = await self._follow(sid, session_key)
            followed.audience.add(audience)

    async def _follow(self, sid: str, session_key: str) -> "_Followed":
        if len(self._followed) >= MOST_SESSIONS:
            raise CallRefused("UNAVAILABLE", "This gateway follows too many sessions by now.")
        assert self._tasks is not None, "it runs"
        followed = _Followed(self._fleet, self._tasks, sid, session_key)
        await followed.look(is_first=True)
        self._followed[sid] = followed
        self._news.follow(sid, live=followed.heard_live, done=followed.heard_done)
        return followed

    def unsubscribe(self, audience: Audience, sid: str) -> None:
        """Tell an audience nothing more of a session."""
        followed = self._followed.get(sid)
        if followed is None:
            return
        followed.audience.discard(audience)
        if not followed.audience:
            del self._followed[sid]
            self._news.unfollow(sid)


class _Followed:
    """One session that somebody follows."""

    def __init__(self, fleet: Fleet, tasks: asyncio.TaskGroup, sid: str, key: str) -> None:
        self.audience: set[Audience] = set()
        self._fleet = fleet
        self._tasks = tasks
        self._sid = sid
        self._key = key
        self._told: OrderedDict[str, bool] = OrderedDict()
        """Entries whose outcome was told, and whether their delivery was."""

    def heard_live(self, text: bytes | None) -> None:
        """Pass on an answer as far as it has come."""
        with self._surviving():
            if text is not None:
                self._tell("session.live", orjson.loads(text), may_be_missed=True)

    def heard_done(self, entry_id: bytes | None) -> None:
        """Find out what became of an entry, or of all that may have been missed."""
        if entry_id is None:
            self._tasks.create_task(self._retried_look())
        else:
            self._tasks.create_task(self._follow_up(entry_id.decode(errors="replace")))

    async def look(self, *, is_first: bool = False) -> None:
        """Tell of the newest outcomes that weren't told of yet; the first time, only note them."""
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
                self._told[outcome.entry_id] = True
            elif self._tell_of(outcome):
                self._tasks.create_task(self._follow_up(outcome.entry_id))

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        """Go on behind a look that fails: an odd record must not end the process."""
        try:
            yield
        except (RedisUnavailable, RedisRefused):
            pass  # it is looked again
        except Exception as error:  # noqa: BLE001 - whatever stands in Redis
            log.error("session %s can't be followed: %s", self._sid[:8], frames_of(error))

    async def _retried_look(self) -> None:
        with self._surviving():
            await self.look()

    async def _follow_up(self, entry_id: str) -> None:
        """Tell what became of an entry, then when the answer was delivered, if that is soon."""
        for pause in (0.0, *DELIVERY_AFTER_S):
            await asyncio.sleep(pause)
            if not self.audience:
                return
            with self._surviving():
                outcome = await self._fleet.outcomes.read(self._sid, entry_id)
                if outcome is None:
                    return
                self._tell_of(outcome)
                if self._told.get(entry_id, True):
                    return

    def _tell_of(self, outcome: Outcome) -> bool:
        """Tell of an outcome and of its delivery, each once; return whether any was told."""
        if not outcome.is_final:
            return False
        run = {"runId": f"{self._sid}-{outcome.entry_id}"}
        was_told = self._told.get(outcome.entry_id)
        if was_told is None:
            texts = [str(part["text"]) for part in outcome.reply if part["text"]]
            category = (outcome.error or {}).get("category")
            ended = {"status": outcome.status, "reply": "\n\n".join(texts), "error": category}
            self._tell("session.outcome", {**run, "turn": outcome.turn, **ended})
        is_delivered = any(step.name == "delivered" for step in outcome.steps)
        if is_delivered and not was_told:
            at = next(step.at_ms for step in outcome.steps if step.name == "delivered")
            self._tell("delivery", {**run, "at": at})
        self._told[outcome.entry_id] = is_delivered or bool(was_told)
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        return was_told is None

    def _tell(self, event: str, payload: dict[str, Any], *, may_be_missed: bool = False) -> None:
        for one in list(self.audience):
            one.tell(event, {"sessionKey": self._key, **payload}, may_be_missed=may_be_missed)
