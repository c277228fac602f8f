"""The gateway over WebSocket: frames of JSON, protocol 3.

The server says `connect.challenge`, the client's first frame is the request `connect` with its
token. Then requests are answered as they finish, and events come for what was subscribed to.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections import deque
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, ValidationError
from starlette.types import Receive, Scope, Send

from remoteclaw import __version__
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.gateway.feeds import EVENTS
from remoteclaw.gateway.gateway import TICK_S, Gateway
from remoteclaw.gateway.guard import peer_of, refusal
from remoteclaw.gateway.principals import Agent, Operator, Principal
from remoteclaw.gateway.sockets import Socket
from remoteclaw.tools.base import Id
from remoteclaw.tools.catalog import METHODS, Params, Result

__all__ = ["PROTOCOL", "Connection", "Rpc", "encoded", "explained"]

PROTOCOL = 3
#: How long a client may take from the upgrade to its `connect`, in seconds.
HANDSHAKE_S = 3.0
#: How large a frame may be once it is known whose it is, in bytes.
MOST_BYTES = 1024 * 1024
#: How large an answer may be: a long conversation's history fits.
MOST_ANSWER_BYTES = 6 * 1024 * 1024
#: How much may wait for a client that reads slowly, in bytes; beyond that it is disconnected.
MOST_BUFFERED_BYTES = 8 * 1024 * 1024
#: From how much on live text is left out: newer text comes, and replaces it.
LIVE_BUFFERED_BYTES = 64 * 1024
#: How many calls one client has running, and how many sessions it follows.
MOST_CALLS, MOST_SUBSCRIPTIONS = 32, 64
#: How many clients there are at most that have said who they are, and of those of one agent, which
#: needs none; and how many that have not: of more, the first ones are parted from.
MOST_CLIENTS, MOST_OF_AGENT, MOST_UNKNOWN = 400, 16, 64
#: How long the last frames and the close take at most, in seconds; then the connection is cut.
PARTING_S = 0.5

log = logging.getLogger(__name__)

Key = Annotated[str, Field(min_length=1, max_length=200)]


class _Request(Params):
    """A request, as it comes."""

    type: Literal["req"]
    id: Key
    method: Key
    params: dict[str, Any] = Field(default_factory=dict)
    idempotency_key: Key | None = None
    session_key: Id | None = None


class _Auth(Params):
    token: Annotated[str, Field(max_length=1024)] = ""
    password: Any = None
    device_token: Any = None
    bootstrap_token: Any = None


class _Connect(Params):
    """The first request. What a client says of itself is neither believed nor kept."""

    min_protocol: int
    max_protocol: int
    auth: _Auth = Field(default_factory=_Auth)
    client: dict[str, Any] = Field(default_factory=dict)
    role: Any = None
    scopes: Any = None
    caps: Any = None
    commands: Any = None
    permissions: Any = None
    device: Any = None
    locale: Any = None
    user_agent: Any = None
    path_env: Any = None


def encoded(result: Result) -> bytes:
    """Return a result as JSON; raises `CallRefused` if it is too large, or can't be."""
    try:
        text = orjson.dumps(result.model_dump(mode="json"))
    except (TypeError, ValueError) as error:  # half a UTF-16 pair, a number of 100 digits
        log.error("a result can't be sent: %s", type(error).__name__)
        raise CallRefused("INTERNAL", "The answer can't be written as JSON.") from None
    if len(text) > MOST_ANSWER_BYTES:
        most = MOST_ANSWER_BYTES // 1024 // 1024
        raise CallRefused("UNAVAILABLE", f"The answer is larger than {most} MB: ask for less.")
    return text


def explained(error: ValidationError) -> str:
    """Return what is wrong with a frame, and where, without what it holds."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])[:100]
    return f"{where} {first['msg']}".strip()


class Rpc:
    """Answers WebSocket connections."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._unknown: dict[Connection, None] = {}
        """Those that had not said who they are when it was looked, oldest first."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection, until it ends."""
        await receive()
        unknown = [one for one in self._unknown if one.principal is None and not one.is_closing]
        known = sum(client.principal is not None for client in self._gateway.clients)
        if self._gateway.is_ending or known >= MOST_CLIENTS:
            full = refusal("UNAVAILABLE", "This gateway has too many clients, or ends.")
            await full(scope, receive, send)
            return
        if len(unknown) >= MOST_UNKNOWN:
            unknown[0].end(1013, "Too many wait here without a connect.")
        connection = Connection(self._gateway, scope, receive, send)
        self._unknown = dict.fromkeys((*unknown, connection))
        with self._gateway.connected(connection):
            await send({"type": "websocket.accept"})
            await connection.run()


class Connection:
    """One client."""

    def __init__(self, gateway: Gateway, scope: Scope, receive: Receive, send: Send) -> None:
        self.id = secrets.token_hex(8)
        self.principal: Principal | None = None
        self._gateway = gateway
        self._peer = peer_of(scope)
        self._socket: Socket = scope["state"]["socket"]
        self._receive = receive
        self._send = send
        self._outgoing: deque[bytes] = deque()
        self._buffered = 0
        self._has_outgoing, self._is_sent = asyncio.Event(), asyncio.Event()
        self._closing: tuple[int, str] | None = None
        self._is_closing = asyncio.Event()
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._sessions: set[str] = set()
        self._events = 0

    async def run(self) -> None:
        """Talk to the client until one of us ends it."""
        self.tell("connect.challenge", {"nonce": secrets.token_hex(16), "ts": _now_ms()})
        try:
            async with asyncio.TaskGroup() as tasks:
                duties = [tasks.create_task(self._write()), tasks.create_task(self._read(tasks))]
                await self._is_closing.wait()
                for call in self._calls.values():
                    call.cancel()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PARTING_S):
                        await self._is_sent.wait()
                for duty in duties:
                    duty.cancel()
        finally:
            for sid in self._sessions:
                self._gateway.feeds.unsubscribe(self, sid)
            await self._close()

    @property
    def is_closing(self) -> bool:
        """Whether it is about to end."""
        return self._closing is not None

    # -- for the gateway -----------------------------------------------------------------------

    def end(self, code: int, reason: str) -> None:
        """Close the connection, without waiting; what was to be sent before is sent, if it can."""
        if self._closing is None:
            self._closing = (code, reason)
            self._is_closing.set()

    def tell(self, event: str, payload: dict[str, Any], *, may_be_missed: bool = False) -> None:
        """Send an event, without waiting."""
        if self.principal is None and event != "connect.challenge":
            return
        if may_be_missed and self._buffered > LIVE_BUFFERED_BYTES:
            return
        self._events += 1
        frame = {"type": "event", "event": event, "payload": payload, "seq": self._events}
        self._post(orjson.dumps(frame))

    async def subscribe(self, sid: str, session_key: str) -> None:
        """Send a session's events from now on."""
        if sid not in self._sessions and len(self._sessions) >= MOST_SUBSCRIPTIONS:
            raise CallRefused(
                "UNAVAILABLE", f"A connection follows {MOST_SUBSCRIPTIONS} sessions at most."
            )
        self._sessions.add(sid)
        try:
            await self._gateway.feeds.subscribe(self, sid, session_key)
        except BaseException:
            self.unsubscribe(sid)
            raise
        if self._closing is not None:  # it ended meanwhile, and nobody else would do it
            self.unsubscribe(sid)

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
        """Return the next frame; None once there will be none, or none that makes sense."""
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
        """Answer the first request; whether the client is somebody."""
        frame_id = str(frame["id"])[:200]
        try:
            request = _Request.model_validate(frame)
            if request.method != "connect":
                raise CallRefused("INVALID_REQUEST", "The first request is connect.")
            params = _Connect.model_validate(request.params)
            if not params.min_protocol <= PROTOCOL <= params.max_protocol:
                raise CallRefused("INVALID_REQUEST", f"This gateway speaks protocol {PROTOCOL}.")
            principal = await self._authenticate(params.auth.token)
            self._check_room(principal)
            hello = await self._hello(principal)
        except ValidationError as error:
            self._refuse(frame_id, "INVALID_REQUEST", f"connect: {explained(error)}.")
            self.end(1008, "connect makes no sense.")
            return False
        except CallRefused as error:
            self._refuse(frame_id, error.code, str(error))
            self.end(1008, str(error)[:120])
            return False
        except (RedisUnavailable, RedisRefused) as error:
            self._refuse(frame_id, "UNAVAILABLE", str(error))
            self.end(1013, "Redis can't be reached.")
            return False
        self.principal = principal
        self._socket.allow(MOST_BYTES)
        self._post(orjson.dumps({"type": "res", "id": frame_id, "ok": True, "payload": hello}))
        return True

    async def _authenticate(self, token: str) -> Principal:
        """Return whose token it is; raises `CallRefused`."""
        attempts, meters = self._gateway.authenticator.attempts, self._gateway.meters
        waits = attempts.must_wait(self._peer)
        principal = None if waits else await self._gateway.authenticator.principal(token)
        if principal is not None:
            return principal
        meters.auth_failures += 1
        if waits or (token and (waits := attempts.failed(self._peer))):
            raise CallRefused(
                "UNAVAILABLE",
                "There were too many wrong tokens from this address: "
                f"try again in {int(waits) + 1} s.",
            )
        raise CallRefused("UNAUTHORIZED", "connect needs a valid token in auth.token.")

    def _check_room(self, principal: Principal) -> None:
        """Raise `CallRefused` for an agent that has too many connections already."""
        if not isinstance(principal, Agent):
            return
        theirs = sum(client.principal == principal for client in self._gateway.clients)
        if theirs >= MOST_OF_AGENT:
            raise CallRefused("UNAVAILABLE", f"An agent has {MOST_OF_AGENT} connections at most.")

    async def _hello(self, principal: Principal) -> dict[str, Any]:
        """Return what a client is told first: among it what it may really do."""
        if isinstance(principal, Operator):
            role, scopes = "operator", [s for s in ("read", "write", "admin") if principal.has(s)]
            methods = [m.name for m in METHODS.values() if principal.has(m.scope)]
            events = ["tick", "shutdown", *EVENTS]
        else:
            role, scopes = "agent", []
            methods = [tool.name for tool in await self._gateway.dispatcher.tools(principal)]
            events = ["tick", "shutdown"]
        return {
            "type": "hello-ok",
            "protocol": PROTOCOL,
            "server": {"version": __version__, "connId": self.id},
            "features": {"methods": methods, "events": events},
            "policy": {
                "maxPayload": MOST_BYTES,
                "maxBufferedBytes": MOST_BUFFERED_BYTES,
                "tickIntervalMs": int(TICK_S * 1000),
            },
            "auth": {"role": role, "scopes": scopes},
        }

    # -- calls ---------------------------------------------------------------------------------

    def _begin(self, frame: dict[str, Any], tasks: asyncio.TaskGroup) -> None:
        """Begin to answer a request."""
        frame_id = str(frame["id"])[:200]
        try:
            request = _Request.model_validate(frame)
        except ValidationError as error:
            self._refuse(frame_id, "INVALID_REQUEST", f"The frame: {explained(error)}.")
            return
        if request.id in self._calls:
            self._refuse(frame_id, "INVALID_REQUEST", "A request with this id still runs.")
        elif len(self._calls) >= MOST_CALLS:
            self._refuse(frame_id, "UNAVAILABLE", f"{MOST_CALLS} requests run: wait for one.")
        elif self._closing is None:
            call = self._calls[request.id] = tasks.create_task(self._answer(request))
            call.add_done_callback(lambda _: self._calls.pop(request.id))

    async def _answer(self, request: _Request) -> None:
        try:
            payload = encoded(await self._result(request))
        except CallRefused as error:
            self._refuse(request.id, error.code, str(error))
            if error.code == "UNAUTHORIZED":
                self.end(1008, "This token is not valid any more.")
            return
        except (RedisUnavailable, RedisRefused) as error:
            self._refuse(request.id, "UNAVAILABLE", str(error))
            return
        answer = {"type": "res", "id": request.id, "ok": True, "payload": orjson.Fragment(payload)}
        self._post(orjson.dumps(answer))

    async def _result(self, request: _Request) -> Result:
        principal = self.principal
        assert principal is not None, "connect came first"
        # An agent's is looked at by the dispatcher anyway, together with its turn.
        is_looked_at = not isinstance(principal, Operator)
        if not is_looked_at and not await self._gateway.authenticator.is_valid(principal):
            raise CallRefused("UNAUTHORIZED", "This token is not valid any more.")
        result, _ = await self._gateway.dispatcher.call(
            principal,
            request.method,
            request.params,
            call_id=request.idempotency_key,
            session_key=request.session_key,
            subscriber=self,
        )
        return result

    def _refuse(self, frame_id: str, code: str, message: str) -> None:
        error = {"code": code, "message": message, "retryable": code in ("UNAVAILABLE", "TIMEOUT")}
        self._post(orjson.dumps({"type": "res", "id": frame_id, "ok": False, "error": error}))

    # -- writing -------------------------------------------------------------------------------

    def _post(self, frame: bytes) -> None:
        """Have a frame sent, in order."""
        if self._closing is not None and self._closing[0] == 1013:
            return
        if self._buffered + len(frame) > MOST_BUFFERED_BYTES:
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
        self._socket.cut_soon()


def _now_ms() -> int:
    return int(time.time() * 1000)
