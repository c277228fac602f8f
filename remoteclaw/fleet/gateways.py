"""The addresses of gateways, each valid while its gateway runs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts

#: How often a gateway says where it is, in seconds, and how long that holds, in milliseconds.
SAY_S, HOLDS_MS = 5.0, 30_000
#: How long an ending gateway tries to give its name back, in seconds: it has two in all, of which
#: calls and clients take up to 1.3. If it can't, the address holds a while longer.
END_S = 0.6


class Gateways:
    """The address of each host's gateway."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def address(self, host_id: str) -> str | None:
        """Return where a host's gateway is, as an http address; None without one."""
        found = await self._scripts.call(self._scripts.client.get, keys.gateway(host_id))
        return found.decode() if found else None

    @contextlib.asynccontextmanager
    async def announced(
        self, host_id: str, address: str, *, stays: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[None]:
        """Announce where a host's gateway is; of several, any of them.

        In the end it is forgotten, unless it `stays`, because another one follows there at once.
        """
        await self._announce(host_id, address)

        async def keep() -> None:
            while True:
                await asyncio.sleep(SAY_S)
                with contextlib.suppress(RedisUnavailable, RedisRefused):
                    await self._announce(host_id, address)

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait((keeping,))
            if not stays():
                with contextlib.suppress(RedisUnavailable, RedisRefused, TimeoutError):
                    async with asyncio.timeout(END_S):
                        await self.withdraw(host_id, address)

    async def withdraw(self, host_id: str, address: str) -> None:
        """Forget an address, unless it is another gateway's by now."""
        if await self.address(host_id) == address:
            await self._scripts.call(self._scripts.client.delete, keys.gateway(host_id))

    async def _announce(self, host_id: str, address: str) -> None:
        client, name = self._scripts.client, keys.gateway(host_id)
        await self._scripts.call(client.set, name, address, px=HOLDS_MS)
