"""A client like a user's own cockpit: its HTTP requests, and the event streams that it reads."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.methods import HANDLERS
from remoteclaw.messages import SessionKey
from remoteclaw.tools import terminals as contract
from tests.support.doors import Answer, Door
from tests.support.stack import Stack
from tests.support.waiting import HANG_S


@dataclass(frozen=True)
class Told:
    """One event of a stream."""

    name: str
    data: Any
    id: str


@dataclass
class SseStream:
    """An open event stream."""

    response: aiohttp.ClientResponse
    comments: int = 0
    retry: int | None = None
    last_id: str = ""

    async def next(self) -> Told:
        """Return the next event. Raises `EOFError` at the end of the stream."""
        name, data = "message", ""
        async with asyncio.timeout(HANG_S):
            while True:
                line = (await self.response.content.readline()).decode()
                if not line:
                    raise EOFError
                key, _, value = line.rstrip("\n").partition(": ")
                match key:
                    case "id":
                        self.last_id = value
                    case "event":
                        name = value
                    case "data":
                        data = value
                    case "retry":
                        self.retry = int(value)
                    case ":":
                        self.comments += 1
                    case "" if data:
                        return Told(name, orjson.loads(data), self.last_id)

    async def ended(self) -> list[Told]:
        """Read the stream to its end, and return its events."""
        found = []
        with contextlib.suppress(EOFError, aiohttp.ClientError):
            while True:
                found.append(await self.next())
        return found


@dataclass
class Cockpit:
    """An HTTP client with a token."""

    door: Door
    token: str | None
    headers: dict[str, str] = field(default_factory=dict)

    async def ask(self, verb: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request below `/api`."""
        authorization = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        sent = {**authorization, **self.headers, **headers}
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        url = f"{self.door.url}/api{path}"
        async with self.door.http.request(verb, url, headers=sent, data=data) as answer:
            return Answer(answer.status, await answer.read(), answer.headers)

    @contextlib.asynccontextmanager
    async def stream(self, path: str, **headers: str) -> AsyncIterator[SseStream]:
        """Read a stream below `/api`."""
        sent = {"Authorization": f"Bearer {self.token}", **self.headers, **headers}
        timeout = aiohttp.ClientTimeout(total=None)
        url = f"{self.door.url}/api{path}"
        async with self.door.http.get(url, headers=sent, timeout=timeout) as response:
            assert response.status == 200, await response.text()
            yield SseStream(response)


async def tell(stack: Stack, session: SessionKey, **event: Any) -> str:
    """Publish an event of a session, as a terminal's gateway does; return the event's id."""
    client = stack.fleet.scripts.client
    log = keys.terminal_events(session.sid)
    made = await client.xadd(log, {"event": orjson.dumps({"type": "message", **event})})
    await client.publish(keys.TERMINAL_UPDATES, session.sid)
    return made.decode() if isinstance(made, bytes) else made


class Terminals:
    """Handlers that answer with their parameters, whether or not a terminal exists."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any], str]] = []
        self.refuses: CallRefused | None = None
        self.state, self.created, self.waits = "starting", True, False

    @property
    def handlers(self) -> dict[str, Handler]:
        """All handlers; those of terminals are replaced."""
        mine = {method.name: self._answer for method in contract.METHODS}
        return {**HANDLERS, **mine}

    async def _answer(self, call: Call, params: Any) -> Any:
        given = params.model_dump(exclude_unset=True)
        self.asked.append((call.method.name, given, call.id))
        if self.refuses:
            raise self.refuses
        sid = str(given.get("sid") or given.get("session") or "0" * 32)
        match call.method.name:
            case "terminals.open":
                opened_ = self.terminal(sid)
                return contract.OpenedTerminal(
                    terminal=opened_, created=self.created, waits=self.waits
                )
            case "terminals.list":
                return contract.TerminalList(terminals=())
            case "terminals.screen":
                return contract.TerminalScreen(sid=sid, frame={}, text="")
            case "terminals.type":
                return contract.Typed.of(self.terminal(sid), cleared=None)
        return self.terminal(sid)

    def terminal(self, sid: str) -> contract.Terminal:
        return contract.Terminal.model_validate(
            {
                **{"sid": sid, "session_key": "k", "agent": "main", "name": "", "host": "h"},
                **{"state": self.state, "reason": "", "activity": "idle", "waiting_for": ""},
                **{"title": "", "opened_by": "ada", "writer": "", "viewers": 0, "cols": 80},
                **{"rows": 24, "conversation": None, "resumable": True, "since_ms": 1},
                **{"opened_ms": 1, "exit": None},
            }
        )
