"""Socket Mode: the connections of an app, and the envelopes that it has to acknowledge."""

import asyncio
import contextlib
import itertools
import json
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from tests.support.slack.clock import Clock

#: How long an envelope waits for its acknowledgement, in seconds.
ACK_S = 3.0
#: The pauses before an event is sent again, in seconds, after its first, second, … failure.
REPEAT_S = (0.0, 60.0, 300.0)
#: The maximum number of connections of an app.
MAX_SOCKETS = 10

Content = dict[str, Any]


@dataclass
class Socket:
    """A connection."""

    id: str
    web: web.WebSocketResponse
    queue: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    is_deaf: bool = False
    """Whether it takes and answers nothing any more, though it is open."""


@dataclass
class Envelope:
    """What an app is told, until it is acknowledged or given up."""

    key: str
    kind: str
    payload: Content
    sent_at: float
    on_ack: Callable[[Content | None], None]
    attempts: list[tuple[str, str]] = field(default_factory=list)
    """The envelope's id and the connection of each time that it was sent, if there was one."""
    acked_after_s: float | None = None
    response: Content | None = None
    acked: asyncio.Event = field(default_factory=asyncio.Event)
    is_given_up: bool = False


class Sockets:
    """The connections of an app. Events are spread over them."""

    def __init__(self, app_id: str, clock: Clock) -> None:
        self.open: dict[str, Socket] = {}
        self.envelopes: dict[str, Envelope] = {}
        """By key, all that were made."""
        self.tickets: set[str] = set()
        self.connected = 0
        """How often a connection was opened."""
        self.closes_at_once = False
        """Whether each new connection is closed at once."""
        self.is_mute = False
        """Whether no new connection is greeted."""
        self.first = ""
        """What a new connection says instead of its greeting."""
        self._app_id = app_id
        self._clock = clock
        self._ids = itertools.count(1)
        self._turn = 0
        self._sent: dict[str, Envelope] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve a connection until it is closed."""
        answer = web.WebSocketResponse(autoping=False)
        await answer.prepare(request)
        self.connected += 1
        socket = Socket(f"s{next(self._ids)}", answer)
        if self.closes_at_once:
            await answer.close()
            return answer
        if len(self.open) >= MAX_SOCKETS:
            await answer.send_json({"type": "disconnect", "reason": "too_many_websockets"})
            await answer.close()
            return answer
        about = {"host": socket.id, "approximate_connection_time": 3600}
        hello = {"num_connections": len(self.open) + 1, "debug_info": about}
        info = {"connection_info": {"app_id": self._app_id}}
        if self.first:
            await answer.send_str(self.first)
        elif not self.is_mute:
            await answer.send_json({"type": "hello", **hello, **info})
        self.open[socket.id] = socket
        writer = self._task(self._write(socket))
        try:
            await self._read(socket)
        finally:
            writer.cancel()
            self._forget(socket)
        return answer

    async def _read(self, socket: Socket) -> None:
        async for message in socket.web:
            if socket.is_deaf:
                continue
            if message.type == WSMsgType.PING:
                await socket.web.pong(message.data)
            elif message.type == WSMsgType.TEXT:
                about = json.loads(message.data)
                self._acknowledge(about["envelope_id"], about.get("payload"))

    async def _write(self, socket: Socket) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await socket.web.send_str(await socket.queue.get())

    def send(
        self,
        kind: str,
        payload: Content,
        *,
        repeats: tuple[float, ...] = (),
        on_ack: Callable[[Content | None], None] = lambda _: None,
    ) -> str:
        """Tell the app something; return the key of its envelope."""
        key = uuid.uuid4().hex
        envelope = Envelope(key, kind, payload, self._clock.now(), on_ack)
        self.envelopes[key] = envelope
        self._attempt(envelope)
        self._task(self._follow(envelope, repeats))
        return key

    async def _follow(self, envelope: Envelope, repeats: tuple[float, ...]) -> None:
        """Send an envelope again until it is acknowledged."""
        for pause_s in (*repeats, None):
            socket, failed_at = self.open.get(envelope.attempts[-1][1]), self._clock.now()
            if socket:
                due_at = failed_at + ACK_S
                await self._until(due_at, envelope.acked, socket.ended)
                failed_at = min(due_at, self._clock.now())
            if pause_s is not None:
                await self._until(failed_at + pause_s, envelope.acked)
            if envelope.acked.is_set():
                return
            if pause_s is not None:
                self._attempt(envelope)
        envelope.is_given_up = True

    async def _until(self, at: float, *events: asyncio.Event) -> None:
        """Wait for a time, or for one of the events."""
        tasks = [self._task(event.wait()) for event in events]
        tasks.append(self._task(self._clock.until(at)))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    def _attempt(self, envelope: Envelope) -> None:
        number, name = len(envelope.attempts), uuid.uuid4().hex
        self._turn += 1
        socket = next(self._turns(), None)
        envelope.attempts.append((name, socket.id if socket else ""))
        if socket is None:
            return
        self._sent[name] = envelope
        about: Content = {"envelope_id": name, "type": envelope.kind, "payload": envelope.payload}
        about["accepts_response_payload"] = envelope.kind != "events_api"
        if envelope.kind == "events_api":
            about |= {"retry_attempt": number, "retry_reason": "timeout" if number else ""}
        socket.queue.put_nowait(json.dumps(about))

    def _turns(self) -> Iterator[Socket]:
        """Yield the connections, the one whose turn it is first."""
        found = list(self.open.values())
        start = self._turn % len(found) if found else 0
        yield from found[start:] + found[:start]

    def _acknowledge(self, name: str, response: Content | None) -> None:
        envelope = self._sent.get(name)
        if envelope is None or envelope.acked.is_set() or envelope.is_given_up:
            return
        envelope.acked_after_s = self._clock.now() - envelope.sent_at
        envelope.response = response
        envelope.acked.set()
        envelope.on_ack(response)

    def say(self, text: str) -> None:
        """Send a text of whatever form to all connections."""
        for socket in self.open.values():
            socket.queue.put_nowait(text)

    async def disconnect(self, reason: str) -> None:
        """Announce the end of all connections; all but a warning closes them, too."""
        for socket in list(self.open.values()):
            await socket.web.send_json({"type": "disconnect", "reason": reason})
            if reason != "warning":
                self._forget(socket)
                self._task(socket.web.close())

    def drop(self) -> None:
        """Lose all connections, without a word."""
        for socket in list(self.open.values()):
            self._forget(socket)
            transport = socket.web._req.transport if socket.web._req else None
            if transport is not None:
                transport.abort()

    def _forget(self, socket: Socket) -> None:
        """End a connection; what waits for an acknowledgement from it has failed."""
        self.open.pop(socket.id, None)
        socket.ended.set()

    def _task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
