"""The link to the gateway: one WebSocket connection, made again whenever it is lost.

What was asked and not answered is asked again on the next connection, by the same name, so that it
happens once.
"""

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI, WebSocketException

from remoteclaw.errors import RemoteClawError

PROTOCOL = 3
#: How long the gateway may take to accept a connection and its token, in seconds.
CONNECT_S = 10.0
#: How often the gateway is asked whether it is there, and how long it may take to say so, in
#: seconds: one that hangs is noticed in less than ten, and a busy machine is no reason to part.
PING_EVERY_S, PONG_S = 3.0, 4.0
#: The pauses between two tries to connect, in seconds; the last one is repeated.
PAUSES_S = (0.05, 0.1, 0.25, 0.5, 1.0)
#: The largest frame that is taken, in bytes: an answer of the gateway has 6 MB at most.
MAX_BYTES = 8 * 1024 * 1024
#: Why nothing comes from a gateway that is there.
SILENT = "it does not answer"
#: The refusals that may be over a moment later.
_FOR_NOW = ("UNAVAILABLE", "TIMEOUT")


class GatewayRefused(RemoteClawError):
    """Raised when the gateway refuses a call; its text is the gateway's own."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class GatewayMissing(RemoteClawError):
    """Raised when no gateway answers where one should be."""


class _Lost(Exception):
    """Raised when the connection is lost before an answer came."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a gateway is: a directory of private sockets, or a URL."""

    sockets: Path | None = None
    """The directory in which the gateways of a state directory have their sockets."""
    url: str = ""
    """`http://HOST:PORT`, `https://…`, or the same with `ws`."""

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[ClientConnection]:
        """Yield a connection. Raises OSError, TimeoutError or WebSocketException."""
        options: dict[str, Any] = {
            "open_timeout": CONNECT_S,
            "close_timeout": 1,
            "ping_interval": PING_EVERY_S,
            "ping_timeout": PONG_S,
            "max_size": MAX_BYTES,
            "compression": None,
            "proxy": None,
        }
        if self.sockets is None:
            async with connect(self._ws_url, **options) as socket:
                yield socket
            return
        failure: OSError = FileNotFoundError(f"there is no socket in {self.sockets}")
        for path in self.newest():
            try:
                socket = await unix_connect(str(path), uri="ws://localhost/ws", **options)
            except OSError as error:  # of a gateway that is gone
                failure = error
                continue
            async with socket:
                yield socket
            return
        raise failure

    def newest(self) -> list[Path]:
        """Return the sockets of the directory, the newest first."""
        assert self.sockets is not None, "it is asked of a directory"
        found = []
        for path in self.sockets.iterdir() if self.sockets.is_dir() else ():
            with contextlib.suppress(OSError):  # just removed
                found.append((path.lstat().st_mtime, path))
        return [path for _, path in sorted(found, reverse=True)]

    @property
    def _ws_url(self) -> str:
        scheme, _, rest = self.url.partition("://")
        secure = {"http": "ws", "https": "wss"}.get(scheme, scheme)
        return f"{secure}://{rest.rstrip('/').removesuffix('/ws')}/ws"

    def __str__(self) -> str:
        """Return where it is, for people."""
        return self.url or str(self.sockets)


class Link:
    """A connection to the gateway that is kept up."""

    def __init__(
        self,
        address: Address,
        token: str,
        *,
        opening: tuple[str, Mapping[str, Any]],
        opened: Callable[[dict[str, Any]], None],
        event: Callable[[str, dict[str, Any]], None],
        problem: Callable[[str], None],
    ) -> None:
        """`opening` is asked first on each connection, and `opened` gets the answer.

        `event` gets the name and content of each event. `problem` is told what keeps us from
        being answered, and an empty text when it is over. Neither must wait.
        """
        self._address = address
        self._token = token
        self._opening = opening
        self._opened = opened
        self._event = event
        self._problem = problem
        self._socket: ClientConnection | None = None
        self._is_open = asyncio.Event()
        self._was_open = False
        self._most_bytes = MAX_BYTES
        """The largest frame that the gateway takes; a larger one ends the connection."""
        self._numbers = itertools.count(1)
        self._asked: dict[str, asyncio.Future[dict[str, Any]]] = {}

    async def run(self, *, patience_s: float) -> None:
        """Keep connected, until cancelled.

        Raises `GatewayMissing` if no gateway answers for `patience_s` at the start, and
        `GatewayRefused` if it refuses the token, or what is to be opened.
        """
        loop = asyncio.get_running_loop()
        give_up_at: float | None = loop.time() + patience_s
        tries = 0
        while True:
            self._was_open = False
            try:
                async with self._address.connected() as socket:
                    await self._talk(socket)
                why = "the connection ended"
            except GatewayRefused as error:
                if error.code not in _FOR_NOW:
                    raise
                if give_up_at is not None and loop.time() >= give_up_at:
                    raise
                why = str(error)
            except ConnectionClosed as error:
                # We have ended it, and did not even hear that this was read.
                is_silent = error.sent is not None and error.rcvd is None
                why = SILENT if is_silent else "the connection ended"
            except _Lost:
                why = "the connection ended"
            except (
                InvalidURI,
                InvalidHandshake,
                ValueError,
            ) as error:  # or no port, no name, no JSON
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
            if why == SILENT:
                where = f" at {self._address}" if self._address.url else ""
                self._problem(f"the gateway{where} does not answer")
            else:
                self._problem(f"the gateway is away: {why}")
            await asyncio.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
            tries += 1

    async def reopen(self, params: Mapping[str, Any]) -> None:
        """Open something else with these parameters, on a connection of its own."""
        self._opening = (self._opening[0], params)
        self._is_open.clear()
        if self._socket:
            await self._socket.close()
        await self._is_open.wait()

    async def ask(
        self, method: str, params: Mapping[str, Any], *, persists: bool = False
    ) -> dict[str, Any]:
        """Ask the gateway, and return its answer, however often the connection is lost meanwhile.

        It is done once: it has one name on all connections. Raises `GatewayRefused`; for what
        may be over soon, not if it `persists`.
        """
        name = uuid.uuid4().hex
        for tries in itertools.count():
            await self._is_open.wait()
            try:
                answer = await self._ask(method, params, name)
            except _Lost:
                continue
            except GatewayRefused as error:
                if not persists or error.code not in _FOR_NOW:
                    raise
                self._problem(str(error))
                await asyncio.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
            else:
                if tries:
                    self._problem("")
                return answer
        raise AssertionError("it counts for ever")

    async def tell(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Ask the gateway on this connection alone: what is too late a moment later.

        None if the connection is away, or lost before the answer: perhaps it was done. Raises
        `GatewayRefused`.
        """
        if not self._is_open.is_set():
            return None
        try:
            return await self._ask(method, params)
        except _Lost:
            return None

    async def _talk(self, socket: ClientConnection) -> None:
        """Introduce ourselves, open what is to be opened, and read until the connection ends."""
        self._socket = socket
        reading = asyncio.create_task(self._read(socket))
        try:
            who = {"minProtocol": PROTOCOL, "maxProtocol": PROTOCOL, "auth": {"token": self._token}}
            hello = await self._ask("connect", who)
            self._most_bytes = hello["policy"]["maxPayload"]
            method, params = self._opening
            self._opened(await self._ask(method, params))
            self._problem("")
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
                        self._answered(frame)
                    case "event":
                        self._event(frame["event"], frame["payload"])
        finally:
            self._is_open.clear()
            for waiting in self._asked.values():
                if not waiting.done():
                    waiting.set_exception(_Lost())
                    waiting.exception()  # else asyncio complains if nobody waits any more

    async def _ask(
        self, method: str, params: Mapping[str, Any], name: str | None = None
    ) -> dict[str, Any]:
        assert self._socket is not None, "it is connected"
        number = str(next(self._numbers))
        frame = {"type": "req", "id": number, "method": method, "params": params}
        if name:
            frame["idempotencyKey"] = name
        data = orjson.dumps(frame)
        if len(data) > self._most_bytes:
            raise GatewayRefused(
                "INVALID_REQUEST",
                f"It has {len(data):,} bytes, and the gateway takes {self._most_bytes:,}: put it "
                "into a file.",
            )
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            await self._socket.send(data.decode())
            payload: dict[str, Any] = await answer
            return payload
        except WebSocketException:
            raise _Lost from None
        finally:
            del self._asked[number]

    def _answered(self, frame: Mapping[str, Any]) -> None:
        waiting = self._asked.get(frame["id"])
        if waiting is None or waiting.done():
            return
        if frame["ok"]:
            waiting.set_result(frame["payload"])
        else:
            error = frame["error"]
            waiting.set_exception(GatewayRefused(error["code"], error["message"]))
