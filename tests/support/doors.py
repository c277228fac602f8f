"""A gateway that listens on real sockets, and clients that connect to it."""

import asyncio
import contextlib
import io
import itertools
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from websockets.asyncio.client import ClientConnection, connect

from remoteclaw.config.load import load_config
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.gateway.address import listen, listen_privately, url_of
from remoteclaw.gateway.auth.token_file import TokenFile
from remoteclaw.gateway.call import Handler
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.gateway.server import served
from remoteclaw.host.tokens import digest, new_agent_token
from remoteclaw.tools.base import Method
from remoteclaw.tools.catalog import METHODS, TOOLS
from tests.support.command import REMOTECLAW, Process, start_program
from tests.support.stack import Stack
from tests.support.waiting import HANG_S, eventually


@dataclass(frozen=True)
class Answer:
    """An HTTP response."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def code(self) -> str:
        """The code of the error; `ok` if there is none."""
        return "ok" if self.json["ok"] else str(self.json["error"]["code"])


class Refused(Exception):
    """Raised when a call over WebSocket is refused."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = str(error["code"])
        self.error = error


@dataclass
class RpcClient:
    """One client over WebSocket."""

    socket: ClientConnection
    hello: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    """The events that arrived while the client waited for something else."""
    _ids: Any = field(default_factory=itertools.count)

    async def frame(self) -> dict[str, Any]:
        """Return the next frame."""
        async with asyncio.timeout(HANG_S):
            found: dict[str, Any] = orjson.loads(await self.socket.recv())
            return found

    async def event(self, name: str) -> dict[str, Any]:
        """Return the payload of the next event called `name`; other events are kept."""
        for event in self.events:
            if event["event"] == name:
                self.events.remove(event)
                return dict(event["payload"])
        while (frame := await self.frame()).get("event") != name:
            self.events.append(frame)
        return dict(frame["payload"])

    async def begin(self, method: str, params: Any = None, **more: Any) -> str:
        """Send a request; return its id."""
        frame_id = f"r{next(self._ids)}"
        request = {"type": "req", "id": frame_id, "method": method, "params": params or {}, **more}
        await self.socket.send(orjson.dumps(request).decode())
        return frame_id

    async def answer(self, frame_id: str) -> dict[str, Any]:
        """Return the response to a request; events that arrive before it are kept."""
        while (frame := await self.frame()).get("id") != frame_id:
            self.events.append(frame)
        return frame

    async def call(self, method: str, params: Any = None, **more: Any) -> Any:
        """Call a method and return its result. Raises `Refused`."""
        answer = await self.answer(await self.begin(method, params, **more))
        if not answer["ok"]:
            raise Refused(answer["error"])
        return answer["payload"]

    async def closed(self) -> tuple[int, str]:
        """Wait until the gateway closes the connection; return code and reason."""
        async with asyncio.timeout(HANG_S):
            await self.socket.wait_closed()
        return self.socket.close_code or 0, self.socket.close_reason or ""


@dataclass
class Door:
    """A gateway's address, with ways to call it."""

    url: str
    http: aiohttp.ClientSession
    gateway: Gateway | None = None

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def ws_url(self) -> str:
        return f"ws{self.url.removeprefix('http')}/ws"

    async def get(self, path: str, token: str | None = None, **headers: str) -> Answer:
        """Send a GET."""
        return await self._ask("GET", path, token, None, headers)

    async def post(
        self, path: str, token: str | None, body: bytes | None, **headers: str
    ) -> Answer:
        """Send a POST."""
        return await self._ask("POST", path, token, body, headers)

    async def invoke(self, token: str | None, tool: str, args: Any = None, **more: Any) -> Answer:
        """Call a tool."""
        headers = more.pop("headers", {})
        body = orjson.dumps({"tool": tool, "args": args or {}, **more})
        return await self._ask("POST", "/tools/invoke", token, body, headers)

    async def _ask(
        self, method: str, path: str, token: str | None, body: bytes | None, headers: Any
    ) -> Answer:
        sent = {**({"Authorization": f"Bearer {token}"} if token else {}), **headers}
        url = f"{self.url}{path}"
        async with self.http.request(
            method, url, headers=sent, data=body and io.BytesIO(body)
        ) as answer:
            return Answer(answer.status, await answer.read(), answer.headers)

    @contextlib.asynccontextmanager
    async def socket(self, **more: Any) -> AsyncIterator[RpcClient]:
        """Open a WebSocket, without the handshake."""
        async with self.socket_at(self.ws_url, **more) as client:
            yield client

    @contextlib.asynccontextmanager
    async def socket_at(self, url: str, **more: Any) -> AsyncIterator[RpcClient]:
        """Open a WebSocket at `url`."""
        options = {"compression": None, "max_size": None, **more}
        async with connect(url, **options) as socket:
            yield RpcClient(socket)

    @contextlib.asynccontextmanager
    async def connected(self, token: str, **params: Any) -> AsyncIterator[RpcClient]:
        """Open a WebSocket and do the handshake with `token`. Raises `Refused`."""
        async with self.socket() as client:
            challenge = await client.frame()
            assert challenge["event"] == "connect.challenge"
            client.hello = await client.call("connect", hello(token, **params))
            yield client


def own_token(stack: Stack) -> str:
    """Return the gateway's own token; create it if it does not exist."""
    TokenFile(stack.home.path).create()
    return TokenFile(stack.home.path).read()


@dataclass(frozen=True)
class Calling:
    """An agent with a running turn, without a CLI."""

    token: str
    lease: Lease
    accepted: Accepted

    async def finish(self) -> None:
        """End the turn."""
        await self.lease.turns.finish("done", reply=[{"text": "done", "is_error": False}])


@contextlib.asynccontextmanager
async def calling(
    stack: Stack, *, tools: Collection[str] = tuple(TOOLS), **fields: Any
) -> AsyncIterator[Calling]:
    """Run a turn whose agent has a token and may call `tools`."""
    accepted = await stack.append("hello", **fields)
    lease = await stack.fleet.leases.acquire(accepted.session.sid, worker="test", host="here")
    assert lease is not None
    token = new_agent_token(lease.sid)
    await lease.turns.begin([accepted.entry_id], phase="spawned", detail="test")
    await lease.grant(digest(token), tools)
    yield Calling(token, lease, accepted)


def hello(token: str, **params: Any) -> dict[str, Any]:
    """Return the parameters of the method `connect`."""
    who = {"id": "test", "version": "1", "platform": "linux", "mode": "cli"}
    return {
        **{"minProtocol": 3, "maxProtocol": 3, "client": who, "auth": {"token": token}},
        **params,
    }


@contextlib.asynccontextmanager
async def opened(
    stack: Stack,
    handlers: Mapping[str, Handler] = HANDLERS,
    *,
    methods: Mapping[str, Method] | None = None,
    is_private: bool = False,
    fleet: Fleet | None = None,
) -> AsyncIterator[Door]:
    """Run a gateway in this process, with the methods of `handlers`.

    If it `is_private`, commands find it too. `fleet` replaces the fleet of the stack.
    """
    config = load_config(stack.home.config_file)
    offered = methods or {name: one for name, one in METHODS.items() if name in handlers}
    now = CurrentConfig(stack.home, config)
    gateway = Gateway(fleet or stack.fleet, stack.home, now, handlers, methods=offered)
    for file in gateway.authenticator.files:
        file.create()
    async with aiohttp.ClientSession() as http:
        with contextlib.ExitStack() as sockets:
            listening = sockets.enter_context(listen(config.gateway))
            private = [sockets.enter_context(listen_privately(stack.home))] if is_private else []
            async with served(gateway, listening, *private):
                yield Door(url_of(listening), http, gateway)


@contextlib.asynccontextmanager
async def gateway_process(
    stack: Stack, *arguments: str, **env: str
) -> AsyncIterator[tuple[Door, Process]]:
    """Run `remoteclaw gateway`, and kill it at exit if it is still running."""
    log = stack.home.logs / "gateway.log"
    before = log.stat().st_size if log.exists() else 0
    process = start_program([REMOTECLAW, "gateway", *arguments], env=stack.env(**env), log=log)

    def said() -> str | None:
        text = log.read_text()[before:]
        assert process.poll() is None, f"the gateway ended: {text}"
        return text.partition("The gateway is at ")[2].partition(",")[0] or None

    try:
        url = str(await eventually(said))
        async with aiohttp.ClientSession() as http:
            yield Door(url, http), process
    finally:
        process.kill()
        process.wait()


async def raw(door: Door, data: bytes) -> bytes:
    """Send raw bytes; return what the gateway sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    with contextlib.closing(writer):
        writer.write(data)
        async with asyncio.timeout(HANG_S):
            return await reader.read()
