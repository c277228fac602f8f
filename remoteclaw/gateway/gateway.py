"""The gateway: what its doors share.

It keeps no state but its clients' connections, so any number of gateways serve the same fleet.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol

from remoteclaw.commands.answers import carry_out_changes
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet
from remoteclaw.gateway.audit import Auditing
from remoteclaw.gateway.auth import Authenticator
from remoteclaw.gateway.call import GatewayParts, Handler, Subscriber
from remoteclaw.gateway.consoles import Consoles
from remoteclaw.gateway.dispatch import Dispatcher
from remoteclaw.gateway.feeds import Audience, Feeds
from remoteclaw.gateway.host_terminals import HostTerminals
from remoteclaw.gateway.limits import Calls
from remoteclaw.gateway.metrics import Meters
from remoteclaw.gateway.page.chats import PageChats
from remoteclaw.gateway.principals import Principal
from remoteclaw.gateway.token_file import token_files
from remoteclaw.host.logs import frames_of
from remoteclaw.tools.base import Method, Result
from remoteclaw.tools.catalog import METHODS

#: Interval of the events that show clients that the connection lives, in seconds.
TICK_S = 30.0
#: Interval of the check that clients' tokens are still valid, in seconds.
WATCH_S = 1.0
#: Interval of the look for changes of the configuration that somebody else has allowed, in seconds.
CARRY_OUT_S = 2.0
#: How long running calls are given when the gateway ends, and then its clients to be told, in
#: seconds: a process that was asked to end should do so within two.
FINISH_S, FAREWELL_S = 0.8, 0.3

log = logging.getLogger(__name__)


class Client(Audience, Protocol):
    """A connection that lives longer than one call."""

    @property
    def principal(self) -> Principal | None:
        """The client's principal; None while it is not known."""

    def end(self, code: int, reason: str) -> None:
        """Begin to close it."""


class Gateway:
    """Answers calls and sends events of sessions, whichever door they come through."""

    def __init__(
        self,
        fleet: Fleet,
        home: Home,
        config: Callable[[], Config],
        handlers: Mapping[str, Handler],
        *,
        methods: Mapping[str, Method] = METHODS,
    ) -> None:
        """`config` returns the current configuration."""
        self.fleet = fleet
        self.home = home
        self.config = config
        self.meters = Meters()
        self.restart = asyncio.Event()
        self.calls = Calls()
        self.feeds = Feeds(fleet)
        self.terminals = HostTerminals(fleet, home, config, self.feeds)
        self.consoles = Consoles(fleet)
        self.page_chats = PageChats(fleet, home, config, self.feeds)
        self.dispatcher = Dispatcher(
            fleet,
            home,
            config,
            handlers,
            methods=methods,
            restart=self.restart,
            parts=GatewayParts(
                terminals=self.terminals,
                consoles=self.consoles,
                page_chats=self.page_chats,
            ),
        )
        self.authenticator = Authenticator(
            fleet, self.dispatcher, token_files(home.path), lambda: config().gateway
        )
        self._auditing = Auditing(fleet.audit)
        self.clients: set[Client] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    async def call(
        self,
        principal: Principal,
        name: str,
        params: Mapping[str, Any],
        *,
        call_id: str | None = None,
        session_key: str | None = None,
        subscriber: Subscriber | None = None,
        address: str = "",
    ) -> tuple[Result, list[dict[str, Any]]]:
        """Answer one call within the limits, as `Dispatcher.call()` does, and count it.

        `address` is where it comes from, which the audit keeps.
        """
        outcome, result = "CANCELLED", None
        try:
            async with self.calls.one(principal):
                answer = await self.dispatcher.call(
                    principal,
                    name,
                    params,
                    call_id=call_id,
                    session_key=session_key,
                    subscriber=subscriber,
                )
            outcome, result = "ok", answer[0]
            return answer
        except CallRefused as refusal:
            outcome = refusal.code
            raise
        finally:
            self.meters.called(name, outcome)
            await self._auditing.note(principal, name, params, outcome, result, address)

    async def run(self) -> None:
        """Send events and end connections whose token is no longer valid, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.feeds.run())
            tasks.create_task(self.consoles.run())
            tasks.create_task(self._carry_out())
            tasks.create_task(self.page_chats.run())
            tasks.create_task(self.terminals.run())
            tasks.create_task(self._watch())
            tasks.create_task(self._tick())

    async def _carry_out(self) -> None:
        """Make the changes of this host's configuration that were allowed and are not made yet."""
        while True:
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                await carry_out_changes(self.fleet, self.home)
            await asyncio.sleep(CARRY_OUT_S)

    @contextlib.contextmanager
    def connected(self, client: Client) -> Iterator[None]:
        """Send a client the events that all clients get."""
        self.clients.add(client)
        self._is_empty.clear()
        try:
            yield
        finally:
            self.clients.discard(client)
            if not self.clients:
                self._is_empty.set()

    async def end(self, reason: Literal["stopped", "restarting"], *, within_s: float) -> None:
        """Tell the clients, let running calls finish, cut off the others, and end connections."""
        for client in list(self.clients):
            client.tell("shutdown", {"reason": reason})
        await self.calls.finish(within_s=within_s)
        for client in list(self.clients):
            client.end(1012, "The gateway ends.")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await self._is_empty.wait()

    async def _watch(self) -> None:
        """End the connections whose token is no longer valid, or gives other rights."""
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
            return True  # without Redis nothing can be done with it either; the next look tells
        except Exception as error:  # noqa: BLE001 - one odd record must not end the process
            log.error("a token can't be checked: %s", frames_of(error))
            return False

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for client in list(self.clients):
                client.tell("tick", {})
