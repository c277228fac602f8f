"""The gateway over WebSocket: frames of JSON, protocol 3.

The gateway sends `connect.challenge`. The client's first frame is the request `connect` with its
token. After that, the gateway answers each request as soon as its call has finished, and sends
events of subscribed sessions.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from typing import Any

import orjson
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from remoteclaw import __version__
from remoteclaw.clock import now_ms
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.gateway.agent_scope import may_call
from remoteclaw.gateway.auth.principals import Operator, Principal
from remoteclaw.gateway.doors.frames import (
    RETRYABLE,
    Connect,
    RequestFrame,
    encoded,
    error_frame,
    explained,
    result_frame,
)
from remoteclaw.gateway.feeds import EVENTS
from remoteclaw.gateway.follows import Answer, follow
from remoteclaw.gateway.gateway import TICK_S, Gateway
from remoteclaw.gateway.guard import address_of
from remoteclaw.gateway.limits import MAX_REQUEST_BYTES
from remoteclaw.gateway.terminals.viewers import EVENTS as TERMINAL_EVENTS
from remoteclaw.tools.base import SCOPES, Result
from remoteclaw.tools.catalog import METHODS

PROTOCOL = 3
#: How long a client may take from the upgrade to `connect`, in seconds.
HANDSHAKE_S = 3.0
#: The maximum size of frames that wait for a slow client, in bytes. Beyond it, the client is
#: disconnected.
MAX_BUFFERED_BYTES = 8 * 1024 * 1024
#: If more than this waits for a client, in bytes, events that may be dropped are dropped.
LIVE_BUFFERED_BYTES = 64 * 1024
#: The maximum number of sessions that one client is subscribed to.
MAX_SUBSCRIPTIONS = 64
#: The maximum number of calls whose results one client follows.
MAX_FOLLOWED = 64
#: How long sending the last frames, and then the close, may take, in seconds.
CLOSE_S = 0.5


class WebSocketDoor:
    """Answers WebSocket connections."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, until it ends."""
        await receive()
        connection = WebSocketConnection(self._gateway, receive, send, address=address_of(scope))
        await self.answer(connection, send)

    async def answer(self, connection: "WebSocketConnection", send: Send) -> None:
        """Accept a connection and serve it until it ends."""
        with self._gateway.connected(connection):
            await send({"type": "websocket.accept"})
            await connection.run()


class WebSocketConnection:
    """The connection of one client."""

    is_page = False
    """Whether the client is a browser that has logged in to the page."""

    def __init__(self, gateway: Gateway, receive: Receive, send: Send, *, address: str) -> None:
        self.principal: Principal | None = None
        self._address = address
        self._gateway = gateway
        self._receive = receive
        self._send = send
        self._outgoing: deque[bytes] = deque()
        self._buffered = 0
        self._has_outgoing, self._has_sent_all = asyncio.Event(), asyncio.Event()
        self._closing: tuple[int, str] | None = None
        self._is_closing = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._followed: dict[str, asyncio.Task[None]] = {}
        """The calls whose results the client follows, by the ids of their requests."""
        self._sessions: set[str] = set()
        self._event_count = 0

    async def run(self) -> None:
        """Serve the client until either side ends the connection."""
        self.send_event("connect.challenge", {"nonce": secrets.token_hex(16), "ts": now_ms()})
        try:
            async with asyncio.TaskGroup() as tasks:
                io_tasks = [tasks.create_task(self._write()), tasks.create_task(self._read(tasks))]
                await self._is_closing.wait()
                for call in self._calls:
                    call.cancel()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_S):
                        await self._has_sent_all.wait()
                for task in io_tasks:
                    task.cancel()
        finally:
            self._gateway.chats.leave(self)
            self._gateway.terminals.leave(self)
            for sid in self._sessions:
                self._gateway.feeds.unsubscribe(self, sid)
            await self._close()

    def token_of(self, credential: str) -> str:
        """Return the token of a client that has sent `credential` in `connect`."""
        return credential

    # -- called by the gateway -----------------------------------------------------------------

    def end(self, code: int, reason: str) -> None:
        """Start closing the connection. Queued frames are sent first, within `CLOSE_S`."""
        if self._closing is None:
            self._closing = (code, reason)
            self._is_closing.set()

    def send_event(
        self, event: str, payload: dict[str, Any], *, is_droppable: bool = False
    ) -> None:
        """Queue an event, unless the client has not authenticated yet.

        An event that `is_droppable` is dropped if the client reads slowly.
        """
        if self.principal is None and event != "connect.challenge":
            return
        if is_droppable and self._buffered > LIVE_BUFFERED_BYTES:
            return
        self._event_count += 1
        frame = {"type": "event", "event": event, "payload": payload, "seq": self._event_count}
        self._post(orjson.dumps(frame))

    @property
    def is_slow(self) -> bool:
        """Whether the client has not yet read much of what it was sent."""
        return self._buffered > LIVE_BUFFERED_BYTES or self._closing is not None

    async def subscribe(self, sid: str, session_key: str) -> None:
        """Start sending a session's events. Raises `CallRefused`."""
        if sid not in self._sessions and len(self._sessions) >= MAX_SUBSCRIPTIONS:
            raise CallRefused(
                "UNAVAILABLE", f"A connection follows {MAX_SUBSCRIPTIONS} sessions at most."
            )
        self._sessions.add(sid)
        try:
            await self._gateway.feeds.subscribe(self, sid, session_key)
        except BaseException:
            self.unsubscribe(sid)
            raise

    def unsubscribe(self, sid: str) -> None:
        """Stop sending a session's events."""
        self._sessions.discard(sid)
        self._gateway.feeds.unsubscribe(self, sid)

    # -- reading -------------------------------------------------------------------------------

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                frame = await self._read_frame()
                if frame is None or not await self._connect(frame):
                    return
        except TimeoutError:
            self.end(1008, f"No connect within {HANDSHAKE_S:g} s.")
            return
        while (frame := await self._read_frame()) is not None:
            self._start_call(frame, tasks)

    async def _read_frame(self) -> dict[str, Any] | None:
        """Return the next frame; None if the connection ended or the frame was not valid."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self.end(1000, "")
            return None
        text = message.get("text")
        if text is None:
            self.end(1003, "Frames are text.")
            return None
        try:
            frame = orjson.loads(text)
        except orjson.JSONDecodeError:
            frame = None
        if not isinstance(frame, dict) or not isinstance(frame.get("id"), str):
            self.end(1007, "A frame is a JSON object with an id.")
            return None
        return frame

    async def _connect(self, frame: dict[str, Any]) -> bool:
        """Answer the first request; return whether the client is authenticated."""
        frame_id = str(frame["id"])[:200]
        try:
            request = RequestFrame.model_validate(frame)
            if request.method != "connect":
                raise CallRefused("INVALID_REQUEST", "The first request is connect.")
            params = Connect.model_validate(request.params)
            if not params.min_protocol <= PROTOCOL <= params.max_protocol:
                raise CallRefused("INVALID_REQUEST", f"This gateway speaks protocol {PROTOCOL}.")
            token = self.token_of(params.auth.token)
            principal = await self._gateway.authenticator.principal(token)
            if principal is None:
                self._gateway.metrics.auth_failures += 1
                raise CallRefused("UNAUTHORIZED", "connect needs a valid token in auth.token.")
            hello = await self._hello(principal)
        except ValidationError as error:
            why = f"connect: {explained(error)}."
            self._post(error_frame(frame_id, CallRefused("INVALID_REQUEST", why)))
            self.end(1008, "connect is not valid.")
            return False
        except CallRefused as error:
            self._post(error_frame(frame_id, error))
            self.end(1008, str(error)[:120])
            return False
        except (RedisUnavailable, RedisRefused) as error:
            self._post(error_frame(frame_id, CallRefused("UNAVAILABLE", str(error))))
            self.end(1013, "Redis can't be reached.")
            return False
        self.principal = principal
        self._post(result_frame(frame_id, orjson.dumps(hello)))
        return True

    async def _hello(self, principal: Principal) -> dict[str, Any]:
        """Return the answer to `connect`, with the methods that the client may call."""
        if isinstance(principal, Operator):
            role, scopes = "operator", [s for s in SCOPES if principal.has(s)]
            methods = [m.name for m in METHODS.values() if may_call(principal, m)]
            events = ["tick", "shutdown", *EVENTS, *TERMINAL_EVENTS]
        else:
            role, scopes = "agent", []
            methods = [tool.name for tool in await self._gateway.dispatcher.tools(principal)]
            events = ["tick", "shutdown"]
        return {
            "type": "hello-ok",
            "protocol": PROTOCOL,
            "server": {"version": __version__, "connId": secrets.token_hex(8)},
            "features": {"methods": methods, "events": events},
            "policy": {
                "maxPayload": MAX_REQUEST_BYTES,
                "maxBufferedBytes": MAX_BUFFERED_BYTES,
                "tickIntervalMs": int(TICK_S * 1000),
            },
            "auth": {"role": role, "scopes": scopes},
        }

    # -- calls ---------------------------------------------------------------------------------

    def _start_call(self, frame: dict[str, Any], tasks: asyncio.TaskGroup) -> None:
        """Start a task that answers a request, or end one that is followed."""
        frame_id = str(frame["id"])[:200]
        if frame.get("type") == "unfollow":
            self._unfollow(frame_id)
            return
        try:
            request = RequestFrame.model_validate(frame)
        except ValidationError as error:
            why = f"The frame: {explained(error)}."
            self._post(error_frame(frame_id, CallRefused("INVALID_REQUEST", why)))
            return
        if self._closing is None:
            answer = self._follow if request.follow else self._answer
            call = tasks.create_task(answer(request))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            if request.follow:
                self._unfollow(frame_id)
                self._followed[frame_id] = call

    async def _answer(self, request: RequestFrame) -> None:
        self._post((await self._call(request)).frame)

    async def _follow(self, request: RequestFrame) -> None:
        """Answer a request, and again whenever its result has changed."""

        async def call() -> Answer:
            await self._has_sent_all.wait()  # a slow client gets the newest result only
            return await self._call(request)

        try:
            if len(self._followed) > MAX_FOLLOWED:
                why = f"A connection follows {MAX_FOLLOWED} calls at most."
                raise CallRefused("UNAVAILABLE", why)
            await follow(self._gateway.feeds, request.method, call, self._post)
        except CallRefused as error:
            del self._followed[request.id]
            self._post(error_frame(request.id, error))

    def _unfollow(self, frame_id: str) -> None:
        if followed := self._followed.pop(frame_id, None):
            followed.cancel()

    async def _call(self, request: RequestFrame) -> Answer:
        principal = self.principal
        assert principal is not None, "connect is the first request"
        try:
            # An agent's token is checked by the dispatcher, together with its turn.
            is_operator = isinstance(principal, Operator)
            if is_operator and not await self._gateway.authenticator.is_valid(principal):
                raise CallRefused("UNAUTHORIZED", "This token is not valid any more.")
            result, _ = await self._gateway.call(
                principal,
                request.method,
                request.params,
                call_id=request.idempotency_key,
                session_key=request.session_key,
                subscriber=self,
                address=self._address,
            )
            content = result.model_copy(update={"at_ms": 0}) if hasattr(result, "at_ms") else result
            return Answer(content, result_frame(request.id, self.payload(result)))
        except CallRefused as error:
            if error.code == "UNAUTHORIZED":
                self.end(1008, "This token is not valid any more.")
            refusal = error
        except (RedisUnavailable, RedisRefused) as error:
            refusal = CallRefused("UNAVAILABLE", str(error))
        about = (refusal.code, str(refusal))
        return Answer(about, error_frame(request.id, refusal), refusal.code in RETRYABLE)

    def payload(self, result: Result) -> bytes:
        """Return a result as JSON. Raises `CallRefused`."""
        return encoded(result)

    # -- writing -------------------------------------------------------------------------------

    def _post(self, frame: bytes) -> None:
        """Queue a frame for sending, in order."""
        if self._closing is not None and self._closing[0] == 1013:
            return
        if self._buffered + len(frame) > MAX_BUFFERED_BYTES:
            self._outgoing.clear()
            self.end(1013, "The client reads too slowly.")
            return
        self._outgoing.append(frame)
        self._buffered += len(frame)
        self._has_sent_all.clear()
        self._has_outgoing.set()

    async def _write(self) -> None:
        while True:
            await self._has_outgoing.wait()
            while self._outgoing:
                frame = self._outgoing.popleft()
                try:
                    await self._send({"type": "websocket.send", "text": frame.decode()})
                except OSError:  # the client is gone
                    self.end(1000, "")
                    self._has_sent_all.set()
                    return
                self._buffered -= len(frame)
            self._has_outgoing.clear()
            self._has_sent_all.set()

    async def _close(self) -> None:
        code, reason = self._closing or (1011, "The connection failed.")
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(CLOSE_S):
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
