"""A connection to Plaza: one WebSocket, for calls in one direction and for events in the other.

Each frame is a JSON object:

    ← {"hello": {"heartbeat_s": 20}}
    → {"call": "post", "number": 7, "room": "42", "text": "hi"}
    ← {"answer": 7, "result": {"id": "m31"}}
    ← {"answer": 7, "error": {"code": "busy", "text": "Too many posts.", "after_s": 2}}
    ← {"event": "message", "seq": 5, …}
    → {"heartbeat": 5}, twice in each `heartbeat_s`, or Plaza closes the connection
"""

import asyncio
import contextlib
import itertools
import json
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from remoteclaw.errors import (
    AccountRefused,
    PlatformAway,
    PlatformBusy,
    PlatformRefused,
    PlatformUnknown,
)

#: The maximum number of events that are returned at once, and that one call reads from a history.
PAGE = 100
#: The maximum time to open a connection, and to wait for the answer of a call, in seconds.
OPEN_S, CALL_S = 10.0, 30.0
#: The maximum size of a frame, in bytes: a file of 20 MB as Base64 fits.
MAX_FRAME = 32 * 1024 * 1024


class NoThread(PlatformRefused):
    """Raised for a post to a thread that nobody has opened."""


class Connection:
    """An open connection. It is never opened again: after a loss, open another one."""

    def __init__(self, socket: ClientConnection, heartbeat_s: float) -> None:
        self.name = ""
        """The name of the account."""
        self.session = ""
        """The name of the session whose events Plaza pushes."""
        self.seq = 0
        """The number of the session's last event that is stored."""
        self.is_lost = False
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._events: list[dict[str, Any]] = []
        self._news = asyncio.Event()
        work = (self._receive(), self._beat(heartbeat_s / 2))
        self._tasks = [asyncio.create_task(each) for each in work]

    @classmethod
    async def open(cls, url: str, token: str) -> "Connection":
        """Connect to Plaza, and log in. Raises `PlatformAway` and `AccountRefused`."""
        try:
            async with asyncio.timeout(OPEN_S):
                socket = await connect(url, max_size=MAX_FRAME)
                hello = json.loads(await socket.recv())["hello"]
        except (OSError, TimeoutError, WebSocketException) as error:
            raise PlatformAway(f"Plaza can't be reached: {type(error).__name__}.") from None
        connection = cls(socket, hello["heartbeat_s"])
        try:
            connection.name = (await connection.call("log_in", token=token))["name"]
        except BaseException:
            await connection.close()
            raise
        return connection

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Return the result of a call.

        Raises `PlatformUnknown` if the connection is lost before the answer arrives, and the error
        that the answer names.
        """
        if self.is_lost:
            raise PlatformAway("The connection to Plaza is lost.")
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(CALL_S):
                await self._socket.send(json.dumps({"call": name, "number": number, **arguments}))
                return _result(await answer)
        except (ConnectionClosed, TimeoutError):
            raise PlatformUnknown(f"The answer to {name} was lost.") from None
        finally:
            del self._answers[number]

    async def events(self, within_s: float) -> list[dict[str, Any]]:
        """Wait for events, and return those that have arrived. Raises `PlatformAway`."""
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            return []
        if self.is_lost and not self._events:
            raise PlatformAway("The connection to Plaza is lost.")
        events, self._events = self._events[:PAGE], self._events[PAGE:]
        if not self.is_lost and not self._events:
            self._news.clear()
        return events

    async def close(self) -> None:
        """Close the connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._socket.close()

    async def _receive(self) -> None:
        """Sort incoming frames into answers and events until the connection is lost."""
        try:
            async for frame in self._socket:
                message = json.loads(frame)
                if "event" in message:
                    self._events.append(message)
                    self._news.set()
                elif (answer := self._answers.get(message["answer"])) and not answer.done():
                    answer.set_result(message)
        except ConnectionClosed:
            pass
        finally:
            self.is_lost = True
            self._news.set()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(PlatformUnknown("The connection to Plaza was lost."))

    async def _beat(self, every_s: float) -> None:
        """Send heartbeats until the connection is lost."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await asyncio.sleep(every_s)
                await self._socket.send(json.dumps({"heartbeat": self.seq}))


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the result in the answer of a call, or raise its error."""
    if "result" in answer:
        return dict(answer["result"])
    error = answer["error"]
    match error["code"]:
        case "busy":
            raise PlatformBusy(error["text"], after_s=error["after_s"])
        case "away":
            raise PlatformAway(error["text"])
        case "account":
            raise AccountRefused(error["text"])
        case "no_thread":
            raise NoThread(error["text"])
        case _:
            raise PlatformRefused(error["text"])
