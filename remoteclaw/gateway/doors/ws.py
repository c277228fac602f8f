"""The gateway over WebSocket: frames of JSON, protocol 3.

The gateway sends `connect.challenge`, and the client's first frame is the request `connect` with
its token. Then requests are answered as they finish, and events of subscribed sessions are sent.
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
from remoteclaw.gateway.doors.frames import (
    Connect,
    Request,
    encoded,
    error_frame,
    explained,
    result_frame,
)
from remoteclaw.gateway.feeds import EVENTS
from remoteclaw.gateway.gateway import TICK_S, Gateway
from remoteclaw.gateway.guard import address_of
from remoteclaw.gateway.limits import MAX_BYTES
from remoteclaw.gateway.principals import Operator, Principal
from remoteclaw.gateway.viewers import EVENTS as EVENTS_OF_TERMINALS
from remoteclaw.tools.base import SCOPES, Result
from remoteclaw.tools.catalog import METHODS

PROTOCOL = 3
#: How long a client may take from the upgrade to its `connect`, in seconds.
HANDSHAKE_S = 3.0
#: How much may wait for a client that reads slowly, in bytes; beyond that it is disconnected.
MAX_BUFFERED_BYTES = 8 * 1024 * 1024
#: From how much on live text is left out: newer text replaces it.
LIVE_BUFFERED_BYTES = 64 * 1024
#: How many sessions one client follows.
MAX_SUBSCRIPTIONS = 64
#: How long the last frames and the close take at most, in seconds; then the connection is cut.
PARTING_S = 0.5


class WebSocketDoor:
    """Answers WebSocket connections."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection, until it ends."""
        await receive()
        connection = Connection(self._gateway, receive, send, address=address_of(scope))
        await self.answer(connection, send)

    async def answer(self, connection: "Connection", send: Send) -> None:
        """Accept a connection, and answer it until it ends."""
        with self._gateway.connected(connection):
            await send({"type": "websocket.accept"})
            await connection.run()


class Connection:
    """One client."""

    is_page = False

    def __init__(
        self, gateway: Gateway, receive: Receive, send: Send, *, address: str, token: str = ""
    ) -> None:
        """`token` is the one that came with the upgrade, if any: then `connect` needs none."""
        self.principal: Principal | None = None
        self._address = address
        self._gateway = gateway
        self._token = token
        self._receive = receive
        self._send = send
        self._outgoing: deque[bytes] = deque()
        self._buffered = 0
        self._has_outgoing, self._is_sent = asyncio.Event(), asyncio.Event()
        self._closing: tuple[int, str] | None = None
        self._is_closing = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._sessions: set[str] = set()
        self._events = 0

    async def run(self) -> None:
        """Talk to the client until one of us ends the connection."""
        self.tell("connect.challenge", {"nonce": secrets.token_hex(16), "ts": now_ms()})
        try:
            async with asyncio.TaskGroup() as tasks:
                duties = [tasks.create_task(self._write()), tasks.create_task(self._read(tasks))]
                await self._is_closing.wait()
                for call in self._calls:
                    call.cancel()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PARTING_S):
                        await self._is_sent.wait()
                for duty in duties:
                    duty.cancel()
        finally:
            self._gateway.consoles.leave(self)
            self._gateway.page_chats.leave(self)
            self._gateway.terminals.leave(self)
            for sid in self._sessions:
                self._gateway.feeds.unsubscribe(self, sid)
            await self._close()

    # -- for the gateway -----------------------------------------------------------------------

    def end(self, code: int, reason: str) -> None:
        """Begin to close the connection; what was to be sent before is sent, if it can."""
        if self._closing is None:
            self._closing = (code, reason)
            self._is_closing.set()

    def tell(self, event: str, payload: dict[str, Any], *, may_be_missed: bool = False) -> None:
        """Queue an event for sending; none before the client is authenticated."""
        if self.principal is None and event != "connect.challenge":
            return
        if may_be_missed and self._buffered > LIVE_BUFFERED_BYTES:
            return
        self._events += 1
        frame = {"type": "event", "event": event, "payload": payload, "seq": self._events}
        self._post(orjson.dumps(frame))

    @property
    def is_slow(self) -> bool:
        """Whether much of what it was sent has not been read."""
        return self._buffered > LIVE_BUFFERED_BYTES or self._closing is not None

    async def subscribe(self, sid: str, session_key: str) -> None:
        """Send a session's events from now on. Raises `CallRefused`."""
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
        """Send no more of a session's events."""
        self._sessions.discard(sid)
        self._gateway.feeds.unsubscribe(self, sid)

    # -- reading -------------------------------------------------------------------------------

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                frame = await self._frame()
                if frame is None or not await self._connect(frame):
                    return
        except TimeoutError:
            self.end(1008, f"No connect within {HANDSHAKE_S:g} s.")
            return
        while (frame := await self._frame()) is not None:
            self._begin(frame, tasks)

    async def _frame(self) -> dict[str, Any] | None:
        """Return the next frame; None at the end of the connection, or of what makes sense."""
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
        """Answer the first request; return whether the client is authenticated now."""
        frame_id = str(frame["id"])[:200]
        try:
            request = Request.model_validate(frame)
            if request.method != "connect":
                raise CallRefused("INVALID_REQUEST", "The first request is connect.")
            params = Connect.model_validate(request.params)
            if not params.min_protocol <= PROTOCOL <= params.max_protocol:
                raise CallRefused("INVALID_REQUEST", f"This gateway speaks protocol {PROTOCOL}.")
            principal = await self._gateway.authenticator.principal(
                self._token or params.auth.token
            )
            if principal is None:
                self._gateway.meters.auth_failures += 1
                raise CallRefused("UNAUTHORIZED", "connect needs a valid token in auth.token.")
            hello = await self._hello(principal)
        except ValidationError as error:
            why = f"connect: {explained(error)}."
            self._post(error_frame(frame_id, CallRefused("INVALID_REQUEST", why)))
            self.end(1008, "connect makes no sense.")
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
        """Return the first answer, with what the client may call."""
        if isinstance(principal, Operator):
            role, scopes = "operator", [s for s in SCOPES if principal.has(s)]
            methods = [m.name for m in METHODS.values() if may_call(principal, m)]
            events = ["tick", "shutdown", *EVENTS, *EVENTS_OF_TERMINALS]
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
                "maxPayload": MAX_BYTES,
                "maxBufferedBytes": MAX_BUFFERED_BYTES,
                "tickIntervalMs": int(TICK_S * 1000),
            },
            "auth": {"role": role, "scopes": scopes},
        }

    # -- calls ---------------------------------------------------------------------------------

    def _begin(self, frame: dict[str, Any], tasks: asyncio.TaskGroup) -> None:
        """Begin to answer a request."""
        frame_id = str(frame["id"])[:200]
        try:
            request = Request.model_validate(frame)
        except ValidationError as error:
            why = f"The frame: {explained(error)}."
            self._post(error_frame(frame_id, CallRefused("INVALID_REQUEST", why)))
            return
        if self._closing is None:
            call = tasks.create_task(self._answer(request))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _answer(self, request: Request) -> None:
        principal = self.principal
        assert principal is not None, "connect came first"
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
            self._post(result_frame(request.id, self.payload(result)))
        except CallRefused as error:
            self._post(error_frame(request.id, error))
            if error.code == "UNAUTHORIZED":
                self.end(1008, "This token is not valid any more.")
        except (RedisUnavailable, RedisRefused) as error:
            self._post(error_frame(request.id, CallRefused("UNAVAILABLE", str(error))))

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
            self.end(1013, "It reads too slowly.")
            return
        self._outgoing.append(frame)
        self._buffered += len(frame)
        self._is_sent.clear()
        self._has_outgoing.set()

    async def _write(self) -> None:
        while True:
            await self._has_outgoing.wait()
            while self._outgoing:
                frame = self._outgoing.popleft()
                try:
                    await self._send({"type": "websocket.send", "text": frame.decode()})
                except OSError:  # it is gone
                    self.end(1000, "")
                    self._is_sent.set()
                    return
                self._buffered -= len(frame)
            self._has_outgoing.clear()
            self._is_sent.set()

    async def _close(self) -> None:
        code, reason = self._closing or (1011, "It failed here.")
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(PARTING_S):
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
