"""Browsers that are notified of what comes in their person's chats on the page."""

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.tokens import Tokens

#: How many browsers of one person are notified: the newest.
MOST = 10
#: How long they are kept after one was added, in milliseconds: the page does so when it is opened.
KEPT_MS = 90 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser that is notified, as it has subscribed to its push service."""

    token: str
    """The id of the token that it is logged in with, and without which it is told nothing."""
    endpoint: str
    """The address to send to."""
    public_key: str
    auth: str
    server_key: str
    """The public key of the gateway that may send to it."""


class Pushes:
    """The browsers that are notified."""

    def __init__(self, scripts: Scripts, tokens: Tokens) -> None:
        self._scripts = scripts
        self._tokens = tokens

    async def add(self, person: str, browser: Browser) -> None:
        """Add a browser to notify, in place of its token's earlier one; drop the oldest of many."""
        name = keys.pushes(person)
        now = await self._scripts.now_ms()
        kept = orjson.dumps({**asdict(browser), "at_ms": now})

        *_, found = await self._scripts.together(
            lambda ask: (
                ask.hset(name, browser.token, kept),
                ask.pexpire(name, KEPT_MS),
                ask.hgetall(name),
            )
        )
        newest = sorted(found, key=lambda token: orjson.loads(found[token])["at_ms"])
        for token in newest[:-MOST]:
            await self.remove(person, token.decode())

    async def remove(self, person: str, token: str) -> None:
        """Remove the browser with a token."""
        await self._scripts.call(self._scripts.client.hdel, keys.pushes(person), token)

    async def of(self, person: str) -> AsyncIterator[Browser]:
        """Yield a person's browsers whose token is still valid; the others are removed."""
        client = self._scripts.client
        for token, kept in (await self._scripts.call(client.hgetall, keys.pushes(person))).items():
            view = await self._tokens.read(token.decode())
            if view is None or view.is_expired:
                await self.remove(person, token.decode())
                continue
            fields = orjson.loads(kept)
            del fields["at_ms"]
            yield Browser(**fields)
