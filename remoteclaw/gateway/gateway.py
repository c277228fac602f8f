"""The gateway object that all doors share.

Its only state is its clients' connections, so any number of gateways can serve the same fleet.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol

from remoteclaw.clock import now_ms
from remoteclaw.commands.answers import carry_out_changes
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet
from remoteclaw.gateway.auth.authenticator import Authenticator
from remoteclaw.gateway.auth.principals import Guest, Principal
from remoteclaw.gateway.auth.token_file import token_files
from remoteclaw.gateway.call import GatewayParts, Handler, Subscriber
from remoteclaw.gateway.chats import Chats
from remoteclaw.gateway.dispatch import Dispatcher
from remoteclaw.gateway.feeds import EventReceiver, Feeds
from remoteclaw.gateway.limits import Calls
from remoteclaw.gateway.metrics import GatewayMetrics
from remoteclaw.gateway.terminals.audit import Auditor
from remoteclaw.gateway.terminals.host_terminals import HostTerminals
from remoteclaw.host.logs import frames_of
from remoteclaw.tools.base import Method, Result
from remoteclaw.tools.catalog import METHODS

#: Interval of the `tick` events, which show clients that the connection is alive, in seconds.
TICK_S = 30.0
#: Interval of the check that clients' tokens are still valid, in seconds.
TOKEN_CHECK_S = 1.0
#: Interval of the check for allowed changes of this host's configuration, in seconds.
CHANGES_CHECK_S = 5.0
#: How long running calls may take to finish when the gateway ends, and then its connections to
#: close, in seconds: a process should end within two seconds of the request.
FINISH_S, FAREWELL_S = 0.8, 0.3

log = logging.getLogger(__name__)


class GatewayClient(EventReceiver, Protocol):
    """A connection that lives longer than one call."""

    @property
    def principal(self) -> Principal | Guest | None:
        """The client's principal, or the guest; None until it has authenticated."""

    def end(self, code: int, reason: str) -> None:
        """Start closing the connection."""


class Gateway:
    """Answers calls from all doors, and sends events to its clients."""

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
        self.metrics = GatewayMetrics()
        self.restart = asyncio.Event()
        self.calls = Calls()
        self.feeds = Feeds(fleet)
        self.terminals = HostTerminals(fleet, home, config, self.feeds)
        self.chats = Chats(fleet, home, config, self.feeds, self.terminals)
        self.dispatcher = Dispatcher(
            fleet,
            home,
            config,
            handlers,
            methods=methods,
            restart=self.restart,
            parts=GatewayParts(
                terminals=self.terminals,
                chats=self.chats,
            ),
        )
        self.authenticator = Authenticator(
            fleet.tokens, fleet.guest_links, self.dispatcher, token_files(home.path), config
        )
        self.auditor = Auditor(fleet.audit)
        self.clients: set[GatewayClient] = set()
        self._has_no_clients = asyncio.Event()
        self._has_no_clients.set()

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
        """Answer one call as `Dispatcher.call()` does, within the limits; count and audit it.

        `address` is the caller's address, for the audit. Raises `CallRefused`.
        """
        outcome, result = "CANCELLED", None
        try:
            async with self.calls.limited(principal) as waiting:
                answer = await self.dispatcher.call(
                    principal,
                    name,
                    params,
                    call_id=call_id,
                    session_key=session_key,
                    subscriber=subscriber,
                    waiting=waiting,
                )
            outcome, result = "ok", answer[0]
            return answer
        except CallRefused as refusal:
            outcome = refusal.code
            raise
        finally:
            self.metrics.count_call(name, outcome)
            await self.auditor.note(principal, name, params, outcome, result, address)

    async def run(self) -> None:
        """Run the gateway's background tasks, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.feeds.run())
            tasks.create_task(self._apply_allowed_changes())
            tasks.create_task(self.chats.run())
            tasks.create_task(self.terminals.run())
            tasks.create_task(self._check_tokens())
            tasks.create_task(self._send_ticks())

    async def _apply_allowed_changes(self) -> None:
        """Write the changes of this host's configuration that were allowed and not written yet."""
        while True:
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                await carry_out_changes(self.fleet.requests, self.home)
            await asyncio.sleep(CHANGES_CHECK_S)

    @contextlib.contextmanager
    def connected(self, client: GatewayClient) -> Iterator[None]:
        """Send the events for all clients to this one, too, while the block runs."""
        self.clients.add(client)
        self._has_no_clients.clear()
        try:
            yield
        finally:
            self.clients.discard(client)
            if not self.clients:
                self._has_no_clients.set()

    async def end(self, reason: Literal["stopped", "restarting"], *, within_s: float) -> None:
        """Notify clients, wait `within_s` for running calls, cancel the rest, close connections."""
        for client in list(self.clients):
            client.send_event("shutdown", {"reason": reason})
        await self.calls.finish(within_s=within_s)
        for client in list(self.clients):
            client.end(1012, "The gateway ends.")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await self._has_no_clients.wait()

    async def _check_tokens(self) -> None:
        """Close the connections whose token is no longer valid or grants other rights."""
        while True:
            await asyncio.sleep(TOKEN_CHECK_S)
            valid: dict[Principal | Guest, bool] = {}
            for client in list(self.clients):
                principal = client.principal
                if principal is None:
                    continue
                if principal not in valid:
                    valid[principal] = await self._is_valid(principal)
                if not valid[principal]:
                    client.end(1008, "This token is not valid any more.")

    async def _is_valid(self, principal: Principal | Guest) -> bool:
        try:
            return await self.authenticator.is_valid(principal)
        except (RedisUnavailable, RedisRefused):
            # Without Redis no call has an effect, and the next check decides. A guest calls
            # nothing, but sees the screen also without Redis.
            return not isinstance(principal, Guest) or now_ms() < principal.expires_ms
        except Exception as error:  # noqa: BLE001 - a broken record must not end the process
            log.error("a token can't be checked: %s", frames_of(error))
            return False

    async def _send_ticks(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for client in list(self.clients):
                client.send_event("tick", {})
