"""The gateway over MCP: the tools over streamable HTTP, for agents and for people's own CLIs.

It is stateless: the guard and `Bearer` are in front, each request has its principal in its scope,
and the protocol's own session ids are bound to nothing.
"""

import contextlib
import functools
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from remoteclaw import __version__
from remoteclaw.errors import CallRefused
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.limits import MAX_BYTES
from remoteclaw.gateway.principals import Operator, Principal
from remoteclaw.tools.base import Params
from remoteclaw.tools.catalog import TOOLS

#: In a call's `_meta`: its name, so that a repeated one is not done again.
CALL_ID = "remoteclaw/callId"
#: In an answer's `_meta`: what the call did besides answering, for the connector's file.
SIDE_EFFECTS = "remoteclaw/sideEffects"
#: In a call's `_meta`: the session that a client of an operator's is about, if it is about one.
SESSION_KEY = "remoteclaw/sessionKey"
#: Claude's own name for a call: it stays the same when a request is sent again.
_CLAUDE_CALL_ID = "claudecode/toolUseId"

_INSTRUCTIONS = (
    "RemoteClaw's own tools: chats, sessions and jobs beyond this conversation. "
    "What you answer is delivered by itself and needs no tool."
)

_Context = ServerRequestContext[Any, Any]


class McpDoor:
    """An ASGI application that answers MCP requests."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        server: Server[Any] = Server(
            "remoteclaw",
            version=__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        self._manager = StreamableHTTPSessionManager(
            server,
            json_response=True,
            stateless=True,
            max_request_body_size=MAX_BYTES,
            # The guard has checked Host and Origin.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests meanwhile."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose scope has a principal."""
        assert "principal" in scope["state"], "Bearer is in front"
        if scope["method"] != "POST":
            # There is nothing to say but answers: no stream is kept open for it.
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        await self._manager.handle_request(scope, receive, send)

    async def _list(
        self, context: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        try:
            methods = await self._gateway.dispatcher.tools(_principal(context))
        except CallRefused as refusal:
            raise MCPError(types.INTERNAL_ERROR, str(refusal)) from None
        has_own = not isinstance(_principal(context), Operator)
        return types.ListToolsResult(
            tools=[listing(method.tool, has_session=has_own) for method in methods]
        )

    async def _call(
        self, context: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        meta: dict[str, Any] = dict(context.meta or {})
        call_id = meta.get(CALL_ID) or meta.get(_CLAUDE_CALL_ID)
        known = params.name if params.name in TOOLS else ""
        arguments = dict(params.arguments or {})
        try:
            result, effects = await self._gateway.call(
                _principal(context),
                known or f"tool {params.name}",
                arguments,
                call_id=call_id if isinstance(call_id, str) else None,
                session_key=_session_key(_principal(context), known, arguments, meta),
            )
        except CallRefused as refusal:
            # As a tool's error and not the protocol's, so that the model reads it.
            told = types.TextContent(type="text", text=str(refusal))
            return types.CallToolResult(content=[told], is_error=True)
        content = result.told()
        text = json.dumps(content, indent=2, ensure_ascii=False)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=content,
            _meta={SIDE_EFFECTS: effects} if effects else None,
        )


def _principal(context: _Context) -> Principal:
    assert context.request is not None, "it came over HTTP"
    principal: Principal = context.request.scope["state"]["principal"]
    return principal


def _session_key(
    principal: Principal, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any]
) -> str | None:
    """Take out of a call's arguments which session it is about; else it is the client's own.

    That of an agent, its token says.
    """
    if not isinstance(principal, Operator):
        return None
    named = meta.get(SESSION_KEY)
    if tool and TOOLS[tool].is_about_session:
        named = arguments.pop("sessionKey", named)
    if named is None or isinstance(named, str):
        return named
    raise CallRefused("INVALID_REQUEST", f"{tool}: sessionKey must be a valid string.")


@functools.cache
def listing(name: str, *, has_session: bool) -> types.Tool:
    """Return a tool as clients are told of it: those that have no session may name one."""
    method = TOOLS[name]
    is_reading = method.effect == "none"
    schema = params_schema(method.params)
    if method.is_about_session and not has_session:
        named = {"sessionKey": {"type": "string", "description": "Which session's."}}
        schema["properties"] = {**schema["properties"], **named}
    return types.Tool(
        name=name,
        title=method.title,
        description=method.description,
        input_schema=schema,
        # A model is not shown it, and half of the list's text was that: the reference has it.
        output_schema={"type": "object"},
        annotations=types.ToolAnnotations(
            # What isn't said counts as false, true and true; what only reads needs the first alone.
            read_only_hint=is_reading or None,
            destructive_hint=None if is_reading else method.destroys,
            open_world_hint=False if method.effect in ("session", "job", "system") else None,
        ),
    )


#: The largest bound that a schema mentions: no model tries numbers as large.
NOT_REACHED = 1_000_000
#: Keywords for programs, which a model does not need.
_LEFT_OUT = frozenset(
    ("title", "$defs", "minLength", "maxLength", "pattern", "additionalProperties")
)


def params_schema(params: type[Params]) -> dict[str, Any]:
    """Return the schema of a tool's parameters."""
    root = params.model_json_schema()
    schema = _inlined(root, root.get("$defs", {}))
    schema.pop("description", None)
    return {**schema, "type": "object", "properties": schema.get("properties", {})}


def _inlined(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with what it refers to in its place, and what a model needs of it."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        return _inlined({**target, **_without(schema, "$ref")}, definitions)
    if "anyOf" in schema:
        kinds = [kind for kind in schema["anyOf"] if kind != {"type": "null"}]
        assert len(kinds) == 1, "a parameter has one type"
        # What is said of the parameter counts before what is said of the type.
        return _inlined({**kinds[0], **_without(schema, "anyOf", "default")}, definitions)
    told = _without(schema, *_LEFT_OUT)
    if "description" in told:
        told["description"] = " ".join(told["description"].split())
    for bound in ("minimum", "maximum", "exclusiveMaximum"):
        if told.get(bound, 0) > NOT_REACHED:
            del told[bound]
    if "properties" in told:
        told["properties"] = {
            name: _inlined(part, definitions) for name, part in told["properties"].items()
        }
    if "items" in told:
        # What they are, the list's own description says.
        told["items"] = _without(_inlined(told["items"], definitions), "description")
    return told


def _without(schema: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in names}
