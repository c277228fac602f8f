"""The server: one scripted model behind the APIs that the CLIs speak."""

import asyncio
import json
from collections import deque
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path

from aiohttp import web

from tests.support.model_server.anthropic import Anthropic
from tests.support.model_server.charge import Charge
from tests.support.model_server.chat import Chat
from tests.support.model_server.conversation import Dialect, Event, Plan
from tests.support.model_server.gemini import Gemini
from tests.support.model_server.limit import Limit
from tests.support.model_server.responses import Responses
from tests.support.model_server.script import Script, aside, is_summary

_DIALECTS: tuple[Dialect, ...] = (Anthropic(), Responses(), Chat(), Gemini())
#: How many requests are kept as they came.
KEPT_BODIES = 20
#: Lets the client read what was sent before the connection is reset under it.
_CUT_AFTER_S = 0.05


class ModelServer:
    """The scripted model."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("a", buffering=1)
        self._script = Script()
        self._limit = Limit()
        self._bodies: deque[bytes] = deque(maxlen=KEPT_BODIES)
        self._charges_vary = False
        """Whether each request costs something else."""
        self._number = 0
        """The number of the last such request."""
        self._charged = Charge()
        """What the requests were told that they cost, in whole or as a stream began."""
        self._answered = Charge()
        """The part of it whose answers were sent to their end."""

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=64 * 2**20)
        for dialect in _DIALECTS:
            for path in dialect.paths:
                app.router.add_post(path, partial(self._model, dialect))
        app.router.add_get("/bodies", self.bodies)
        app.router.add_post("/limit", self.limit)
        app.router.add_post("/charges", self.charges)
        app.router.add_get("/charged", self.charged)
        app.router.add_route("*", "/{rest:.*}", self.anything)
        app.on_cleanup.append(self._close)
        return app

    async def anything(self, request: web.Request) -> web.Response:
        """Answer what CLIs ask besides: counts, health."""
        return web.json_response({"input_tokens": 1, "totalTokens": 1})

    async def bodies(self, request: web.Request) -> web.Response:
        """Return the last requests as they came."""
        return web.Response(body=b"\n".join(self._bodies))

    async def limit(self, request: web.Request) -> web.Response:
        """Replace the limit."""
        self._limit = Limit(**await request.json())
        return web.Response()

    async def charges(self, request: web.Request) -> web.Response:
        """Have each request cost something else, or all the same."""
        self._charges_vary = await request.json()
        return web.Response()

    async def charged(self, request: web.Request) -> web.Response:
        """Return what the requests were told that they cost, and the part that was answered."""
        return web.json_response([astuple(self._charged), astuple(self._answered)])

    async def _close(self, app: web.Application) -> None:
        self._log.close()

    async def _model(self, dialect: Dialect, request: web.Request) -> web.StreamResponse:
        """Answer one request for a message."""
        raw = await request.read()
        self._bodies.append(raw)
        conversation = dialect.read(json.loads(raw), request.path)
        own = aside(conversation)
        refusal = self._limit.refuse(
            conversation, len(raw), api=dialect.name, is_summary=is_summary(conversation)
        )
        plan = refusal or own or self._script.plan(dialect.name, conversation)
        if self._charges_vary and plan.charge == Charge.fixed():
            self._number += 1
            charge = Charge.varied(self._number)
            is_written = dialect.name == Anthropic.name  # the others don't tell
            plan.charge = charge if is_written else replace(charge, written=0)
        record = {
            "last": conversation.last[:200],
            "end": conversation.last[-200:],
            "users": len(conversation.users),
            "tools": [tool.full_name for tool in conversation.tools],
            "api": dialect.name,
            "model": conversation.model,
            "is_aside": own is not None,
            "is_summary": is_summary(conversation),
            "size": len(raw),
            "status": plan.status,
        }
        self._log.write(json.dumps(record) + "\n")
        await asyncio.sleep(plan.sleep_s + self._limit.summary_s * is_summary(conversation))
        is_broken = plan.fails_in_stream and conversation.streams
        if plan.status != 200 and not is_broken:
            status, error = dialect.error(plan)
            return web.json_response(error, status=status, headers=dialect.headers(plan))
        if conversation.streams:
            return await self._stream(dialect, request, plan, conversation.model)
        if plan.cut:
            raise _cut(request)
        self._charged += plan.charge
        self._answered += plan.charge
        return web.json_response(dialect.whole(plan, conversation.model))

    async def _stream(
        self, dialect: Dialect, request: web.Request, plan: Plan, model: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        pieces_left, is_charged = len(plan.pieces), False
        events = [*(dialect.broken(plan) if plan.status != 200 else dialect.stream(plan, model))]
        for event in events[:-1] if plan.cut == "end" else events:
            await response.write(event.encoded())
            if not is_charged and _has_usage(event):
                is_charged = True
                self._charged += plan.charge
            if event.is_text:
                await asyncio.sleep(plan.drip_s)
                pieces_left -= 1
            if plan.cut in ("half", "words") and not pieces_left:
                break
        if plan.cut:
            await asyncio.sleep(_CUT_AFTER_S)
            raise _cut(request)
        self._answered += plan.charge if is_charged else Charge()
        await response.write_eof()
        return response


def _has_usage(event: Event) -> bool:
    """Whether an event tells what the request costs."""
    data = event.data if isinstance(event.data, dict) else {}
    parts = (data, data.get("message", {}), data.get("response", {}))
    return any(part.get("usage") or part.get("usageMetadata") for part in parts)


def _cut(request: web.Request) -> ConnectionResetError:
    """Drop a connection, and return what to raise so that nothing more is sent on it."""
    assert request.transport is not None, "it was connected"
    request.transport.abort()
    return ConnectionResetError()
