"""The gateway process: it listens, announces its address, and ends on request."""

import asyncio
import contextlib
import errno
import importlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import ModuleType

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from remoteclaw.config.edit import ConfigFile
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.errors import ConfigError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.connection import check_fitness
from remoteclaw.gateway.address import listen, listen_privately, path_of, url_of
from remoteclaw.gateway.app import create_app
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.guard import names_of
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.gateway.rpc import MOST_BYTES
from remoteclaw.gateway.sockets import Http, Socket, raise_descriptors
from remoteclaw.gateway.token_file import token_files

__all__ = ["serve", "served"]

#: How large the head of a request may be, in bytes.
MOST_HEAD_BYTES = 16 * 1024
#: How long an idle connection is kept for the next request, in seconds: agents call in bursts.
IDLE_S = 60
#: How often a client is pinged, and how long it may take to answer, in seconds.
PING_S = 20.0
#: How long open connections are listened to before a restart, in seconds: whoever has one and uses
#: it is told to open another. And how long calls that run are given: who asks meanwhile waits.
ANSWER_S, RESTART_S = 0.2, 5.0
#: How long it is waited before `mcp` is imported again, in seconds.
IMPORT_S = 1.0

log = logging.getLogger(__name__)


async def serve(
    home: Home,
    config: Config,
    *,
    stop: asyncio.Event,
    sockets: Sequence[socket.socket] = (),
    is_alone: bool = True,
    said: Callable[[str], None] = log.info,
) -> list[socket.socket] | None:
    """Be a gateway until `stop` is set. `said` is told once where it is.

    Without sockets that listen already, the one that has an address and then the private one, they
    are opened. Raises `RemoteClawError` for a start that can't be: a port in use, a token that must
    not be used, no Redis. If it was asked to start anew, the sockets are returned on which the next
    one answers; who asks meanwhile waits there. The first is another one if the configuration says
    so by now and this gateway `is_alone`: else the sockets are of whoever looks after it.
    """
    kept: list[socket.socket] = []
    raise_descriptors()
    for file in token_files(home.path):
        file.create()
    sockets = list(sockets) or [listen(config.gateway)]
    if len(sockets) == 1:  # an older `up` passes on one
        sockets.append(listen_privately(home))
    private = path_of(sockets[1], home)
    url = home.redis_url(config)
    fleet = Fleet.open(url, lease_s=config.fleet.lease_s, memory_limit=config.redis.memory_limit)
    try:
        await check_fitness(fleet.scripts.client, url)
        current = CurrentConfig(home, config, keep=ConfigFile(home.config_file).keep)
        gateway = Gateway(fleet, home, current, HANDLERS)
        address = url_of(sockets[0])
        here = fleet.gateways.announced(
            home.host_id, address, stays=lambda: bool(kept) and url_of(kept[0]) == address
        )
        async with served(gateway, *sockets, announced=here) as server:
            said(address)
            await _first(stop, gateway.restart.wanted)
            while not stop.is_set() and not _can_restart(current):
                log.error("the gateway is not restarted: its file has changed since it was asked")
                gateway.restart.wanted.clear()
                await _first(stop, gateway.restart.wanted)
            if stop.is_set():
                await gateway.end("stopped")
            else:
                kept = _kept(sockets, home, config, is_alone=is_alone)
                server.accept_no_more()
                await asyncio.sleep(ANSWER_S)
                await gateway.dispatcher.idle(within_s=RESTART_S)
                server.close_idle()
                await gateway.end("restarting")
        return None if stop.is_set() else kept
    finally:
        if is_alone and (stop.is_set() or not kept):
            private.unlink(missing_ok=True)
        for listening in sockets:
            listening.close()
        await fleet.aclose()


def _can_restart(current: CurrentConfig) -> bool:
    """Whether a gateway that starts now comes back, on the same Redis."""
    return current().redis == current.at_start.redis and current.problem is None


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of several events is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _kept(
    sockets: Sequence[socket.socket], home: Home, config: Config, *, is_alone: bool
) -> list[socket.socket]:
    """Return the sockets for the gateway that follows: these, or where the file says by now."""
    others = [listening.dup() for listening in sockets[1:]]
    if is_alone:
        with contextlib.suppress(ConfigError):
            wanted = load_config(home.config_file).gateway
            if (wanted.host, wanted.port) != (config.gateway.host, config.gateway.port):
                return [listen(wanted), *others]
    return [sockets[0].dup(), *others]


@contextlib.asynccontextmanager
async def served(
    gateway: Gateway,
    *sockets: socket.socket,
    announced: AbstractAsyncContextManager[None] | None = None,
) -> "AsyncIterator[_Server]":
    """Have a gateway answer what comes to its sockets, and have that announced meanwhile."""
    mcp = _Mcp(gateway)
    server = _server(create_app(gateway, mcp=mcp))
    async with asyncio.TaskGroup() as tasks:
        duties = [tasks.create_task(gateway.run())]
        serving = tasks.create_task(server.serve(sockets=list(sockets)))
        try:
            await server.is_started.wait()
            async with announced or contextlib.nullcontext():
                duties.append(tasks.create_task(mcp.run()))
                yield server
        finally:
            for duty in duties:
                duty.cancel()
            server.should_exit = True
            await asyncio.wait((serving,))


def _server(app: ASGIApp) -> "_Server":
    """Return uvicorn, with what it lacks and without what it says of itself."""
    return _Server(
        uvicorn.Config(
            app,
            http=Http,
            ws=Socket,
            ws_max_size=MOST_BYTES,
            ws_per_message_deflate=False,  # a small frame could become a gigabyte
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=MOST_HEAD_BYTES,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=1,
        )
    )


class _Mcp:
    """The MCP host, which is there half a second after all else.

    So long the import of `mcp` takes, which nobody who waits for the gateway has to wait for: it
    goes on in a thread, and a request that comes meanwhile is answered right behind it.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._host: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Have MCP spoken, until cancelled."""
        module = await _imported("remoteclaw.gateway.mcp_host")
        # Which hosts and origins may ask, the guard has looked at before.
        config = self._gateway.config().gateway
        names = {*names_of(config), *config.hosts}
        hosts = [*names, *(f"{name}:*" for name in names)]
        host = module.McpHost(self._gateway.dispatcher, hosts=hosts, origins=config.origins)
        async with host.running():
            self._host.set_result(host)
            await asyncio.Event().wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        host = await asyncio.shield(self._host)
        await host(scope, receive, send)


async def _imported(name: str) -> ModuleType:
    """Return a module; while the system has no descriptors for its files, this waits."""
    while True:
        try:
            return await asyncio.to_thread(importlib.import_module, name)
        except (OSError, ImportError) as error:
            # The loader of shared objects says it in words.
            if isinstance(error, ImportError) and os.strerror(errno.EMFILE) not in str(error):
                raise
            log.warning("%s can't be imported yet: %s", name, type(error).__name__)
        await asyncio.sleep(IMPORT_S)


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_started = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self.is_started.set()

    def accept_no_more(self) -> None:
        """Leave new connections to whoever else has the socket.

        What comes over those that are open is answered, and that connection closed then.
        """
        for listener in self.servers:
            listener.close()
        for connection in self.server_state.connections:
            if isinstance(connection, Http):
                connection.be_last()

    def close_idle(self) -> None:
        """Close connections over which nothing is asked: the next request would be refused here."""
        for connection in [*self.server_state.connections]:
            if isinstance(connection, Http):
                connection.close_if_idle()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
