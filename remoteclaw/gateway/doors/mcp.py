"""The gateway over MCP: its tools over streamable HTTP, for agents and for people's own CLIs.

The door is stateless. `Guard` and `Bearer` check each request before it and put the principal into
its scope. The protocol's own session ids are not used.
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
from remoteclaw.gateway.auth.principals import Operator, Principal
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.limits import MAX_REQUEST_BYTES
from remoteclaw.tools.base import Params
from remoteclaw.tools.catalog import TOOLS

#: In a call's `_meta`: the call's id. Calls with the same id have one effect.
CALL_ID = "remoteclaw/callId"
#: In an answer's `_meta`: the call's side effects, for the connector's file.
SIDE_EFFECTS = "remoteclaw/sideEffects"
#: In a call's `_meta`: the session that an operator's client works for, if any.
SESSION_KEY = "remoteclaw/sessionKey"
#: Claude Code's own id of a call, which stays the same when Claude Code repeats the request.
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
            max_request_body_size=MAX_REQUEST_BYTES,
            # The guard has checked Host and Origin.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests while the block runs."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose scope has a principal."""
        assert "principal" in scope["state"], "Bearer authenticates every request"
        if scope["method"] != "POST":
            # The server sends only answers, so it offers no stream of other messages (GET).
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
            # An error of the tool reaches the model; an error of the protocol might not.
            message = types.TextContent(type="text", text=str(refusal))
            return types.CallToolResult(content=[message], is_error=True)
        content = result.to_json()
        text = json.dumps(content, indent=2, ensure_ascii=False)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=content,
            _meta={SIDE_EFFECTS: effects} if effects else None,
        )


def _principal(context: _Context) -> Principal:
    assert context.request is not None, "all requests arrive over HTTP"
    principal: Principal = context.request.scope["state"]["principal"]
    return principal


def _session_key(
    principal: Principal, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any]
) -> str | None:
    """Return the session that an operator's call is about; None if it names none.

    It is the argument `sessionKey`, which is removed from `arguments`, or else the client's session
    in `meta`. None for agents, whose token decides the session.
    """
    if not isinstance(principal, Operator):
        return None
    session_key = meta.get(SESSION_KEY)
    if tool and TOOLS[tool].is_about_session:
        session_key = arguments.pop("sessionKey", session_key)
    if session_key is None or isinstance(session_key, str):
        return session_key
    raise CallRefused("INVALID_REQUEST", f"{tool}: sessionKey must be a valid string.")


@functools.cache
def listing(name: str, *, has_session: bool) -> types.Tool:
    """Return a tool's description for clients.

    Without a session (`has_session`), tools that are about one have a parameter that names it.
    """
    method = TOOLS[name]
    is_reading = method.effect == "none"
    schema = params_schema(method.listed_params)
    if method.is_about_session and not has_session:
        parameter = {"sessionKey": {"type": "string", "description": "Which session's."}}
        schema["properties"] = {**schema["properties"], **parameter}
    return types.Tool(
        name=name,
        title=method.title,
        description=method.description,
        input_schema=schema,
        # Models are not shown output schemas, which were half of the list. The reference has them.
        output_schema={"type": "object"},
        annotations=types.ToolAnnotations(
            # The defaults are false, true and true. A tool that only reads needs only the first.
            read_only_hint=is_reading or None,
            destructive_hint=None if is_reading else method.destroys,
            open_world_hint=False if method.effect in ("session", "job", "system") else None,
        ),
    )


#: Schemas omit numeric bounds above this number, because no model tries numbers as large.
MAX_SHOWN_BOUND = 1_000_000
#: JSON Schema keywords that programs need and models don't.
_OMITTED_KEYWORDS = frozenset(
    ("title", "$defs", "minLength", "maxLength", "pattern", "additionalProperties")
)


def params_schema(params: type[Params]) -> dict[str, Any]:
    """Return the schema of a tool's parameters."""
    root = params.model_json_schema()
    schema = _inlined(root, root.get("$defs", {}))
    schema.pop("description", None)
    return {**schema, "type": "object", "properties": schema.get("properties", {})}


def _inlined(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its references resolved and without keywords that models don't need."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        return _inlined({**target, **_without(schema, "$ref")}, definitions)
    if "anyOf" in schema:
        kinds = [kind for kind in schema["anyOf"] if kind != {"type": "null"}]
        assert len(kinds) == 1, "a parameter has one type"
        # Keywords of the parameter override those of its type.
        return _inlined({**kinds[0], **_without(schema, "anyOf", "default")}, definitions)
    simplified = _without(schema, *_OMITTED_KEYWORDS)
    if "description" in simplified:
        simplified["description"] = " ".join(simplified["description"].split())
    for bound in ("minimum", "maximum", "exclusiveMaximum"):
        if simplified.get(bound, 0) > MAX_SHOWN_BOUND:
            del simplified[bound]
    if "properties" in simplified:
        simplified["properties"] = {
            name: _inlined(part, definitions) for name, part in simplified["properties"].items()
        }
    if "items" in simplified:
        # The list's own description explains its items.
        simplified["items"] = _without(_inlined(simplified["items"], definitions), "description")
    return simplified


def _without(schema: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in names}
