"""Feeds of session events, for subscribed clients.

This process subscribes to each session once, for all its clients. Each client receives every
outcome exactly once. Live text may be dropped.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol

import orjson

from remoteclaw.clock import now_ms
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.requests.request import Request
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.fleet.subscriptions import Listener, Subscriptions
from remoteclaw.fleet.turns.outcomes import Outcome
from remoteclaw.gateway.request_view import request_view
from remoteclaw.gateway.task_tree import tree_of
from remoteclaw.host.logs import frames_of
from remoteclaw.messages import TaskStatus
from remoteclaw.tools.sessions import PauseFacts

#: The events of a session.
EVENTS = ("session.live", "session.request", "session.postponed", "session.outcome", "session.work")
#: When announcements may have been missed, the outcomes of this many newest entries are read.
MAX_MISSED_ENTRIES = 32
#: This many entries are remembered as sent: more than `MAX_MISSED_ENTRIES`.
MAX_REMEMBERED = 128
#: The minimum pause between two `session.work` events of a session, in seconds.
WORK_INTERVAL_S = 1.0

log = logging.getLogger(__name__)


class EventReceiver(Protocol):
    """A client that receives events."""

    def send_event(
        self, event: str, payload: dict[str, Any], *, is_droppable: bool = False
    ) -> None:
        """Queue an event. It may be dropped for a slow client if `is_droppable`."""


class Feeds:
    """The sessions that clients of this gateway are subscribed to."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._subscriptions = Subscriptions(fleet.scripts)
        self._feeds: dict[str, _SessionFeed] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._follow_lock = asyncio.Lock()
        self._subscriptions.add_listener(keys.REQUEST_UPDATES, self._on_request)
        self._subscriptions.add_listener(keys.TASK_UPDATES, self._on_task_changes)

    def add_listener(self, channel: str, listener: Listener) -> None:
        """Call `listener`, too, with each announcement on a channel. It must not block."""
        self._subscriptions.add_listener(channel, listener)

    @contextlib.contextmanager
    def announced(self, channels: Iterable[str]) -> Iterator[asyncio.Event]:
        """Yield an event that each announcement on the channels sets, while the block runs."""
        event = asyncio.Event()

        def on_announcement(_: bytes | None) -> None:
            event.set()

        for channel in channels:
            self.add_listener(channel, on_announcement)
        try:
            yield event
        finally:
            for channel in channels:
                self.remove_listener(channel, on_announcement)

    def remove_listener(self, channel: str, listener: Listener) -> None:
        """Stop calling `listener` with a channel's announcements."""
        self._subscriptions.remove_listener(channel, listener)

    async def run(self) -> None:
        """Receive announcements, until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await self._subscriptions.run()

    async def subscribe(self, client: EventReceiver, sid: str, session_key: str) -> None:
        """Start sending a session's events to a client, beginning with its current state."""
        async with self._follow_lock:
            feed = self._feeds.get(sid)
            if feed is None:
                feed = await self._follow(sid, session_key)
            feed.clients.add(client)
        await feed.send_live_text([client])
        await feed.send_requests([client])
        await feed.send_tasks([client])

    async def _follow(self, sid: str, session_key: str) -> "_SessionFeed":
        assert self._tasks is not None, "it runs"
        feed = _SessionFeed(self._fleet, self._tasks, sid, session_key)
        await feed.send_missed_outcomes(is_first=True)
        self._feeds[sid] = feed
        self._subscriptions.follow(sid, on_live_text=feed.on_live_text, on_outcome=feed.on_outcome)
        return feed

    def _on_request(self, request_id: bytes | None) -> None:
        """Send an announced request to its session's clients if it is open.

        None means that announcements may have been missed: send the requests of all sessions.
        """
        assert self._tasks is not None, "it runs"
        self._tasks.create_task(
            self._send_announced_request((request_id or b"").decode(errors="replace"))
        )

    async def _send_announced_request(self, request_id: str) -> None:
        if not request_id:
            for feed in list(self._feeds.values()):
                await feed.send_requests(list(feed.clients))
            return
        with _errors_logged("a request"):
            request = await self._fleet.requests.find(request_id)
            is_open = request is not None and request.state == "open"
            if request and is_open and (own := self._feeds.get(request.session.sid)):
                own.send_request(request, list(own.clients))

    def _on_task_changes(self, sids: bytes | None) -> None:
        """Send the task trees of the announced sessions; None means those of all sessions."""
        changed = set(self._feeds) if sids is None else set(sids.decode().split(","))
        for sid in changed & set(self._feeds):
            self._feeds[sid].on_task_change()

    def unsubscribe(self, client: EventReceiver, sid: str) -> None:
        """Stop sending a session's events to a client."""
        feed = self._feeds.get(sid)
        if feed is None:
            return
        feed.clients.discard(client)
        if not feed.clients:
            del self._feeds[sid]
            self._subscriptions.unfollow(sid)


@contextlib.contextmanager
def _errors_logged(subject: str) -> Iterator[None]:
    """Log an error of the block and suppress it: a broken record must not end the process."""
    try:
        yield
    except (RedisUnavailable, RedisRefused):
        pass  # after reconnecting, everything that may have been missed is sent
    except Exception as error:  # noqa: BLE001 - any record may be in Redis
        log.error("%s can't be followed: %s", subject, frames_of(error))


class _SessionFeed:
    """The feed of one session, to all its clients."""

    def __init__(self, fleet: Fleet, tasks: asyncio.TaskGroup, sid: str, key: str) -> None:
        self.clients: set[EventReceiver] = set()
        self._fleet = fleet
        self._tasks = tasks
        self._sid = sid
        self._key = key
        self._sent_outcomes: OrderedDict[str, None] = OrderedDict()
        """The ids of entries whose outcome was sent, oldest first."""
        self._live_texts = 0
        """How many announcements of live text arrived; it shows that text read earlier is older."""
        self._sent_tasks: tuple[TaskStatus, ...] | None = None
        """The task tree, without ages, that all clients were sent last; None if they differ."""
        self._has_task_change = False
        self._is_sending_tasks = False

    def on_live_text(self, text: bytes | None) -> None:
        """Send announced live text. None means that announcements may have been missed."""
        with _errors_logged(f"session {self._sid[:8]}"):
            self._live_texts += 1
            if text is None:  # the next announcement may be minutes away
                self._tasks.create_task(self.send_live_text(list(self.clients)))
            else:
                self._send_live_text(orjson.loads(text), self.clients)

    async def send_live_text(self, clients: Collection[EventReceiver]) -> None:
        """Send some of the clients the newest live text of the running turn."""
        with _errors_logged(f"session {self._sid[:8]}"):
            before = self._live_texts
            live_text = await self._fleet.replies.live_text(self._sid)
            if live_text and before == self._live_texts:
                self._send_live_text(live_text, clients)

    async def send_requests(self, clients: Collection[EventReceiver]) -> None:
        """Send some of the clients the session's open requests."""
        with _errors_logged(f"session {self._sid[:8]}"):
            for request in await self._fleet.requests.of_session(self._sid):
                self.send_request(request, clients)

    def send_request(self, request: Request, clients: Collection[EventReceiver]) -> None:
        """Send some of the clients a request to people."""
        self._send("session.request", request_view(request).to_json(), clients)

    def on_task_change(self) -> None:
        """Send the task tree soon, because it has changed."""
        self._has_task_change = True
        if not self._is_sending_tasks:
            self._is_sending_tasks = True
            self._tasks.create_task(self._send_task_changes())

    async def _send_task_changes(self) -> None:
        try:
            while self._has_task_change and self.clients:
                self._has_task_change = False
                await self.send_tasks()
                await asyncio.sleep(WORK_INTERVAL_S)
        finally:
            self._is_sending_tasks = False

    async def send_tasks(self, clients: Collection[EventReceiver] | None = None) -> None:
        """Send the task tree to new clients; without `clients`, to all if it has changed."""
        with _errors_logged(f"session {self._sid[:8]}"):
            tree = await self._fleet.task_trees.read(self._sid)
            if clients is None and tree.without_ages == self._sent_tasks:
                return
            self._sent_tasks = tree.without_ages if clients is None else None
            if tree.items or clients is None:
                payload = tree_of(self._key, tree).to_json()
                self._send("session.work", payload, clients, is_droppable=bool(tree.unfinished))

    def _send_live_text(
        self, live_text: dict[str, Any], clients: Collection[EventReceiver]
    ) -> None:
        self._send("session.live", {**live_text, "at": now_ms()}, clients, is_droppable=True)

    def on_outcome(self, entry_id: bytes | None) -> None:
        """Send the outcome of an announced entry; None means all that may have been missed."""
        if entry_id is None:
            self._tasks.create_task(self._try_missed_outcomes())
        else:
            self._tasks.create_task(self._send_outcome_of(entry_id.decode(errors="replace")))

    async def send_missed_outcomes(self, *, is_first: bool = False) -> None:
        """Send the newest outcomes that were not sent yet.

        With `is_first`, only remember them as sent: they are older than the subscription.
        """
        view = await self._fleet.sessions.view(self._sid)
        entry_id = view.last_entry if view else None
        outcomes = []
        for _ in range(MAX_MISSED_ENTRIES):
            outcome = entry_id and await self._fleet.outcomes.read(self._sid, entry_id)
            if not outcome:
                break
            outcomes.append(outcome)
            entry_id = outcome.previous
        for outcome in reversed(outcomes):
            if is_first and outcome.is_final:
                self._sent_outcomes[outcome.entry_id] = None
            else:
                self._send_outcome(outcome)
        if view:
            self._send_pause(view)

    async def _try_missed_outcomes(self) -> None:
        with _errors_logged(f"session {self._sid[:8]}"):
            await self.send_missed_outcomes()

    async def _send_outcome_of(self, entry_id: str) -> None:
        """Read an entry's outcome and send it, or the pause of a postponed session."""
        with _errors_logged(f"session {self._sid[:8]}"):
            outcome = await self._fleet.outcomes.read(self._sid, entry_id)
            if outcome:
                self._send_outcome(outcome)
            if outcome and outcome.pause and (view := await self._fleet.sessions.view(self._sid)):
                self._send_pause(view)

    def _send_pause(self, view: SessionView) -> None:
        if view.postponed_until_ms:
            self._send("session.postponed", PauseFacts.of(view).to_json())

    def _send_outcome(self, outcome: Outcome) -> None:
        """Send a final outcome, unless it was sent before."""
        if not outcome.is_final or outcome.entry_id in self._sent_outcomes:
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
        self._send("session.outcome", ended)
        self._sent_outcomes[outcome.entry_id] = None
        while len(self._sent_outcomes) > MAX_REMEMBERED:
            self._sent_outcomes.popitem(last=False)

    def _send(
        self,
        event: str,
        payload: dict[str, Any],
        clients: Collection[EventReceiver] | None = None,
        *,
        is_droppable: bool = False,
    ) -> None:
        for client in list(self.clients if clients is None else clients):
            client.send_event(
                event, {"sessionKey": self._key, **payload}, is_droppable=is_droppable
            )
