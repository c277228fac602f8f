"""Server-sent events for cockpits: one session's, all sessions' states, a terminal's raw output.

Each stream is a connection of the gateway like a WebSocket: its token is looked at each second, and
it is the first to end. What a session tells is read from Redis as fast as the client takes it, so
nothing waits for a slow one.
"""

import asyncio
import base64
import contextlib
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.principals import Operator
from remoteclaw.tty.screen import Screen

#: How many streams a gateway has, and how many of them one operator.
MOST, MAX_OF_ONE = 500, 100
#: How often something is sent, in seconds, so that whatever is in front sees that it lives.
KEEP_ALIVE_S = 15.0
#: How long a client may take nothing of what is sent, in seconds; then it is cut.
SLOW_S = 20.0
#: The pause before Redis is asked again, and between two looks at all sessions, in seconds.
AGAIN_S, LOOK_S = 1.0, 0.5
#: How many events are read at once, and how many messages a snapshot has.
AT_ONCE, MAX_MESSAGES = 100, 50
#: What a client is to wait before it connects again, in milliseconds.
RETRY_MS = 2000
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
END = {"type": "http.response.body", "body": b""}
RAW = (
    "The raw output of a program in a terminal, base64: escape sequences that a terminal obeys. "
    "/screen and the event screen have what it shows as data."
)
_ID = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")


class Streams:
    """The streams of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._open: Counter[str] = Counter()
        self._waiting: dict[str, set[asyncio.Event]] = {}
        """The waiting streams by session; under "", those that wait for news of any."""
        self._news = 0
        """How often anything was announced."""
        self._lists: dict[tuple[str, ...] | None, tuple[int, list[dict[str, Any]]]] = {}
        """The terminals that are told to tokens for some agents, as of some news."""
        self._listing = asyncio.Lock()
        gateway.feeds.hear(keys.TERMINAL, self._heard)

    def _heard(self, sid: bytes | None) -> None:
        """Wake those who wait for a session's news; all, where something may have been missed."""
        self._news += 1
        named = [*self._waiting] if sid is None else [sid.decode(errors="replace"), ""]
        for name in named:
            for event in self._waiting.get(name, ()):
                event.set()

    # -- the three streams ---------------------------------------------------------------------

    async def session(self, request: Request, operator: Operator, sid: str) -> Response:
        """Return the events of a session, from now on or behind the one that was seen last."""
        record = await self._told(operator, "terminals.get", {"sid": sid})
        after, is_sure = _seen(request), False

        async def events(waiting: "Waiting") -> AsyncIterator[bytes]:
            nonlocal after, is_sure
            terminals = self._gateway.fleet.terminals
            if not (is_sure or after is None or await self._is_known(record["sid"], after)):
                yield _event("reset", {})
                after = None
            is_sure = True
            if after is None:
                newest = (await terminals.edges(record["sid"]))[1] or "0-0"
                snapshot = await self._snapshot(operator, record["sid"])
                after = newest
                yield _event("snapshot", snapshot, newest)
            while True:
                waiting.news.clear()
                while waiting.asks:
                    yield _event("ask", waiting.asks.popleft())
                found = await terminals.events(record["sid"], after, count=AT_ONCE)
                if found:
                    after = found[-1].id
                    yield b"".join(
                        _event(str(one.told.get("type", "message")), one.told, one.id)
                        for one in found
                    )
                else:
                    yield await waiting.for_news()

        return self._stream(operator, record["sid"], events, session_key=record["sessionKey"])

    async def _is_known(self, sid: str, event_id: str) -> bool:
        """Whether all that was told behind an event is still there."""
        first, last = await self._gateway.fleet.terminals.edges(sid)
        if not first or not _ID.fullmatch(event_id):
            return False
        return _order(first) <= _order(event_id) <= _order(last)

    async def _snapshot(self, operator: Operator, sid: str) -> dict[str, Any]:
        record = await self._told(operator, "terminals.get", {"sid": sid})
        history = {"sessionKey": sid, "limit": MAX_MESSAGES}
        told = await self._told(operator, "chat.history", history)
        return {"terminal": record, "messages": told["items"][-MAX_MESSAGES:]}

    async def overview(self, _request: Request, operator: Operator, _sid: str) -> Response:
        """Return the states of all sessions with terminals that an operator may see."""
        await self._told(operator, "terminals.list", {"limit": 1})

        async def events(waiting: "Waiting") -> AsyncIterator[bytes]:
            sent: dict[str, dict[str, Any]] | None = None
            while True:
                waiting.news.clear()
                now = {one["sid"]: one for one in await self._listed(operator)}
                if sent is None:
                    yield _event("snapshot", {"terminals": [*now.values()]})
                else:
                    changed = [one for sid, one in now.items() if sent.get(sid) != one]
                    gone = [{"sid": sid} for sid in sent.keys() - now.keys()]
                    yield b"".join(_event("state", one) for one in changed)
                    yield b"".join(_event("gone", one) for one in gone)
                sent = now
                yield await waiting.for_news()
                await asyncio.sleep(LOOK_S)

        return self._stream(operator, "", events)

    async def _listed(self, operator: Operator) -> list[dict[str, Any]]:
        """Return the terminals that an operator may see, which all with the same rights share."""
        async with self._listing:
            news, found = self._lists.get(operator.agents, (-1, []))
            if news != self._news:
                news = self._news
                told = await self._told(operator, "terminals.list", {"limit": 1000})
                found = told["terminals"]
                kept = {whose: it for whose, it in self._lists.items() if it[0] == self._news}
                self._lists = {**kept, operator.agents: (news, found)}
            return found

    async def output(self, request: Request, operator: Operator, sid: str) -> Response:
        """Return the raw output of a terminal, from now on or from a place in it."""
        screen = await self._told(operator, "terminals.screen", {"sid": sid})
        seen = _seen(request) or ""
        offset = int(seen) if re.fullmatch(r"[0-9]{1,18}", seen) else None

        async def events(_waiting: "Waiting") -> AsyncIterator[bytes]:
            yield _event("about", {"text": RAW})
            record = await self._gateway.fleet.terminals.record(screen["sid"])
            if record is None:
                return
            output = self._gateway.terminals.output(record, offset)
            async with contextlib.aclosing(output) as parts:
                async for part in _with_pauses(parts):
                    yield KEPT_ALIVE if part is None else _of_output(*part)
            yield _event("ended", {})

        return self._stream(operator, screen["sid"], events)

    async def _told(
        self, operator: Operator, method: str, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        result, _ = await self._gateway.call(operator, method, params)
        told: dict[str, Any] = result.model_dump(mode="json")
        return told

    # -- connections ---------------------------------------------------------------------------

    def _stream(
        self,
        operator: Operator,
        sid: str,
        events: "Callable[[Waiting], AsyncIterator[bytes]]",
        *,
        session_key: str = "",
    ) -> Response:
        """Return the answer that streams events. Raises `CallRefused` where there are too many."""
        who = operator.credential
        if self._open.total() >= MOST or self._open[who] >= MAX_OF_ONE:
            raise CallRefused(
                "TOO_MANY", "Too many streams are open: close some.", retry_after_s=RETRY_MS / 1000
            )
        return _Streaming(self, operator, sid, events, session_key)

    @contextlib.asynccontextmanager
    async def opened(self, stream: "_Streaming") -> AsyncIterator[None]:
        """Count a stream, and have it told what is new, and what its session asks people."""
        who, sid = stream.principal.credential, stream.sid
        self._open[who] += 1
        self._waiting.setdefault(sid, set()).add(stream.waiting.news)
        try:
            if stream.session_key:
                await self._gateway.feeds.subscribe(stream, sid, stream.session_key)
            with self._gateway.connected(stream):
                yield
        finally:
            self._gateway.feeds.unsubscribe(stream, sid)
            self._open -= Counter((who,))  # forgets those who have none
            self._waiting[sid].discard(stream.waiting.news)
            if not self._waiting[sid]:
                del self._waiting[sid]


class Waiting:
    """How a stream waits for news."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.asks: deque[Mapping[str, Any]] = deque(maxlen=AT_ONCE)
        """What people are asked, and were not told yet."""

    async def for_news(self) -> bytes:
        """Wait for news; return what is sent where there are none for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KEEP_ALIVE_S):
                await self.news.wait()
                return b""
        return KEPT_ALIVE


KEPT_ALIVE = b":\n\n"


class _Streaming(Response):
    """One stream, as a client of the gateway."""

    def __init__(
        self,
        streams: Streams,
        principal: Operator,
        sid: str,
        events: Callable[[Waiting], AsyncIterator[bytes]],
        session_key: str,
    ) -> None:
        super().__init__()
        self.principal = principal
        self.sid = sid
        self.session_key = session_key
        self.waiting = Waiting()
        self._streams = streams
        self._events = events
        self._ended = asyncio.Event()

    def tell(self, event: str, payload: dict[str, Any], *, may_be_missed: bool = False) -> None:
        """Take what people are asked; end with the gateway, before it waits for what runs.

        Other events are for WebSockets.
        """
        if event == "shutdown":
            self._ended.set()
        elif event == "session.ask":
            self.waiting.asks.append(payload)
            self.waiting.news.set()

    def end(self, code: int, reason: str) -> None:
        """Begin to close it."""
        self._ended.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until one of us ends it."""
        async with self._streams.opened(self):
            await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS]})
            duties = [
                asyncio.ensure_future(one)
                for one in (_left(receive), self._ended.wait(), self._write(send))
            ]
            try:
                done, _ = await asyncio.wait(duties, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for duty in duties:
                    duty.cancel()
                await asyncio.gather(*duties, return_exceptions=True)
            is_over = duties[0] in done
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(AGAIN_S):
                    await send(END)
                    is_over = True
        if not is_over:  # it ends once the client takes something, or the kernel cuts it
            with contextlib.suppress(OSError):
                await send(END)

    async def _write(self, send: Send) -> None:
        """Write events until the client takes them no more, or is gone."""
        await _send_part(send, b"retry: %d\n\n" % RETRY_MS)
        with contextlib.suppress(TimeoutError, OSError, CallRefused):
            while True:
                try:
                    async with contextlib.aclosing(self._events(self.waiting)) as parts:  # type: ignore[type-var]
                        async for part in parts:
                            await _send_part(send, part)
                    return
                except (RedisUnavailable, RedisRefused):  # then it begins with a snapshot again
                    await asyncio.sleep(AGAIN_S)
                    await _send_part(send, KEPT_ALIVE)


async def _left(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_part(send: Send, part: bytes) -> None:
    """Send a part; raises `TimeoutError` for a client that takes nothing."""
    if part:
        async with asyncio.timeout(SLOW_S):
            await send({"type": "http.response.body", "body": part, "more_body": True})


def _of_output(offset: int, part: bytes | Screen) -> bytes:
    """Return what was printed at an offset as it is sent, or the screen as it is there."""
    if isinstance(part, bytes):
        text = base64.b64encode(part).decode()
        told = {"offset": offset, "encoding": "base64", "data": text}
        return _event("output", told, str(offset + len(part)))
    told = {"offset": offset, "frame": part.frame(None), "text": part.text()}
    return _event("screen", told, str(offset))


async def _with_pauses(
    parts: AsyncIterator[tuple[int, bytes | Screen]],
) -> AsyncIterator[tuple[int, bytes | Screen] | None]:
    """Yield parts as they come, and None where none has come for a while."""
    coming = asyncio.ensure_future(anext(parts, None))
    try:
        while True:
            await asyncio.wait((coming,), timeout=KEEP_ALIVE_S)
            if not coming.done():
                yield None
            elif (part := coming.result()) is None:
                return
            else:
                yield part
                coming = asyncio.ensure_future(anext(parts, None))
    finally:
        coming.cancel()


def _seen(request: Request) -> str | None:
    """Return the id of the event that a client has seen last; None if it has seen none."""
    return request.headers.get("last-event-id") or request.query_params.get("after") or None


def _order(event_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in event_id.split("-"))


def _event(name: str, data: Mapping[str, Any], event_id: str = "") -> bytes:
    """Return an event as it is sent; JSON has no line ends."""
    head = f"id: {event_id}\n" if event_id else ""
    kind = name if re.fullmatch("[a-z]{1,20}", name) else "message"
    return f"{head}event: {kind}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"
