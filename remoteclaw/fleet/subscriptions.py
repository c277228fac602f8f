"""Pub/Sub for many sessions over one connection.

`Outcomes.wait()` and an adapter's `live()` use one connection each. A gateway, whose clients follow
hundreds of sessions, needs a shared one.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from redis import exceptions

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import RECONNECT_S, Scripts

Listener = Callable[[bytes | None], None]
"""A function that is called with each announcement, and with None if some may have been missed."""


class Subscriptions:
    """Calls listeners with the announcements on Pub/Sub channels."""

    def __init__(self, scripts: Scripts) -> None:
        self._client = scripts.client
        self._listeners: dict[bytes, list[Listener]] = {}
        self._changed = asyncio.Event()

    def follow(self, sid: str, *, on_live_text: Listener, on_outcome: Listener) -> None:
        """Call the listeners with a session's live texts and final outcomes.

        Listeners must not block.
        """
        self.add_listener(keys.live(sid), on_live_text)
        self.add_listener(keys.outcome_channel(sid), on_outcome)

    def add_listener(self, channel: str, listener: Listener) -> None:
        """Also call `listener`, which must not block, with each announcement on a channel."""
        self._listeners.setdefault(channel.encode(), []).append(listener)
        self._changed.set()

    def remove_listener(self, channel: str, listener: Listener) -> None:
        """Stop calling `listener` with the announcements on a channel."""
        listeners = self._listeners[channel.encode()]
        listeners.remove(listener)
        if not listeners:
            del self._listeners[channel.encode()]
            self._changed.set()

    def unfollow(self, sid: str) -> None:
        """Remove all listeners of a session."""
        for channel in (keys.live(sid), keys.outcome_channel(sid)):
            self._listeners.pop(channel.encode(), None)
        self._changed.set()

    async def run(self) -> None:
        """Listen forever, also while Redis is unavailable."""
        while True:
            try:
                await self._listen()
            except* (exceptions.RedisError, OSError):
                pass
            await asyncio.sleep(RECONNECT_S)

    async def _listen(self) -> None:
        """Listen until the connection is lost, with one task that reads and one that subscribes."""
        async with self._client.pubsub() as pubsub:
            await pubsub.subscribe(keys.IDLE_CHANNEL)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_subscribed(pubsub))
                while True:
                    message = await pubsub.get_message(timeout=None)
                    if message is not None:
                        self._call_listeners(message)

    async def _keep_subscribed(self, pubsub: Any) -> None:
        subscribed: set[bytes] = set()
        while True:
            self._changed.clear()
            wanted = {*self._listeners}
            if added := wanted - subscribed:
                await pubsub.subscribe(*added)
            if removed := subscribed - wanted:
                await pubsub.unsubscribe(*removed)
            subscribed = wanted
            await self._changed.wait()

    def _call_listeners(self, message: dict[str, Any]) -> None:
        for listener in [*self._listeners.get(message["channel"], ())]:
            if message["type"] == "subscribe":
                listener(None)  # announcements before the subscription may have been missed
            elif message["type"] == "message":
                listener(message["data"])
