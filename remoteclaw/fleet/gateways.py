"""The addresses of the hosts' gateways, each announced while the gateway runs."""

import contextlib
from collections.abc import AsyncIterator, Callable

from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.processes import announcing

#: A gateway announces its address at this interval, in seconds.
ANNOUNCE_S = 5.0
#: An announced address expires after this time, in milliseconds.
ADDRESS_MS = 30_000
#: A gateway that ends has this long to withdraw its address, in seconds. It has two seconds in all,
#: of which its calls and clients take up to 1.3. An address that is not withdrawn expires.
WITHDRAW_S = 0.6


class Gateways:
    """Announces and finds the address of each host's gateway."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def address(self, host_id: str) -> str | None:
        """Return the HTTP address of a host's gateway; None if no gateway runs there."""
        address = await self._scripts.call(self._scripts.client.get, keys.gateway(host_id))
        return address.decode() if address else None

    @contextlib.asynccontextmanager
    async def announced(
        self, host_id: str, address: str, *, is_restarting: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[None]:
        """Announce a gateway's address for its host until the context ends.

        If a host has several gateways, the address of any of them is found. At the end the address
        is withdrawn, unless `is_restarting()`: then the next gateway uses it at once.
        """

        async def announce() -> None:
            await self._announce(host_id, address)

        async def withdraw() -> None:
            if not is_restarting():
                await self.withdraw(host_id, address)

        await announce()
        async with announcing(announce, ANNOUNCE_S, withdraw, WITHDRAW_S, first_s=ANNOUNCE_S):
            yield

    async def withdraw(self, host_id: str, address: str) -> None:
        """Remove an address, unless another gateway has announced its own since."""
        if await self.address(host_id) == address:
            await self._scripts.call(self._scripts.client.delete, keys.gateway(host_id))

    async def _announce(self, host_id: str, address: str) -> None:
        client, name = self._scripts.client, keys.gateway(host_id)
        await self._scripts.call(client.set, name, address, px=ADDRESS_MS)
