"""The server: HTTP and WebSocket in front of the workspaces, faults, and the door for tests."""

import asyncio
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from tests.support.slack import conversations, files, judge, messages
from tests.support.slack.door import Door
from tests.support.slack.judge import Refusal
from tests.support.slack.limits import SCOPES
from tests.support.slack.world import Content, Workspace, new_id

#: How often, and for how many seconds, a response URL can be used.
HOOK_USES, HOOK_S = 5, 1800
#: By name, each method that has a schema: `chat_post_message` is `chat.postMessage`.
_FUNCTIONS = {**vars(conversations), **vars(files), **vars(messages)}
METHODS: dict[str, Callable[..., Content | None]] = {
    method: _FUNCTIONS[re.sub(r"\.|(?<=[a-z])(?=[A-Z])|(?<=L)(?=E)", "_", method).lower()]
    for method in judge.METHODS
}
_APP_METHODS = frozenset(("apps.connections.open",))


@dataclass
class Fault:
    """What goes wrong at the next calls of a method."""

    kind: str
    """`drop` (no answer), `error`, `status` (no JSON), `limited` or `hold` (until released)."""
    times: int = 1
    is_done: bool = False
    """Whether the call is done before it goes wrong."""
    error: str = "internal_error"
    status: int = 500
    after_s: int = 1
    released: asyncio.Event = field(default_factory=asyncio.Event)


class SlackServer:
    """All workspaces. A token names its workspace, and so does an address outside of the API."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._worlds: dict[str, Workspace] = {}
        """By token and by team."""
        self._revoked: set[str] = set()
        self._faults: dict[tuple[str, str], Fault] = {}
        """By team and method."""

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/api/{method}", self._call)
        app.router.add_get("/link/{team}", self._connect)
        app.router.add_post("/upload/{team}/{ticket}", self._upload)
        app.router.add_get("/files-pri/{file}/{tail:.+}", self._download)
        app.router.add_post("/hooks/{team}/{hook}", self._hook)
        app.router.add_post("/test/{verb}", self._door)
        return app

    # The Web API.

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        sent = await _sent(request)
        header = request.headers.get("Authorization", "").removeprefix("Bearer ")
        token = str(sent.pop("token", None) or header)
        world = self._worlds.get(token)
        call: Content = {"method": method, "arguments": sent, "error": ""}
        fault = None
        if world:
            call["at"] = world.clock.now()
            world.calls.append(call)
            fault = self._fault(world, method)
        try:
            if fault and not fault.is_done:
                await _go_wrong(fault, request)
            answer = self._answer(world, method, token, sent)
            if fault and fault.is_done:
                await _go_wrong(fault, request)
        except Refusal as refused:
            call["error"] = refused.error
            answer = {"ok": False, "error": refused.error, **refused.more}
            after = {"Retry-After": str(answer.pop("after_s"))} if "after_s" in answer else {}
            return _json(world, method, answer, status=refused.status, headers=after)
        return _json(world, method, answer)

    def _answer(self, world: Workspace | None, method: str, token: str, sent: Content) -> Content:
        """Return the answer of a method; raises `Refusal`."""
        if method not in METHODS:
            raise Refusal("unknown_method", req_method=method)
        if world is None:
            raise Refusal("not_authed" if not token else "invalid_auth")
        if world.auth_error or token in self._revoked:
            raise Refusal(world.auth_error or "token_revoked")
        is_app = token.startswith("xapp-")
        if is_app != (method in _APP_METHODS):
            raise Refusal("not_allowed_token_type")
        if is_app and "connections:write" not in world.app_scopes:
            raise Refusal("missing_scope", needed="connections:write", provided="")
        world.need(*SCOPES.get(method, ()))
        channel = sent.get("channel")
        world.limits.count(method, channel if isinstance(channel, str) else None)
        answer = METHODS[method](world, **judge.arguments(method, sent))
        return {"ok": True, **(answer or {})}

    def _fault(self, world: Workspace, method: str) -> Fault | None:
        for name in (method, "*"):
            fault = self._faults.get((world.team, name))
            if fault and fault.times:
                fault.times -= 1
                return fault
        return None

    # Beside it.

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        world = self._worlds[request.match_info["team"]]
        ticket = request.query.get("ticket", "")
        if ticket not in world.sockets.tickets:
            return web.Response(status=408)
        world.sockets.tickets.remove(ticket)
        return await world.sockets.serve(request)

    async def _upload(self, request: web.Request) -> web.Response:
        """Take the content of a file."""
        world = self._worlds[request.match_info["team"]]
        fault = self._fault(world, "upload")
        try:
            if fault:
                await _go_wrong(fault, request)
        except Refusal as refused:
            return web.Response(status=refused.status)
        file, length = world.uploads[request.match_info["ticket"]]
        content = await request.read()
        if len(content) != length:
            return web.Response(status=400, text="the length is wrong")
        world.contents[file] = content
        world.files[file]["size"] = length
        return web.Response(text=f"OK - {length}")

    async def _download(self, request: web.Request) -> web.Response:
        """Give a file, or the page on which people sign in."""
        team, _, id = request.match_info["file"].partition("-")
        world = self._worlds[team]
        header = request.headers.get("Authorization", "").removeprefix("Bearer ")
        world.calls.append({"method": "download", "arguments": {"file": id}, "error": ""})
        is_ours = self._worlds.get(header) is world and header not in self._revoked
        if not is_ours or "files:read" not in world.scopes:
            page = "<!DOCTYPE html><title>Sign in</title>"
            return web.Response(text=page, content_type="text/html")
        if id in world.redirects:
            raise web.HTTPFound(world.redirects[id])
        content = world.contents.get(id)
        if content is None:
            raise web.HTTPNotFound
        return web.Response(body=content, content_type=world.files[id]["mimetype"])

    async def _hook(self, request: web.Request) -> web.Response:
        """Take an answer to what a person did with the app."""
        world = self._worlds[request.match_info["team"]]
        channel, user, made_at, uses = world.hooks[request.match_info["hook"]]
        sent = orjson.loads(await request.read())
        if len(uses) > HOOK_USES or world.clock.now() > made_at + HOOK_S:
            return web.json_response({"ok": False, "error": "used_url"}, status=404)
        uses.append("")
        there, message = world.channels[channel], world.channels[channel].messages.get(uses[0])
        content = {key: sent[key] for key in ("text", "blocks") if key in sent}
        judge.blocks(content.get("blocks", []))
        if sent.get("delete_original") and message:
            world.delete(there, message)
        elif sent.get("replace_original") and message:
            world.change(there, message, by=world.bot, **content)
        elif sent.get("response_type") == "in_channel":
            world.post(there, world.bot, **content)
        else:
            world.ephemerals.append({**content, "channel": channel, "user": user})
        return web.json_response({"ok": True})

    # The door.

    async def _door(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        asked = orjson.loads(await request.read())
        if verb == "new":
            world = Workspace(self._url)
            self._worlds[world.team] = world
            return web.json_response(self._tokens(world) | {"team": world.team, "bot": world.bot})
        world = self._worlds[asked["team"]]
        own: dict[str, Callable[..., Any]] = {
            "fault": self._break,
            "release": self._release,
            "rotate": self._rotate,
        }
        do = partial(own[verb], world) if verb in own else getattr(Door(world), verb)
        answer = do(*asked["asked"], **asked["named"])
        if inspect.isawaitable(answer):
            answer = await answer
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    def _break(self, world: Workspace, method: str, kind: str, **about: Any) -> None:
        """Have the next calls of a method go wrong, or those of `upload`, or all (`*`)."""
        self._faults[world.team, method] = Fault(kind, **about)

    def _release(self, world: Workspace) -> None:
        """Let go on what is held, and end all faults."""
        for (team, _), fault in self._faults.items():
            if team == world.team:
                fault.times = 0
                fault.released.set()

    def _rotate(self, world: Workspace) -> Content:
        """Revoke the tokens of an app; return new ones."""
        self._revoked |= {token for token, of in self._worlds.items() if of is world}
        return self._tokens(world)

    def _tokens(self, world: Workspace) -> Content:
        """Return new tokens of an app."""
        bot_token = f"xoxb-{new_id('1')}-{new_id('2')}-tests"
        app_token = f"xapp-1-{world.app}-{new_id('3')}-tests"
        self._worlds |= {bot_token: world, app_token: world}
        return {"bot_token": bot_token, "app_token": app_token}


async def _sent(request: web.Request) -> Content:
    """Return the arguments of a call, which may be in JSON, in a form, and in the address."""
    sent: Content = dict(request.query)
    if request.content_type == "application/json":
        sent |= orjson.loads(await request.read() or b"{}")
    else:
        sent |= dict(await request.post())
    return {name: value for name, value in sent.items() if value is not None}


async def _go_wrong(fault: Fault, request: web.Request) -> None:
    """Raise what goes wrong, or wait for the test."""
    if fault.kind == "hold":
        await fault.released.wait()
    elif fault.kind == "drop":
        assert request.transport is not None
        request.transport.abort()
        raise asyncio.CancelledError
    elif fault.kind == "error":
        raise Refusal(fault.error)
    elif fault.kind == "limited":
        raise Refusal("ratelimited", status=429, after_s=fault.after_s)
    elif fault.kind == "status":
        raise Refusal("", status=fault.status)
    else:
        raise AssertionError(f"there is no fault {fault.kind}")


def _json(
    world: Workspace | None,
    method: str,
    answer: Content,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """Return an answer, with the scopes in its headers."""
    headers = {**(headers or {}), "X-Slack-Req-Id": new_id("R")}
    if world:
        headers["Date"] = formatdate(world.clock.now(), usegmt=True)
        headers["X-OAuth-Scopes"] = ",".join(world.scopes)
        headers["X-Accepted-OAuth-Scopes"] = ",".join(SCOPES.get(method, ()))
    if status >= 500:
        return web.Response(status=status, text="upstream error", headers=headers)
    return web.json_response(answer, status=status, headers=headers)
