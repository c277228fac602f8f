"""The handshake of ACP: a session, its MCP servers, and its model."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoteclaw.errors import AgentUnavailable, ErrorCategory
from remoteclaw.messages import OWN_SERVER, McpServerConfig
from remoteclaw.protocols import AgentPipes, AgentSpec
from remoteclaw.runtimes.acp_dialect import AcpDialect
from remoteclaw.runtimes.acp_turn import failure
from remoteclaw.runtimes.agent import next_of_start
from remoteclaw.runtimes.base import server_environment
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer
from remoteclaw.runtimes.wire import mapping, mappings, text

__all__ = ["AcpStart", "Begun"]

#: The version of the protocol.
PROTOCOL = 1
#: The error of an agent without a sign-in.
AUTH_REQUIRED = -32000
#: The updates with which an agent repeats a session that it loads.
_REPLAYED = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Begun:
    """The result of a handshake."""

    session: str
    """The agent's id of the session."""
    takes_images: bool
    """Whether it can be shown pictures."""
    notice: str = ""
    """A notice for the person, in the first turn."""


class AcpStart:
    """One handshake."""

    def __init__(
        self, pipes: AgentPipes, peer: RpcPeer, dialect: AcpDialect, spec: AgentSpec
    ) -> None:
        self._pipes = pipes
        self._peer = peer
        self._dialect = dialect
        self._spec = spec
        self._can: Mapping[str, Any] = {}
        """The agent's capabilities."""
        self._was_replayed = False
        """Whether the agent repeated earlier messages while it loaded the session."""

    async def begin(self, session_id: str | None, run_dir: Path, *, fork: bool) -> Begun:
        """Begin a session, or go on with one or a copy of it; MCP servers connect meanwhile."""
        params = {
            "protocolVersion": PROTOCOL,
            "clientCapabilities": {
                "fs": {"readTextFile": False, "writeTextFile": False},
                "terminal": False,
            },
            "clientInfo": {"name": "remoteclaw", "version": "1"},
        }
        about = await self._call("initialize", params)
        self._can = mapping(about.get("agentCapabilities"))
        takes_images = mapping(self._can.get("promptCapabilities")).get("image") is True
        where = {"cwd": self._spec.workspace, "mcpServers": self._servers(run_dir)}
        if not session_id:
            begun = await self._call("session/new", where)
        elif fork:
            begun = await self._fork({**where, "sessionId": session_id})
        else:
            begun = await self._go_on({**where, "sessionId": session_id})
        session = text(begun.get("sessionId")) if fork or not session_id else session_id
        notice = await self._choose_model(session, begun) if self._spec.model else ""
        return Begun(session, takes_images, notice)

    def _servers(self, run_dir: Path) -> list[dict[str, Any]]:
        """Return the MCP servers as ACP wants them described."""
        takes_http = mapping(self._can.get("mcpCapabilities")).get("http") is True
        described = []
        for name, server in self._spec.mcp_servers.items():
            if server.url is None or takes_http:
                known_as = self._dialect.server_name(name, self._spec)
                described.append(_server(known_as, server, run_dir))
            else:
                hint = ', unless mcp_transport = "stdio"' if name == OWN_SERVER else ""
                why = "%s takes no MCP server over HTTP: %s is left out%s"
                log.warning(why, self._dialect.name, name, hint)
        return described

    async def _fork(self, params: dict[str, Any]) -> Mapping[str, Any]:
        """Begin with a copy of a session; return what the agent says of it."""
        if "fork" not in mapping(self._can.get("sessionCapabilities")):
            raise self._lost("can't begin with a copy of a session")
        return await self._call("session/fork", params)

    async def _go_on(self, params: dict[str, Any]) -> Mapping[str, Any]:
        """Go on with a session; return what the agent says of it."""
        if "resume" in mapping(self._can.get("sessionCapabilities")):
            return await self._call("session/resume", params)
        if not (self._can.get("loadSession") and self._dialect.may_load):
            raise self._lost("can't go on with a session of an earlier process")
        loaded = await self._call("session/load", params)
        if not self._was_replayed:  # some begin an empty session for an id they don't know
            raise self._lost("told nothing of the session that it was to go on with")
        return loaded

    def _lost(self, why: str) -> AgentUnavailable:
        why = f"{self._dialect.name} {why}"
        return AgentUnavailable(why, category=ErrorCategory.SESSION_EXPIRED)

    async def _choose_model(self, session: str, begun: Mapping[str, Any]) -> str:
        """Ask for the model by its id, unless the session has it.

        Some agents write down what they are asked for, for all sessions. Returns what the person
        is to know of a model that can't be chosen.
        """
        model = self._spec.model or ""
        current, option = _offered(begun)
        if model == current:
            return ""
        method, choice = "session/set_model", {"modelId": model}
        if option:
            method, choice = "session/set_config_option", {"configId": option, "value": model}
        answer = await self._request(method, {"sessionId": session, **choice})
        if answer.error is None:
            return ""
        log.warning("the model %s could not be chosen: %s", model, failure(answer.error)[1])
        return f"The model {model} can't be chosen; another one answers."

    async def _call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and return its result; raises `AgentUnavailable` for an error."""
        answer = await self._request(method, params)
        if answer.error is None:
            return answer.result
        category, detail = failure(answer.error)
        if answer.error.code == AUTH_REQUIRED:
            category = ErrorCategory.AUTH
        elif method in ("session/load", "session/resume", "session/fork"):
            category = ErrorCategory.SESSION_EXPIRED
        why = f"{self._dialect.name} did not start: {detail}"
        raise AgentUnavailable(why, category=category)

    async def _request(self, method: str, params: Mapping[str, Any]) -> RpcMessage:
        """Send a request and return its answer; what else is said is dropped."""
        request = await self._peer.request(method, params)
        while True:
            message = await self._next()
            if message.is_request:
                await self._peer.refuse(message)
            elif not message.method and message.id == request:
                return message
            update = mapping(message.params.get("update"))
            self._was_replayed |= update.get("sessionUpdate") in _REPLAYED

    async def _next(self) -> RpcMessage:
        return await next_of_start(self._dialect.name, self._pipes, self._peer)


def _offered(begun: Mapping[str, Any]) -> tuple[str, str]:
    """Return the session's model, and the setting that chooses one.

    The protocol has two ways; the setting is empty where there is a method for that.
    """
    for option in mappings(begun.get("configOptions")):
        if "model" in (option.get("category"), option.get("id")):
            return text(option.get("currentValue")), text(option.get("id"))
    return text(mapping(begun.get("models")).get("currentModelId")), ""


def _server(name: str, server: McpServerConfig, run_dir: Path) -> dict[str, Any]:
    """Return an MCP server as ACP wants it described."""
    if server.url is not None:
        headers = [{"name": key, "value": value} for key, value in server.headers.items()]
        return {"type": "http", "name": name, "url": server.url, "headers": headers}
    env = server_environment(server, run_dir)
    return {
        "name": name,
        "command": server.command,
        "args": list(server.args),
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }
