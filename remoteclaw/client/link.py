"""A WebSocket connection to the gateway that reconnects whenever it is lost.

A request without an answer is sent again on the next connection with the same idempotency key, so
that it takes effect once.
"""

import asyncio
import contextlib
import itertools
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI, WebSocketException

from remoteclaw.errors import RemoteClawError

#: The version of the gateway's WebSocket protocol.
PROTOCOL = 3
#: Time limit for opening a connection, in seconds.
CONNECT_S = 10.0
#: The interval of pings and the time limit for each pong, in seconds. A gateway that hangs is
#: noticed in less than ten seconds, and a slow one on a busy machine is not disconnected.
PING_EVERY_S, PONG_S = 3.0, 4.0
#: The pauses between attempts to connect, in seconds. The last one repeats.
PAUSES_S = (0.05, 0.1, 0.25, 0.5, 1.0)
#: The largest frame that is accepted, in bytes. The gateway sends at most 6 MB.
MAX_FRAME_BYTES = 8 * 1024 * 1024
#: The reason if a gateway accepts connections but does not answer.
SILENT = "it does not answer"


class GatewayRefused(RemoteClawError):
    """Raised when the gateway refuses a call. Its text is the gateway's message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_temporary(self) -> bool:
        """Whether the same call may succeed later."""
        return self.code in ("UNAVAILABLE", "TIMEOUT")


class GatewayMissing(RemoteClawError):
    """Raised when no gateway answers at the address."""


async def persist(
    ask: Callable[[], Awaitable[dict[str, Any]]],
    on_problem: Callable[[str], None],
    *,
    persist_s: float = math.inf,
) -> dict[str, Any]:
    """Ask again while the gateway refuses temporarily, for `persist_s`, and return the result.

    `ask` must have one effect, however often it is called. `on_problem` gets the text of each
    temporary refusal, and an empty text after the last. Raises `GatewayRefused` for any other.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + persist_s
    for tries in itertools.count():
        try:
            result = await ask()
        except GatewayRefused as error:
            if not error.is_temporary or loop.time() >= until:
                raise
            on_problem(str(error))
            await _pause(tries)
        else:
            if tries:
                on_problem("")
            return result
    raise AssertionError("the loop is endless")


async def _pause(tries: int) -> None:
    await asyncio.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])


class _ConnectionLost(Exception):
    """Raised when the connection is lost before an answer arrives."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a gateway: a directory of private sockets, or a URL."""

    sockets: Path | None = None
    """The directory with the sockets of a state directory's gateways; None to use `url`."""
    url: str = ""
    """`http://HOST:PORT` or `https://…`, or the same with `ws` or `wss`."""

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[ClientConnection]:
        """Yield a connection. Raises `OSError`, `TimeoutError` or `WebSocketException`."""
        options: dict[str, Any] = {
            "open_timeout": CONNECT_S,
            "close_timeout": 1,
            "ping_interval": PING_EVERY_S,
            "ping_timeout": PONG_S,
            "max_size": MAX_FRAME_BYTES,
            "compression": None,
            "proxy": None,
        }
        if self.sockets is None:
            async with _Connect(self._ws_url, **options) as socket:
                yield socket
            return
        failure: OSError = FileNotFoundError(f"there is no socket in {self.sockets}")
        for path in self.newest():
            try:
                socket = await unix_connect(str(path), uri="ws://localhost/ws", **options)
            except OSError as error:  # the socket of a gateway that has ended
                failure = error
                continue
            async with socket:
                yield socket
            return
        raise failure

    def newest(self) -> list[Path]:
        """Return the sockets of the directory, newest first."""
        assert self.sockets is not None, "the address is a directory of sockets"
        sockets = []
        for path in self.sockets.iterdir() if self.sockets.is_dir() else ():
            with contextlib.suppress(OSError):  # it may have been removed since it was listed
                sockets.append((path.lstat().st_mtime, path))
        return [path for _, path in sorted(sockets, reverse=True)]

    @property
    def _ws_url(self) -> str:
        scheme, _, rest = self.url.partition("://")
        ws_scheme = {"http": "ws", "https": "wss"}.get(scheme, scheme)
        return f"{ws_scheme}://{rest.rstrip('/').removesuffix('/ws')}/ws"

    def __str__(self) -> str:
        """Return the address as messages to people show it."""
        return self.url or str(self.sockets)


class _Connect(connect):
    """A connection that follows no redirect, because the other place would get the token."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Return the refusal of the handshake, redirects included, as the error."""
        return exc


class Link:
    """A connection to the gateway that is opened again whenever it is lost."""

    def __init__(
        self,
        address: Address,
        token: str,
        *,
        opening: tuple[str, Mapping[str, Any]],
        on_open: Callable[[dict[str, Any]], None],
        on_event: Callable[[str, dict[str, Any]], None],
        on_problem: Callable[[str], None],
    ) -> None:
        """`opening` is the method and the parameters of the first call on each connection; the
        caller may change them between connections.

        `on_open` gets the result of that call, and `on_event` the name and payload of each event.
        `on_problem` gets the reason why calls are not answered, and an empty text once they are.
        None of these functions may block.
        """
        self._address = address
        self._token = token
        self._opening = opening
        self._on_open = on_open
        self._on_event = on_event
        self._on_problem = on_problem
        self._socket: ClientConnection | None = None
        self._is_open = asyncio.Event()
        self._was_open = False
        """Whether the current connection, or the last one, was opened successfully."""
        self._max_request_bytes = MAX_FRAME_BYTES
        """The largest frame that the gateway accepts; a larger one would end the connection."""
        self._ids = itertools.count(1)
        self._pending: dict[str, asyncio.Future[dict[str, Any]]] = {}
        """The futures of requests that wait for an answer, by the id of the request."""

    async def run(self, *, connect_s: float, refused_s: float = 0.0) -> None:
        """Keep the connection open until cancelled.

        Raises `GatewayMissing` if no gateway answers within the first `connect_s` seconds, and
        `GatewayRefused` if the gateway refuses the token or the opening call. A temporary refusal
        is raised only after the first `refused_s` seconds.
        """
        loop = asyncio.get_running_loop()
        start = loop.time()
        give_up_at: float | None = start + connect_s
        tries = 0
        while True:
            self._was_open = False
            refusal = None
            try:
                async with self._address.connected() as socket:
                    await self._talk(socket)
                why = "the connection ended"
            except GatewayRefused as error:
                if not error.is_temporary:
                    raise
                if give_up_at is not None:
                    give_up_at = max(give_up_at, start + refused_s)
                    if loop.time() >= give_up_at:
                        raise
                why = refusal = str(error)
            except ConnectionClosed as error:
                # This side closed the connection, and the gateway did not confirm that.
                is_silent = error.sent is not None and error.rcvd is None
                why = SILENT if is_silent else "the connection ended"
            except _ConnectionLost:
                why = "the connection ended"
            # ValueError: an invalid port or host name, or an answer that is no JSON.
            except (InvalidURI, InvalidHandshake, ValueError) as error:
                if give_up_at is not None:
                    raise GatewayMissing(
                        f"No RemoteClaw gateway answers at {self._address} ({error}): check the "
                        "address."
                    ) from None
                why = str(error)
            except TimeoutError:
                why = SILENT
            except (OSError, WebSocketException) as error:
                why = getattr(error, "strerror", None) or str(error) or SILENT
            if self._was_open:
                give_up_at, tries = None, 0
            if give_up_at is not None and loop.time() >= give_up_at:
                raise GatewayMissing(
                    f"No gateway answers at {self._address} ({why}): start one with "
                    "`remoteclaw up`."
                )
            if refusal is not None:
                self._on_problem(refusal)
            elif why == SILENT:
                where = f" at {self._address}" if self._address.url else ""
                self._on_problem(f"the gateway{where} does not answer")
            else:
                self._on_problem(f"the gateway is away: {why}")
            await _pause(tries)
            tries += 1

    async def reopen(self) -> None:
        """Reconnect, because the parameters of the opening call have changed."""
        self._is_open.clear()
        if self._socket:
            await self._socket.close()
        await self._is_open.wait()

    async def ask(
        self, method: str, params: Mapping[str, Any], *, persists: bool = False
    ) -> dict[str, Any]:
        """Call a method of the gateway and return its result, reconnecting as often as necessary.

        The method is called once: the call has the same idempotency key on each connection. Raises
        `GatewayRefused`. If it `persists`, a temporary refusal is retried instead.
        """
        key = uuid.uuid4().hex

        async def ask() -> dict[str, Any]:
            while True:
                await self._is_open.wait()
                with contextlib.suppress(_ConnectionLost):
                    return await self._ask(method, params, key)

        return await persist(ask, self._on_problem) if persists else await ask()

    async def ask_once(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Call a method without reconnecting, for a call that would be pointless later.

        Return None if the connection is not open, or is lost before the answer; in that case the
        gateway may have handled the call. Raises `GatewayRefused`.
        """
        if not self._is_open.is_set():
            return None
        try:
            return await self._ask(method, params)
        except _ConnectionLost:
            return None

    async def _talk(self, socket: ClientConnection) -> None:
        """Authenticate, make the opening call, and read until the connection ends."""
        self._socket = socket
        reading = asyncio.create_task(self._read(socket))
        try:
            who = {"minProtocol": PROTOCOL, "maxProtocol": PROTOCOL, "auth": {"token": self._token}}
            hello = await self._ask("connect", who)
            self._max_request_bytes = hello["policy"]["maxPayload"]
            method, params = self._opening
            self._on_open(await self._ask(method, params))
            self._on_problem("")
            self._was_open = True
            self._is_open.set()
            await reading
        finally:
            reading.cancel()

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for text in socket:
                frame = orjson.loads(text)
                match frame.get("type"):
                    case "res":
                        self._on_response(frame)
                    case "event":
                        self._on_event(frame["event"], frame["payload"])
        finally:
            self._is_open.clear()
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(_ConnectionLost())
                    future.exception()  # else asyncio logs it if the caller was cancelled

    async def _ask(
        self, method: str, params: Mapping[str, Any], key: str | None = None
    ) -> dict[str, Any]:
        """Send one request and return its result. `key` is its idempotency key.

        Raises `GatewayRefused`, and `_ConnectionLost` if the connection ends before the answer.
        """
        assert self._socket is not None, "only called while connected"
        id_ = str(next(self._ids))
        frame = {"type": "req", "id": id_, "method": method, "params": params}
        if key:
            frame["idempotencyKey"] = key
        data = orjson.dumps(frame)
        if len(data) > self._max_request_bytes:
            raise GatewayRefused(
                "INVALID_REQUEST",
                f"It has {len(data):,} bytes, and the gateway takes {self._max_request_bytes:,}: "
                "put it into a file.",
            )
        future = self._pending[id_] = asyncio.get_running_loop().create_future()
        try:
            await self._socket.send(data.decode())
            result: dict[str, Any] = await future
            return result
        except WebSocketException:
            raise _ConnectionLost from None
        finally:
            del self._pending[id_]

    def _on_response(self, frame: Mapping[str, Any]) -> None:
        future = self._pending.get(frame["id"])
        if future is None or future.done():
            return
        if frame["ok"]:
            future.set_result(frame["payload"])
        else:
            error = frame["error"]
            future.set_exception(GatewayRefused(error["code"], error["message"]))
