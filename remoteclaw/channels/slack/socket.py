"""The WebSocket over which Slack pushes what people do (Socket Mode).

Slack repeats an envelope that is not acknowledged, at once and after one and five minutes.
"""

import asyncio
import contextlib
import json
import logging
import time
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from remoteclaw.channels.slack.api import WebApi
from remoteclaw.errors import AccountRefused, PlatformAway, PlatformBusy

#: Time limit for opening a connection until Slack's first message, in seconds.
OPEN_S = 10.0
#: After a connection that lived shorter, in seconds, the next one waits, each time twice as long,
#: up to a minute: Slack lets an app open about one a minute.
SHORT_S = 5.0
#: A ping that is not answered within this time ends the connection, in seconds.
PING_S = 10.0

SWITCHED_OFF = "Socket Mode is switched off: switch it on on the app's page."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Envelope:
    """What Slack has pushed."""

    id: str
    kind: str
    """`events_api`, `interactive` or `slash_commands`."""
    payload: dict[str, Any]
    _connection: ClientConnection = field(repr=False)
    answer: dict[str, Any] = field(default_factory=dict)
    """What Slack shows to the person when it is acknowledged."""

    async def acknowledge(self) -> None:
        """Tell Slack that it has arrived. After the end of its connection, Slack repeats it."""
        reply = {"envelope_id": self.id} | ({"payload": self.answer} if self.answer else {})
        with contextlib.suppress(ConnectionClosed):
            await self._connection.send(json.dumps(reply))


class Socket:
    """A connection at a time; while one is being replaced, two."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._arrived: asyncio.Queue[Envelope] = asyncio.Queue()
        self._current: ClientConnection | None = None
        self._opened_at = self._next_at = 0.0
        self._in_short = 0
        """How many connections in a row have lived shortly."""
        self._reading: set[asyncio.Task[None] | None] = set()
        self._is_refused = False
        """Whether Socket Mode is switched off."""
        self.was_lost = True
        """Whether there was a time without a connection before the current one."""
        self.is_shared = False
        """Whether Slack had other connections when it opened the current one: of a process that is
        frozen, or one that is lost here. They get a part of the events."""

    async def ensure(self) -> None:
        """Open a connection if there is none, or if Slack is about to close it.

        Raises `AccountRefused`, and `PlatformAway` and `PlatformBusy` if there is none at all.
        """
        if self._is_refused:
            self._is_refused = False
            raise AccountRefused(SWITCHED_OFF)
        if self._current is not None:
            return
        if time.monotonic() < self._next_at:
            if not self._reading:
                raise PlatformAway("Slack has closed connections at once: the next one waits.")
            return
        try:
            connection = await self._open()
        except (PlatformAway, PlatformBusy) as error:
            if not self._reading:
                raise
            self._next_at = time.monotonic() + getattr(error, "after_s", SHORT_S)
            return
        self._current, self._opened_at = connection, time.monotonic()
        self._reading.add(asyncio.create_task(self._read(connection)))

    async def _open(self) -> ClientConnection:
        url = str((await self._api.call("apps.connections.open"))["url"])
        connection: ClientConnection | None = None
        hello: dict[str, Any] = {}
        try:
            async with asyncio.timeout(OPEN_S):
                connection = await connect(
                    url,
                    max_size=2**22,
                    ping_interval=PING_S,
                    ping_timeout=PING_S,
                    close_timeout=1,
                )
                hello = dict(json.loads(await connection.recv()))
        except (OSError, TimeoutError, TypeError, ValueError, WebSocketException) as error:
            raise PlatformAway(f"Slack can't be reached ({type(error).__name__}).") from None
        finally:  # Slack would send events to one that nobody reads
            if connection and hello.get("type") != "hello":
                await connection.close()
        if hello.get("reason") == "link_disabled":
            raise AccountRefused(SWITCHED_OFF)
        if connection is None or hello.get("type") != "hello":
            raise PlatformAway(f"Slack did not say hello: {hello.get('reason')}.")
        self.is_shared = hello.get("num_connections", 1) not in range(len(self._reading) + 2)
        return connection

    async def envelopes(self, wait_s: float) -> list[Envelope]:
        """Return what has arrived, once something has, or the connection has ended."""
        found = []
        if self._current is None:
            wait_s = min(wait_s, self._next_at - time.monotonic())
        if self._arrived.empty() and self._reading:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    found.append(await self._arrived.get())
        while not self._arrived.empty():
            found.append(self._arrived.get_nowait())
        return [each for each in found if each.kind]

    async def _read(self, connection: ClientConnection) -> None:
        try:
            async for frame in connection:
                self._take(frame, connection)
        except ConnectionClosed:
            pass
        finally:
            await connection.close()
            self._reading -= {asyncio.current_task()}
            self.was_lost |= not self._reading
            self._lose(connection)

    def _lose(self, connection: ClientConnection) -> None:
        """Note that a connection has ended, or is about to; the next one begins."""
        if self._current is connection:
            self._current, now = None, time.monotonic()
            is_short = now - self._opened_at < SHORT_S
            self._in_short = min(self._in_short + 1, 6) if is_short else 0
            self._next_at = now + 2**self._in_short - 1
        self._arrived.put_nowait(Envelope("", "", {}, connection))

    def _take(self, frame: str | bytes, connection: ClientConnection) -> None:
        try:
            message = json.loads(frame)
            if message.get("type") == "disconnect":
                self._is_refused = message.get("reason") == "link_disabled"
                self._lose(connection)
            elif "envelope_id" in message:
                payload = message.get("payload") or {}
                envelope = Envelope(message["envelope_id"], message["type"], payload, connection)
                self._arrived.put_nowait(envelope)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            log.warning("Slack has sent what is no envelope: %s", type(error).__name__)

    async def close(self) -> None:
        """Close all connections, and forget what has arrived: Slack repeats it."""
        self._current, self._arrived, self.was_lost = None, asyncio.Queue(), True
        for task in filter(None, [*self._reading]):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._reading.clear()
