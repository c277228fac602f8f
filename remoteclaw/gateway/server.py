"""The gateway process: it listens, announces its address, and ends on request."""

import asyncio
import contextlib
import importlib
import logging
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.fitness import check_fitness
from remoteclaw.gateway.address import listen, listen_privately, path_of, url_of
from remoteclaw.gateway.doors.http import create_app
from remoteclaw.gateway.gateway import FINISH_S, Gateway
from remoteclaw.gateway.jwt import check_keys
from remoteclaw.gateway.limits import MAX_BYTES
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.gateway.token_file import token_files

#: How large the head of a request may be, in bytes.
MAX_HEAD_BYTES = 16 * 1024
#: How long an idle connection is kept for the next request, in seconds: agents call in bursts.
IDLE_S = 60
#: How often a client is pinged, and how long it may take to answer, in seconds.
PING_S = 20.0
#: How long what starts together with the gateway has the processor for itself: shorter than the
#: time in which a person types a first message.
STARTED_S = 2.0
#: Before a restart, how long requests are waited for that are on their way over connections made
#: already, in seconds, and how often while one of these has asked nothing yet; and how long calls
#: that run are given, in seconds. New connections wait meanwhile.
ARRIVE_S, ARRIVE_LOOKS, RESTART_S = 0.2, 10, 5.0
#: The most descriptors: more cost memory and are never used.
MAX_DESCRIPTORS = 65536

log = logging.getLogger(__name__)


async def serve(
    home: Home,
    config: Config,
    *,
    stop: asyncio.Event,
    sockets: Sequence[socket.socket] = (),
    is_alone: bool = True,
    said: Callable[[str], None] = log.info,
) -> Sequence[socket.socket] | None:
    """Be a gateway until `stop` is set or a restart is asked for. `said` is told once where it is.

    `sockets` are those that listen already, the one that has an address and then the private one;
    without them, they are opened. After a restart was asked for, they are returned, still open, for
    the gateway that follows; connections wait there meanwhile. Otherwise they are closed, and the
    private one is removed if the gateway `is_alone`: else it belongs to `up`.
    Raises `RemoteClawError` for a start that can't be: a port in use, a token or a secret that
    must not be used, no Redis.
    """
    _raise_descriptors()
    for file in token_files(home.path):
        file.create()
    check_keys(config.gateway)
    sockets = sockets or (listen(config.gateway), listen_privately(home))
    private = path_of(sockets[1], home)
    restarts = False
    try:
        restarts = await _serve(home, config, sockets, stop=stop, said=said)
        return sockets if restarts else None
    finally:
        if not restarts:
            for listening in sockets:
                listening.close()
            if is_alone:
                private.unlink(missing_ok=True)


async def _serve(
    home: Home,
    config: Config,
    sockets: Sequence[socket.socket],
    *,
    stop: asyncio.Event,
    said: Callable[[str], None],
) -> bool:
    """Answer what comes to sockets; return whether a restart ended it. They stay open."""
    url = home.redis_url(config)
    fleet = Fleet.open(url, memory_limit=config.redis.memory_limit)
    try:
        await check_fitness(fleet.scripts.client, url)
        current = CurrentConfig(home, config)
        gateway = Gateway(fleet, home, current, HANDLERS)
        address = url_of(sockets[0])

        def restarts() -> bool:
            return gateway.restart.is_set() and not stop.is_set()

        announced = fleet.gateways.announced(home.host_id, address, stays=restarts)
        gateway.terminals.address = address
        async with served(gateway, *sockets) as server, announced:
            said(address)
            await _first(stop, gateway.restart)
            if restarts():
                await server.accept_no_more()
                await gateway.end("restarting", within_s=RESTART_S)
            else:
                await gateway.end("stopped", within_s=FINISH_S)
        return restarts()
    finally:
        await fleet.aclose()


def _raise_descriptors() -> None:
    """Have as many descriptors as the system allows this process: clients may be many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of several events is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


@contextlib.asynccontextmanager
async def served(gateway: Gateway, *sockets: socket.socket) -> AsyncIterator["_Server"]:
    """Have a gateway answer what comes to its sockets, which stay open."""
    mcp = _Mcp(gateway)
    server = _Server(_ending(create_app(gateway, mcp=mcp), gateway))
    async with asyncio.TaskGroup() as tasks:
        duties = [tasks.create_task(gateway.run()), tasks.create_task(mcp.run())]
        serving = tasks.create_task(server.serve([listening.dup() for listening in sockets]))
        try:
            yield server
        finally:
            # It closes idle connections first, so that no client is refused over one.
            server.should_exit = True
            asyncio.get_running_loop().call_later(FINISH_S, gateway.calls.cut)
            await asyncio.wait((serving,))
            for duty in duties:
                duty.cancel()


class _Server(uvicorn.Server):
    """Uvicorn without signals, compression and what it says of itself."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="websockets-sansio",
                ws_max_size=MAX_BYTES,
                ws_per_message_deflate=False,  # a small frame could become a gigabyte
                ws_ping_interval=PING_S,
                ws_ping_timeout=PING_S,
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                timeout_keep_alive=IDLE_S,
                timeout_graceful_shutdown=1,
            )
        )

    async def accept_no_more(self) -> None:
        """Leave new connections to the gateway that follows, and wait for requests over the others.

        The listeners stay open: asyncio drops what it accepts in the moment of their end.
        """
        for listener in self.servers:
            for listening in listener.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(ARRIVE_LOOKS):
            await asyncio.sleep(ARRIVE_S)
            if not any(map(_is_silent, self.server_state.connections)):
                return

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none: the process has handlers of its own."""
        yield


def _is_silent(connection: object) -> bool:
    """Whether a connection has had no request yet; a WebSocket has had its own."""
    return getattr(connection, "cycle", connection) is None


def _ending(app: ASGIApp, gateway: Gateway) -> ASGIApp:
    """Close each connection behind its answer once the gateway is to restart.

    A client that goes on asking does so over a new one, where the next gateway answers.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start" and gateway.restart.is_set():
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await app(scope, receive, closing)

    return wrapped


class _Mcp:
    """The MCP door, whose import takes a second of processor time, for which nothing else waits.

    It is opened for the first request, which waits for it, or once the start has passed.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._door: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()
        self._is_asked = asyncio.Event()

    async def run(self) -> None:
        """Have the door open, until cancelled."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_asked.wait(), STARTED_S)
        module = await asyncio.to_thread(importlib.import_module, "remoteclaw.gateway.doors.mcp")
        door = module.McpDoor(self._gateway)
        async with door.running():
            self._door.set_result(door)
            await asyncio.Event().wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        self._is_asked.set()
        door = await asyncio.shield(self._door)
        await door(scope, receive, send)
