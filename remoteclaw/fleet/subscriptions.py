"""Pub/sub for sessions over one connection.

`Outcomes.wait()` and an adapter's `live()` take a connection each, which is right for a command and
for an adapter, and too much for a gateway whose clients follow hundreds of sessions.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from redis import exceptions

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import RECONNECT_S, Scripts

Listener = Callable[[bytes | None], None]
"""Is called with what was announced; with None when something may have been missed."""


class Subscriptions:
    """Listens to announcements of sessions: live text, and entries whose outcome is final."""

    def __init__(self, scripts: Scripts) -> None:
        self._client = scripts.client
        self._listeners: dict[bytes, list[Listener]] = {}
        self._changed = asyncio.Event()

    def follow(self, sid: str, *, live: Listener, done: Listener) -> None:
        """Call these with a session's announcements; they must not wait."""
        self.hear(keys.live(sid), live)
        self.hear(keys.outcome_channel(sid), done)

    def hear(self, channel: str, listener: Listener) -> None:
        """Call this one, too, with each announcement on a channel; it must not wait."""
        self._listeners.setdefault(channel.encode(), []).append(listener)
        self._changed.set()

    def ignore(self, channel: str) -> None:
        """Call no one any more with a channel's announcements."""
        self._listeners.pop(channel.encode(), None)
        self._changed.set()

    def unfollow(self, sid: str) -> None:
        """Call no one any more with a session's announcements."""
        self.ignore(keys.live(sid))
        self.ignore(keys.outcome_channel(sid))

    async def run(self) -> None:
        """Listen for ever, whether Redis is there or not."""
        while True:
            try:
                await self._listen()
            except* (exceptions.RedisError, OSError):
                await asyncio.sleep(RECONNECT_S)

    async def _listen(self) -> None:
        """Listen until the connection is lost. Only one task reads, and only one writes."""
        async with self._client.pubsub() as pubsub:
            await pubsub.subscribe(keys.NOTHING)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_subscribed(pubsub))
                while True:
                    message = await pubsub.get_message(timeout=None)
                    if message is not None:
                        self._tell(message)

    async def _keep_subscribed(self, pubsub: Any) -> None:
        subscribed: set[bytes] = set()
        while True:
            self._changed.clear()
            wanted = {*self._listeners}
            if more := wanted - subscribed:
                await pubsub.subscribe(*more)
            if less := subscribed - wanted:
                await pubsub.unsubscribe(*less)
            subscribed = wanted
            await self._changed.wait()

    def _tell(self, message: dict[str, Any]) -> None:
        for listener in [*self._listeners.get(message["channel"], ())]:
            if message["type"] == "subscribe":
                listener(None)  # from now on it is heard; what was before may have been missed
            elif message["type"] == "message":
                listener(message["data"])
