"""The gateway: the parts that its doors share.

It keeps no state but its clients' connections, so any number of them serve the same fleet.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, Protocol

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet
from remoteclaw.gateway.auth import Authenticator
from remoteclaw.gateway.call import Handler, Restart
from remoteclaw.gateway.feeds import Audience, Feeds
from remoteclaw.gateway.limits import LimitedDispatcher
from remoteclaw.gateway.meters import Meters
from remoteclaw.gateway.principals import Principal
from remoteclaw.gateway.token_file import token_files
from remoteclaw.host.logs import frames_of
from remoteclaw.tools.catalog import METHODS, Method

__all__ = ["TICK_S", "Client", "Gateway"]

#: How often clients hear that the connection lives, in seconds.
TICK_S = 30.0
#: How often it is looked whether clients' tokens are still valid, in seconds.
WATCH_S = 1.0
#: How long running calls are given when the gateway ends, and then its clients to hear of it, in
#: seconds: two in all, and nobody should wait longer for a process that was asked to end.
FINISH_S, FAREWELL_S = 0.8, 0.3

log = logging.getLogger(__name__)


class Client(Audience, Protocol):
    """A connection that lives longer than one call."""

    @property
    def principal(self) -> Principal | None:
        """Whose it is; None while that is not known."""

    def end(self, code: int, reason: str) -> None:
        """Close it, without waiting."""


class Gateway:
    """Answers calls and tells of sessions, whichever door they come through."""

    def __init__(
        self,
        fleet: Fleet,
        home: Home,
        config: Callable[[], Config],
        handlers: Mapping[str, Handler],
        *,
        methods: Mapping[str, Method] = METHODS,
    ) -> None:
        """`config` returns the configuration of now."""
        self.fleet = fleet
        self.home = home
        self.config = config
        self.meters = Meters()
        self.restart = Restart()
        self.dispatcher = LimitedDispatcher(
            fleet,
            home,
            config,
            handlers,
            methods=methods,
            meters=self.meters,
            restart=self.restart,
        )
        self.authenticator = Authenticator(fleet, self.dispatcher, token_files(home.path))
        self.feeds = Feeds(fleet)
        self.clients: set[Client] = set()
        self._nobody = asyncio.Event()
        self._nobody.set()

    async def run(self) -> None:
        """Do what has to be done beside answering, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.feeds.run())
            tasks.create_task(self._watch())
            tasks.create_task(self._tick())

    @contextlib.contextmanager
    def connected(self, client: Client) -> Iterator[None]:
        """Have a client told what all are told."""
        self.clients.add(client)
        self._nobody.clear()
        try:
            yield
        finally:
            self.clients.discard(client)
            if not self.clients:
                self._nobody.set()

    @property
    def is_ending(self) -> bool:
        """Whether nothing new is taken on."""
        return self.dispatcher.is_closed

    async def end(self, reason: Literal["stopped", "restarting"]) -> None:
        """Take no more calls, let those that run finish for a moment, and part from clients."""
        for client in list(self.clients):
            client.tell("shutdown", {"reason": reason})
        await self.dispatcher.close(within_s=FINISH_S)
        for client in list(self.clients):
            client.end(1012, "The gateway ends.")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await self._nobody.wait()

    async def _watch(self) -> None:
        """Close the connections whose token is worth nothing, or something else, by now."""
        while True:
            await asyncio.sleep(WATCH_S)
            valid: dict[Principal, bool] = {}
            for client in list(self.clients):
                principal = client.principal
                if principal is None:
                    continue
                if principal not in valid:
                    valid[principal] = await self._is_valid(principal)
                if not valid[principal]:
                    client.end(1008, "This token is not valid any more.")

    async def _is_valid(self, principal: Principal) -> bool:
        try:
            return await self.authenticator.is_valid(principal)
        except (RedisUnavailable, RedisRefused):
            return True  # without Redis nothing can be done with it either; it is looked again
        except Exception as error:  # noqa: BLE001 - one odd record must not end the process
            log.error("it can't be seen whether a token is valid: %s", frames_of(error))
            return False

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for client in list(self.clients):
                client.tell("tick", {})
