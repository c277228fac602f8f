"""The gateway process: listens, announces its address, and ends on request."""

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
from remoteclaw.gateway.auth.jwt import check_keys
from remoteclaw.gateway.auth.token_file import token_files
from remoteclaw.gateway.doors.http import create_app
from remoteclaw.gateway.gateway import FINISH_S, Gateway
from remoteclaw.gateway.limits import MAX_REQUEST_BYTES
from remoteclaw.gateway.methods import HANDLERS

#: The maximum size of a request's head, in bytes.
MAX_HEAD_BYTES = 16 * 1024
#: How long an idle connection is kept for the next request, in seconds: agents call in bursts.
IDLE_S = 60
#: How often a client is pinged, and how long it may take to answer, in seconds.
PING_S = 20.0
#: How long the import of the MCP door is delayed after the start, in seconds, so that it does not
#: slow down other processes that start: less than a person needs to type a first message.
MCP_DELAY_S = 2.0
#: Before a restart, the gateway waits for the first requests over connections that were already
#: accepted: the interval of the check in seconds, and the maximum number of checks.
ARRIVE_S, ARRIVE_CHECKS = 0.2, 10
#: How long running calls may take to finish before a restart, in seconds. New connections wait.
RESTART_S = 5.0
#: The limit on descriptors: more cost memory and are never used.
MAX_DESCRIPTORS = 65536

log = logging.getLogger(__name__)


async def serve(
    home: Home,
    config: Config,
    *,
    stop: asyncio.Event,
    sockets: Sequence[socket.socket] = (),
    is_alone: bool = True,
    on_listening: Callable[[str], None] = log.info,
) -> Sequence[socket.socket] | None:
    """Run a gateway until `stop` is set or a restart is requested.

    `sockets` are the listening TCP socket and the private socket; without them, both are opened.
    `on_listening` is called once, with the gateway's URL.

    After a request for a restart, the sockets are returned, still open, for the next gateway; new
    connections wait in their backlog. Otherwise None is returned and the sockets are closed. The
    private socket is also removed if the gateway `is_alone`; if not, it belongs to `up`.

    Raises `RemoteClawError` if the gateway can't start: a port is in use, a token or secret can't
    be used, or Redis can't be reached.
    """
    _raise_descriptor_limit()
    for file in token_files(home.path):
        file.create()
    check_keys(config.gateway)
    sockets = sockets or (listen(config.gateway), listen_privately(home))
    private = path_of(sockets[1])
    restarts = False
    try:
        restarts = await _serve(home, config, sockets, stop=stop, on_listening=on_listening)
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
    on_listening: Callable[[str], None],
) -> bool:
    """Answer requests on sockets, which stay open; return whether a restart was requested."""
    url = home.redis_url(config)
    fleet = Fleet.open(url, memory_limit=config.redis.memory_limit)
    try:
        await check_fitness(fleet.scripts.client, url)
        current = CurrentConfig(home, config)
        gateway = Gateway(fleet, home, current, HANDLERS)
        address = url_of(sockets[0])

        def restarts() -> bool:
            return gateway.restart.is_set() and not stop.is_set()

        announced = fleet.gateways.announced(home.host_id, address, is_restarting=restarts)
        gateway.terminals.address = address
        name = config.fleet.name_of_host
        listed = fleet.processes.announced("gateway", home.host_id, name)
        async with served(gateway, *sockets) as server, announced, listed:
            on_listening(address)
            await _wait_for_any(stop, gateway.restart)
            if restarts():
                await server.stop_accepting()
                await gateway.end("restarting", within_s=RESTART_S)
            else:
                await gateway.end("stopped", within_s=FINISH_S)
        return restarts()
    finally:
        await fleet.aclose()


def _raise_descriptor_limit() -> None:
    """Raise the limit on descriptors as far as the system allows: each client needs one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _wait_for_any(*events: asyncio.Event) -> None:
    """Wait until one of several events is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


@contextlib.asynccontextmanager
async def served(gateway: Gateway, *sockets: socket.socket) -> AsyncIterator["_Server"]:
    """Run a gateway that answers requests on sockets, which stay open, while the block runs."""
    mcp = _LazyMcpDoor(gateway)
    server = _Server(_closing_after_restart(create_app(gateway, mcp=mcp), gateway))
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(gateway.run()), tasks.create_task(mcp.run())]
        serve_task = tasks.create_task(server.serve([listening.dup() for listening in sockets]))
        try:
            yield server
        finally:
            # It closes idle connections first, so that no client is refused over one.
            server.should_exit = True
            asyncio.get_running_loop().call_later(FINISH_S, gateway.calls.cut)
            await asyncio.wait((serve_task,))
            for task in background:
                task.cancel()


class _Server(uvicorn.Server):
    """Uvicorn without signal handlers, compression and a Server header."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="websockets-sansio",
                ws_max_size=MAX_REQUEST_BYTES,
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

    async def stop_accepting(self) -> None:
        """Stop accepting connections, and wait for the first requests over accepted ones.

        The listeners stay open, because asyncio drops connections that it accepts while they close.
        New connections wait in the backlog for the next gateway.
        """
        for listener in self.servers:
            for listening in listener.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(ARRIVE_CHECKS):
            await asyncio.sleep(ARRIVE_S)
            if not any(map(_has_had_no_request, self.server_state.connections)):
                return

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals: the process has its own handlers."""
        yield


def _has_had_no_request(connection: object) -> bool:
    """Whether a connection has had no request yet; a WebSocket began with one."""
    return getattr(connection, "cycle", connection) is None


def _closing_after_restart(app: ASGIApp, gateway: Gateway) -> ASGIApp:
    """Wrap an application so that responses close their connection before a restart.

    The client's next request then arrives over a new connection, which the next gateway answers.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_closing(message: Message) -> None:
            if message["type"] == "http.response.start" and gateway.restart.is_set():
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await app(scope, receive, send_closing)

    return wrapped


class _LazyMcpDoor:
    """The MCP door, opened late because its import takes a second of processor time.

    It is opened for the first request, which waits for it, or after `MCP_DELAY_S`.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._door: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()
        self._is_needed = asyncio.Event()

    async def run(self) -> None:
        """Open the door and keep it open, until cancelled."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_needed.wait(), MCP_DELAY_S)
        module = await asyncio.to_thread(importlib.import_module, "remoteclaw.gateway.doors.mcp")
        door = module.McpDoor(self._gateway)
        async with door.running():
            self._door.set_result(door)
            await asyncio.Event().wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, once the door is open."""
        self._is_needed.set()
        door = await asyncio.shield(self._door)
        await door(scope, receive, send)
