"""Server-sent events: a session, the states of all sessions, a terminal's output or its screen.

The first three are for cockpits, the last one is for guests.

Each stream is a connection of the gateway, like a WebSocket: its token is checked every second.
When the gateway ends, streams end first. The events of a session are read from Redis as fast as the
client accepts them, so nothing is buffered for a slow client.
"""

import asyncio
import base64
import contextlib
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.terminals.state import TerminalRecord
from remoteclaw.gateway.auth.principals import Guest, Operator
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.guard import address_of
from remoteclaw.gateway.terminals.host_terminals import HostTerminals
from remoteclaw.tty.screen import Screen

#: The maximum number of streams of a gateway, and of one operator.
MAX_STREAMS, MAX_STREAMS_PER_OPERATOR = 500, 100
#: If there are no events for this long, in seconds, a comment is sent so that proxies don't close
#: the connection.
KEEP_ALIVE_S = 15.0
#: How long sending a chunk may take, in seconds. After that, the client is disconnected.
SEND_TIMEOUT_S = 20.0
#: The pause before a retry when Redis can't be reached, and the timeout of the last chunk, in
#: seconds.
RETRY_S = 1.0
#: The minimum pause between two reads of all sessions' states, in seconds.
LIST_PAUSE_S = 0.5
#: The maximum number of events that are read at once, and of unstored events that are queued.
BATCH = 100
#: The maximum number of messages in a snapshot.
MAX_MESSAGES = 50
#: How long clients should wait before they reconnect, in milliseconds.
RETRY_MS = 2000
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
END = {"type": "http.response.body", "body": b""}
OUTPUT_NOTE = (
    "The raw output of a program in a terminal, base64: escape sequences that a terminal obeys. "
    "The event vt has the sequences that draw the screen as it is; /screen has it as data."
)
_EVENT_ID = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")


class EventStreams:
    """The event streams of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._open: Counter[str] = Counter()
        self._wakeups: dict[str, set[asyncio.Event]] = {}
        """The events that wake the streams of each session; under "", those of overviews."""
        self._announcements = 0
        """The number of announcements of changed terminals so far."""
        self._list_cache: dict[tuple[str, ...] | None, tuple[int, list[dict[str, Any]]]] = {}
        """The terminals by agent scope, each with `_announcements` at the time of its reading."""
        self._list_lock = asyncio.Lock()
        gateway.feeds.add_listener(keys.TERMINAL_UPDATES, self._on_announcement)

    def _on_announcement(self, sid: bytes | None) -> None:
        """Wake the streams of a session and all overviews; None wakes all streams."""
        self._announcements += 1
        sids = [*self._wakeups] if sid is None else [sid.decode(errors="replace"), ""]
        for each in sids:
            for event in self._wakeups.get(each, ()):
                event.set()

    # -- the streams of cockpits -----------------------------------------------------------------

    async def session(self, request: Request, operator: Operator, sid: str) -> Response:
        """Return the stream of a session's events.

        It begins after the event that the client received last, or else with a snapshot.
        """
        if terminal := await self._terminal(operator, sid):
            sid, session_key = terminal["sid"], terminal["sessionKey"]
        else:
            session = await self._call(operator, "sessions.show", {"sessionKey": sid})
            sid, session_key = session["id"], session["key"]
        after, is_checked = _last_event_id(request), False

        async def events(inbox: "StreamInbox") -> AsyncIterator[bytes]:
            nonlocal after, is_checked
            terminals = self._gateway.fleet.terminals
            if not (is_checked or after is None or await self._is_available(sid, after)):
                yield _event("reset", {})
                after = None
            is_checked = True
            if after is None:
                newest = (await terminals.event_range(sid))[1] or "0-0"
                snapshot = await self._snapshot(operator, sid)
                after = newest
                yield _event("snapshot", snapshot, newest)
            while True:
                inbox.changed.clear()
                while inbox.events:
                    yield _event(*inbox.events.popleft())
                new = await terminals.events(sid, after, count=BATCH)
                if new:
                    after = new[-1].id
                    yield b"".join(
                        _event(str(each.data.get("type", "message")), each.data, each.id)
                        for each in new
                    )
                else:
                    yield await inbox.wait()

        return self._stream(operator, sid, events, session_key=session_key)

    async def _is_available(self, sid: str, event_id: str) -> bool:
        """Whether all events after `event_id` are still kept."""
        first, last = await self._gateway.fleet.terminals.event_range(sid)
        if not first or not _EVENT_ID.fullmatch(event_id):
            return False
        return _position(first) <= _position(event_id) <= _position(last)

    async def _snapshot(self, operator: Operator, sid: str) -> dict[str, Any]:
        terminal = await self._terminal(operator, sid)
        history = {"sessionKey": sid, "limit": MAX_MESSAGES}
        page = await self._call(operator, "sessions.history", history)
        return {"terminal": terminal, "messages": page["items"][-MAX_MESSAGES:]}

    async def _terminal(self, operator: Operator, sid: str) -> dict[str, Any] | None:
        """Return a session's terminal; None if it has had none recently, or does not exist."""
        try:
            return await self._call(operator, "terminals.get", {"sid": sid})
        except CallRefused as refused:
            if refused.code != "NOT_FOUND":
                raise
            return None

    async def overview(self, _request: Request, operator: Operator, _sid: str) -> Response:
        """Return the stream of the states of all terminals that `operator` may see."""
        await self._call(operator, "terminals.list", {"limit": 1})

        async def events(inbox: "StreamInbox") -> AsyncIterator[bytes]:
            sent: dict[str, dict[str, Any]] | None = None
            while True:
                inbox.changed.clear()
                now = {each["sid"]: each for each in await self._terminals_of(operator)}
                if sent is None:
                    yield _event("snapshot", {"terminals": [*now.values()]})
                else:
                    changed = [each for sid, each in now.items() if sent.get(sid) != each]
                    gone = [{"sid": sid} for sid in sent.keys() - now.keys()]
                    yield b"".join(_event("state", each) for each in changed)
                    yield b"".join(_event("gone", each) for each in gone)
                sent = now
                yield await inbox.wait()
                await asyncio.sleep(LIST_PAUSE_S)

        return self._stream(operator, "", events)

    async def _terminals_of(self, operator: Operator) -> list[dict[str, Any]]:
        """Return the terminals that `operator` may see, from a cache by agent scope."""
        async with self._list_lock:
            as_of, terminals = self._list_cache.get(operator.agents, (-1, []))
            if as_of != self._announcements:
                as_of = self._announcements
                result = await self._call(operator, "terminals.list", {"limit": 1000})
                terminals = result["terminals"]
                cache = self._list_cache.items()
                fresh = {agents: cached for agents, cached in cache if cached[0] == as_of}
                self._list_cache = {**fresh, operator.agents: (as_of, terminals)}
            return terminals

    async def output(self, request: Request, operator: Operator, sid: str) -> Response:
        """Return the stream of a terminal's raw output, after the client's offset if it has one."""
        address = address_of(request.scope)
        screen = await self._call(operator, "terminals.screen", {"sid": sid}, address=address)
        last_id = _last_event_id(request) or ""
        offset = int(last_id) if re.fullmatch(r"[0-9]{1,18}", last_id) else None

        async def events(_inbox: "StreamInbox") -> AsyncIterator[bytes]:
            yield _event("about", {"text": OUTPUT_NOTE})
            record = await self._gateway.fleet.terminals.record(screen["sid"])
            if record is None:
                return
            output = self._gateway.terminals.output(record, offset)
            async with contextlib.aclosing(output) as parts:
                async for part in _with_idle_marks(parts):
                    yield KEEP_ALIVE if part is None else _output_event(*part)
            yield _event("ended", {})

        return self._stream(operator, screen["sid"], events)

    # -- the stream of guests ------------------------------------------------------------------

    def screen(self, guest: Guest, record: TerminalRecord) -> Response:
        """Return the stream of a terminal's screen and state for a guest.

        Raises `CallRefused` above the limits on streams.
        """
        about = {
            "by": guest.by,
            "untilMs": guest.expires_ms,
            "state": record.state,
            "activity": record.activity,
        }

        async def events(inbox: "StreamInbox") -> AsyncIterator[bytes]:
            yield _event("about", about)
            while True:
                inbox.changed.clear()
                while inbox.events:
                    yield _event(*inbox.events.popleft())
                yield await inbox.wait()

        self._check_limits(guest)
        return _GuestResponse(self, guest, events, record)

    async def _call(
        self, operator: Operator, method: str, params: Mapping[str, Any], *, address: str = ""
    ) -> dict[str, Any]:
        """Call a method, and return its result as a JSON object."""
        result, _ = await self._gateway.call(operator, method, params, address=address)
        content: dict[str, Any] = result.model_dump(mode="json")
        return content

    # -- connections ---------------------------------------------------------------------------

    def _stream(
        self,
        operator: Operator,
        sid: str,
        events: "Callable[[StreamInbox], AsyncIterator[bytes]]",
        *,
        session_key: str = "",
    ) -> Response:
        """Return the response that streams `events`. Raises `CallRefused` above the limits."""
        self._check_limits(operator)
        return _StreamResponse(self, operator, sid, events, session_key)

    def _check_limits(self, owner: Operator | Guest) -> None:
        """Raise `CallRefused` if too many streams are open."""
        is_full = self._open[owner.credential] >= MAX_STREAMS_PER_OPERATOR
        if self._open.total() >= MAX_STREAMS or is_full:
            raise CallRefused(
                "TOO_MANY", "Too many streams are open: close some.", retry_after_s=RETRY_MS / 1000
            )

    @contextlib.asynccontextmanager
    async def registered(self, stream: "_StreamResponse") -> AsyncIterator[None]:
        """Count a stream, and send it announcements and its session's requests to people."""
        owner, sid = stream.principal.credential, stream.sid
        self._open[owner] += 1
        self._wakeups.setdefault(sid, set()).add(stream.inbox.changed)
        try:
            if stream.session_key:
                await self._gateway.feeds.subscribe(stream, sid, stream.session_key)
            with self._gateway.connected(stream), stream.watching(self._gateway.terminals):
                yield
        finally:
            self._gateway.feeds.unsubscribe(stream, sid)
            self._open -= Counter((owner,))  # removes an operator without streams
            self._wakeups[sid].discard(stream.inbox.changed)
            if not self._wakeups[sid]:
                del self._wakeups[sid]


class StreamInbox:
    """The inbox of a stream: wakes it when something has changed, and queues unstored events."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.events: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=BATCH)
        """The names and data of events that are not stored, and were not sent yet."""

    def add(self, name: str, payload: Mapping[str, Any]) -> None:
        """Queue an event; live text replaces the one that a slow client has not read."""
        if name == "live" and self.events and self.events[-1][0] == "live":
            self.events.pop()
        self.events.append((name, payload))
        self.changed.set()

    async def wait(self) -> bytes:
        """Wait for a change. Return b"", or a comment to send if nothing changed for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KEEP_ALIVE_S):
                await self.changed.wait()
                return b""
        return KEEP_ALIVE


KEEP_ALIVE = b":\n\n"
#: The events of a session that its stream has without an id, by their names over WebSockets.
UNSTORED = {
    "session.request": "request",
    "session.live": "live",
    "session.outcome": "outcome",
    "terminal.bell": "bell",
}


class _StreamResponse(Response):
    """The response of one stream, which is also a client of the gateway."""

    def __init__(
        self,
        streams: EventStreams,
        principal: Operator | Guest,
        sid: str,
        events: Callable[[StreamInbox], AsyncIterator[bytes]],
        session_key: str,
    ) -> None:
        super().__init__()
        self.principal = principal
        self.sid = sid
        self.session_key = session_key
        self.inbox = StreamInbox()
        self._streams = streams
        self._events = events
        self._ended = asyncio.Event()

    def watching(self, terminals: HostTerminals) -> contextlib.AbstractContextManager[None]:
        """Count the stream as a viewer of its session's terminals during the context."""
        return terminals.listening(self.sid, self) if self.sid else contextlib.nullcontext()

    def send_event(
        self, event: str, payload: dict[str, Any], *, is_droppable: bool = False
    ) -> None:
        """Queue an event that is not stored, or end the stream when the gateway ends.

        Other events are only for WebSockets.
        """
        if event == "shutdown":
            self._ended.set()
        elif self.session_key and (name := UNSTORED.get(event)):
            self.inbox.add(name, payload)

    def end(self, code: int, reason: str) -> None:
        """Start closing the stream."""
        self._ended.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the client, the gateway or the source of events ends it."""
        async with self._streams.registered(self):
            await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS]})
            tasks = [
                asyncio.ensure_future(each)
                for each in (_wait_for_disconnect(receive), self._ended.wait(), self._write(send))
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            is_over = tasks[0] in done
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(RETRY_S):
                    await send(END)
                    is_over = True
        if not is_over:  # this ends once the client reads, or the kernel closes the connection
            with contextlib.suppress(OSError):
                await send(END)

    async def _write(self, send: Send) -> None:
        """Send events until their source ends, or the client is too slow or gone."""
        await _send_chunk(send, b"retry: %d\n\n" % RETRY_MS)
        with contextlib.suppress(TimeoutError, OSError, CallRefused):
            while True:
                try:
                    async with contextlib.aclosing(self._events(self.inbox)) as parts:  # type: ignore[type-var]
                        async for part in parts:
                            await _send_chunk(send, part)
                    return
                except (RedisUnavailable, RedisRefused):  # then `events` starts again
                    await asyncio.sleep(RETRY_S)
                    await _send_chunk(send, KEEP_ALIVE)


class _GuestResponse(_StreamResponse):
    """The stream of a guest, who gets the screen and the program's activity, and nothing else."""

    def __init__(
        self,
        streams: EventStreams,
        guest: Guest,
        events: Callable[[StreamInbox], AsyncIterator[bytes]],
        record: TerminalRecord,
    ) -> None:
        super().__init__(streams, guest, record.sid, events, "")
        self._record = record

    @contextlib.contextmanager
    def watching(self, terminals: HostTerminals) -> Iterator[None]:
        """Watch the terminal during the context. Raises `CallRefused`."""
        terminals.watch(self, None, self._record)
        try:
            yield
        finally:
            terminals.leave(self, self.sid, for_good=True)

    @property
    def is_slow(self) -> bool:
        """Whether the guest has not yet read the last frame."""
        return bool(self.inbox.events)

    def send_event(
        self, event: str, payload: dict[str, Any], *, is_droppable: bool = False
    ) -> None:
        """Queue a frame or a state, or end the stream with the terminal or the gateway.

        The rest of an event is about the session, and not for guests.
        """
        match event:
            case "terminal.screen":
                shown = {name: payload[name] for name in _GUEST_FRAME if name in payload}
                self.inbox.events.append(("screen", shown))
            case "terminal.state":
                shown = {name: payload[name] for name in ("state", "activity")}
                self.inbox.events.append(("state", shown))
            case "terminal.gone" | "shutdown":
                self._ended.set()
        self.inbox.changed.set()


#: The fields of a frame that guests get: what the screen shows, without the scrollback's size.
_GUEST_FRAME = ("revision", "since", "cols", "rows", "lines", "cursor", "title")


async def _wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_chunk(send: Send, part: bytes) -> None:
    """Send a chunk unless it is empty. Raises `TimeoutError` if the client does not read."""
    if part:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await send({"type": "http.response.body", "body": part, "more_body": True})


def _output_event(offset: int, part: bytes | Screen) -> bytes:
    """Return the event for output at an offset, or for the screen as it is at that offset."""
    vt = part if isinstance(part, bytes) else part.vt()
    data = {"offset": offset, "encoding": "base64", "data": base64.b64encode(vt).decode()}
    if isinstance(part, bytes):
        return _event("output", data, str(offset + len(part)))
    cols, rows = part.size
    return _event("vt", {"cols": cols, "rows": rows, **data}, str(offset))


async def _with_idle_marks(
    parts: AsyncIterator[tuple[int, bytes | Screen]],
) -> AsyncIterator[tuple[int, bytes | Screen] | None]:
    """Yield parts as they arrive, and None whenever none has arrived for `KEEP_ALIVE_S`."""
    next_part = asyncio.ensure_future(anext(parts, None))
    try:
        while True:
            await asyncio.wait((next_part,), timeout=KEEP_ALIVE_S)
            if not next_part.done():
                yield None
            elif (part := next_part.result()) is None:
                return
            else:
                yield part
                next_part = asyncio.ensure_future(anext(parts, None))
    finally:
        next_part.cancel()


def _last_event_id(request: Request) -> str | None:
    """Return the id of the event that a client received last; None if it names none."""
    return request.headers.get("last-event-id") or request.query_params.get("after") or None


def _position(event_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in event_id.split("-"))


def _event(name: str, data: Mapping[str, Any], event_id: str = "") -> bytes:
    """Return the encoded event. Its JSON contains no line breaks."""
    head = f"id: {event_id}\n" if event_id else ""
    kind = name if re.fullmatch("[a-z]{1,20}", name) else "message"
    return f"{head}event: {kind}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"
