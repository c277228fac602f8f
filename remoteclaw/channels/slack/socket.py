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
from remoteclaw.errors import AccountRefused, PlatformAway

#: Time limit for opening a connection until Slack's first message, in seconds.
OPEN_S = 10.0
#: A connection that lives shorter counts as failed, so that the next one waits, in seconds.
SHORT_S = 5.0
#: A ping that is not answered within this time ends the connection, in seconds.
PING_S = 10.0

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
        self._opened_at = 0.0
        self._reading: set[asyncio.Task[None]] = set()
        self._is_refused = False
        """Whether Socket Mode is switched off."""
        self.was_lost = True
        """Whether there was a time without a connection before the current one."""

    async def ensure(self) -> None:
        """Open a connection if there is none, or if Slack is about to close it.

        Raises `AccountRefused`, and `PlatformAway` also after one that has just ended.
        """
        if self._is_refused:
            self._is_refused = False
            raise AccountRefused("Socket Mode is switched off: switch it on on the app's page.")
        if self._current is not None:
            return
        if self._opened_at and time.monotonic() - self._opened_at < SHORT_S:
            self._opened_at = 0.0
            raise PlatformAway("Slack has closed the connection at once.")
        url = str((await self._api.call("apps.connections.open"))["url"])
        try:
            async with asyncio.timeout(OPEN_S):
                connection = await connect(
                    url,
                    max_size=2**22,
                    ping_interval=PING_S,
                    ping_timeout=PING_S,
                    close_timeout=1,
                )
                hello = json.loads(await connection.recv())
        except (OSError, TimeoutError, ValueError, WebSocketException) as error:
            raise PlatformAway(f"Slack can't be reached ({type(error).__name__}).") from None
        if hello.get("type") != "hello":
            await connection.close()
            raise PlatformAway(f"Slack did not say hello: {hello.get('reason') or hello}.")
        self._current, self._opened_at = connection, time.monotonic()
        task = asyncio.create_task(self._read(connection))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def envelopes(self, wait_s: float) -> list[Envelope]:
        """Return what has arrived, once something has, or the connection has ended."""
        found = []
        if self._arrived.empty() and self._current is not None:
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
        if self._current is connection:
            self._current = None
        if len(self._reading) == 1:  # no other connection is there
            self.was_lost = True
        self._wake(connection)

    def _take(self, frame: str | bytes, connection: ClientConnection) -> None:
        try:
            message = json.loads(frame)
            if message.get("type") == "disconnect":
                self._is_refused = message.get("reason") == "link_disabled"
                if self._current is connection:  # it goes on until its end; the next one begins
                    self._current = None
                self._wake(connection)
            elif "envelope_id" in message:
                payload = message.get("payload") or {}
                envelope = Envelope(message["envelope_id"], message["type"], payload, connection)
                self._arrived.put_nowait(envelope)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            log.warning("Slack has sent what is no envelope: %s", type(error).__name__)

    def _wake(self, connection: ClientConnection) -> None:
        self._arrived.put_nowait(Envelope("", "", {}, connection))

    async def close(self) -> None:
        """Close all connections, and forget what has arrived: Slack repeats it."""
        self._current, self._arrived = None, asyncio.Queue()
        self._opened_at, self.was_lost = 0.0, True
        for task in [*self._reading]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
