"""Push subscriptions: browsers that get notifications about their person's chats on the page."""

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.tokens import Tokens

#: A person has subscriptions for at most this many browsers, the newest.
MAX_BROWSERS = 10
#: A person's subscriptions are kept for this long after the last one was added, in milliseconds.
#: The page adds its subscription each time it is opened.
KEEP_MS = 90 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class PushSubscription:
    """The subscription of one browser at its push service."""

    token: str
    """The id of the browser's login token; without a valid token, nothing is sent."""
    endpoint: str
    """The URL to which notifications are sent."""
    public_key: str
    auth: str
    server_key: str
    """The public key of the gateway that may send to this subscription."""
    agents: tuple[str, ...] | None = None
    """The agents that the token is for; None for all."""


class PushSubscriptions:
    """Stores push subscriptions, by person."""

    def __init__(self, scripts: Scripts, tokens: Tokens) -> None:
        self._scripts = scripts
        self._tokens = tokens

    async def add(self, person: str, subscription: PushSubscription) -> None:
        """Store a subscription in place of its token's previous one; drop the oldest if needed."""
        name = keys.pushes(person)
        now = await self._scripts.now_ms()
        stored = orjson.dumps({**asdict(subscription), "at_ms": now})

        *_, by_token = await self._scripts.run_pipeline(
            lambda ask: (
                ask.hset(name, subscription.token, stored),
                ask.pexpire(name, KEEP_MS),
                ask.hgetall(name),
            )
        )
        newest = sorted(by_token, key=lambda token: orjson.loads(by_token[token])["at_ms"])
        for token in newest[:-MAX_BROWSERS]:
            await self.remove(person, token.decode())

    async def remove(self, person: str, token: str) -> None:
        """Remove the subscription of a token."""
        await self._scripts.call(self._scripts.client.hdel, keys.pushes(person), token)

    async def of(self, person: str) -> AsyncIterator[PushSubscription]:
        """Yield a person's subscriptions, and remove those whose token is no longer valid."""
        client = self._scripts.client
        by_token = await self._scripts.call(client.hgetall, keys.pushes(person))
        for token, stored in by_token.items():
            view = await self._tokens.read(token.decode())
            if view is None or view.is_expired:
                await self.remove(person, token.decode())
                continue
            fields = orjson.loads(stored)
            del fields["at_ms"]
            yield PushSubscription(**fields)
