"""The Agent Client Protocol: any agent that speaks it, and the base of gemini and opencode."""

import asyncio
import base64
import contextlib
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remoteclaw.errors import AgentUnavailable, ErrorCategory
from remoteclaw.events import Intent
from remoteclaw.messages import OWN_SERVER, Image, McpServerConfig
from remoteclaw.protocols import AgentPipes, AgentSpec, Capabilities, Launch
from remoteclaw.runtimes.acp_turn import AcpTurn, LogNote, commands_of, deny, failure
from remoteclaw.runtimes.agent import CliProcess
from remoteclaw.runtimes.base import BaseRuntime, server_environment
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer
from remoteclaw.runtimes.wire import mapping, mappings, text

__all__ = ["AcpProcess", "AcpRuntime"]

#: The version of the protocol.
PROTOCOL = 1
#: The error of an agent without a sign-in.
AUTH_REQUIRED = -32000
#: How long an agent that has just begun is waited for to name its commands, in seconds.
COMMANDS_S = 2.0
#: The updates with which an agent repeats a session that it loads.
_REPLAYED = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call")

log = logging.getLogger(__name__)


class AcpRuntime(BaseRuntime):
    """Any agent that speaks ACP. Each default fits agents that nothing is known of."""

    name = "acp"
    command: tuple[str, ...] = ()
    capabilities = Capabilities(
        steers=False,
        explains_denial=False,
        takes_commands=True,
        forks=True,
        resumes="where it can",
    )
    may_load = True
    """Whether `session/load` does a conversation no harm."""
    instructs_by_prompt = True
    """Whether the system prompt goes with the first message, for want of a better way."""
    log: tuple[re.Pattern[bytes], re.Pattern[bytes]] | None = None
    """Patterns of the log in standard error, and of its lines for `read_log()`."""

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line, which is the configured one."""
        return Launch(argv=spec.command, env=spec.env, cwd=spec.workspace, session_id=session_id)

    def process(
        self, pipes: AgentPipes, spec: AgentSpec, *, session_id: str | None, run_dir: Path
    ) -> "AcpProcess":
        """Return the agent before its handshake."""
        return AcpProcess(pipes, self, spec)

    def read_log(self, line: str) -> LogNote | None:
        """Return what a line of its log says of a turn."""
        return None

    def tool_name(self, call: Mapping[str, Any]) -> str:
        """Return the name of a tool that a `tool_call` is about, for people."""
        return text(call.get("title")) or text(call.get("kind"))

    def server_of(self, call: Mapping[str, Any], spec: AgentSpec) -> str | None:
        """Return the configured MCP server that a tool is of, where that is certain."""
        return None

    def intent_of(self, call: Mapping[str, Any], before: Mapping[str, Any]) -> Intent | None:
        """Return what a `toolCall` of a request is for, where that is certain.

        `before` is what was said of the call until then.
        """
        return None

    def server_name(self, name: str, spec: AgentSpec) -> str:
        """Return what the agent calls an MCP server that is called `name` here."""
        return name


class AcpProcess(CliProcess[RpcMessage, AcpTurn]):
    """One agent with one session, between and during turns."""

    def __init__(self, pipes: AgentPipes, runtime: AcpRuntime, spec: AgentSpec) -> None:
        self._peer = RpcPeer(pipes)
        super().__init__(pipes, self._peer)
        if runtime.log:
            pipes.follow_log(*runtime.log)
        self.name = runtime.name
        self._runtime = runtime
        self._spec = spec
        self._can: Mapping[str, Any] = {}
        """The agent's capabilities."""
        self._was_replayed = False
        """Whether the agent repeated earlier messages while it loaded the session."""
        self._session = ""
        self._cost = 0.0
        """The cost of the session so far, in US dollars."""
        self._instructions = ""
        """The text before the first message."""
        self._takes_images = False
        """Whether it can be shown pictures; else it has their paths."""
        self._said = ""
        """The id of the last message of an earlier turn."""
        self._own_model = ""
        """The model that the session began with, before another one was asked for."""
        self._commands: tuple[str, ...] = ()
        """The agent's own commands, once it has named them."""

    @property
    def session_id(self) -> str | None:
        """The agent's id of the session."""
        return self._session or None

    @property
    def note(self) -> str:
        """The agent's own choice of a model, to which the next process may have to go back."""
        return self._own_model

    async def handshake(
        self, spec: AgentSpec, session_id: str | None, run_dir: Path, *, fork: bool
    ) -> None:
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
        self._takes_images = mapping(self._can.get("promptCapabilities")).get("image") is True
        where = {"cwd": self._spec.workspace, "mcpServers": self._servers(run_dir)}
        if not session_id:
            begun = await self._call("session/new", where)
        elif fork:
            begun = await self._fork({**where, "sessionId": session_id})
        else:
            begun = await self._go_on({**where, "sessionId": session_id})
        self._session = text(begun.get("sessionId")) if fork or not session_id else session_id
        self._own_model = spec.note if session_id else _offered(begun)[0]
        # A session that is gone on with has the model that it was asked for last.
        if model := spec.model or self._own_model:
            await self._choose_model(model, begun)
        if self._runtime.instructs_by_prompt:
            self._instructions = spec.system_prompt

    def _servers(self, run_dir: Path) -> list[dict[str, Any]]:
        """Return the MCP servers as ACP wants them described."""
        takes_http = mapping(self._can.get("mcpCapabilities")).get("http") is True
        described = []
        for name, server in self._spec.mcp_servers.items():
            if server.url is None or takes_http:
                known_as = self._runtime.server_name(name, self._spec)
                described.append(_server(known_as, server, run_dir))
            else:
                hint = ', unless mcp_transport = "stdio"' if name == OWN_SERVER else ""
                why = "%s takes no MCP server over HTTP: %s is left out%s"
                log.warning(why, self.name, name, hint)
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
        if not (self._can.get("loadSession") and self._runtime.may_load):
            raise self._lost("can't go on with a session of an earlier process")
        loaded = await self._call("session/load", params)
        if not self._was_replayed:  # some begin an empty session for an id they don't know
            raise self._lost("told nothing of the session that it was to go on with")
        return loaded

    def _lost(self, why: str) -> AgentUnavailable:
        why = f"{self.name} {why}"
        return AgentUnavailable(why, category=ErrorCategory.SESSION_EXPIRED)

    async def _choose_model(self, model: str, begun: Mapping[str, Any]) -> None:
        """Ask for the model by its id, unless the session has it.

        Some agents write down what they are asked for, for all sessions. Raises `AgentUnavailable`
        for a model that can't be had: another one is not what the person has asked for.
        """
        current, option = _offered(begun)
        if model == current:
            return
        method, choice = "session/set_model", {"modelId": model}
        if option:
            method, choice = "session/set_config_option", {"configId": option, "value": model}
        answer = await self._request(method, {"sessionId": self._session, **choice})
        if answer.error is not None and self._spec.model:
            why = failure(answer.error)[1]
            raise AgentUnavailable(why, category=ErrorCategory.UNKNOWN_MODEL)

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
        why = f"{self.name} did not start: {detail}"
        raise AgentUnavailable(why, category=category)

    async def _request(self, method: str, params: Mapping[str, Any]) -> RpcMessage:
        """Send a request and return its answer; what else is said is dropped."""
        request = await self._peer.request(method, params)
        while True:
            message = await self._hear()
            if not message.method and message.id == request:
                return message

    async def _hear(self) -> RpcMessage:
        """Return the next message before a turn; one that is a request is refused."""
        message = await self._next_of_start()
        if message.is_request:
            await self._peer.refuse(message)
        update = mapping(message.params.get("update"))
        self._was_replayed |= update.get("sessionUpdate") in _REPLAYED
        self._observe(message)
        return message

    def _state(self) -> dict[str, Any]:
        return {
            "session": self._session,
            "last_id": self._peer.last_id,
            "cost": self._cost,
            "instructions": self._instructions,
            "takes_images": self._takes_images,
            "said": self._said,
            "note": self._own_model,
            "commands": self._commands,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another worker left off."""
        self._session = state["session"]
        self._peer.last_id = state["last_id"]
        self._cost = state["cost"]
        self._instructions = state["instructions"]
        self._takes_images = state["takes_images"]
        self._said = state["said"]
        self._own_model = state["note"]
        self._commands = tuple(state["commands"])

    def _is_request(self, message: RpcMessage) -> bool:
        return message.is_request

    async def _deny(self, message: RpcMessage) -> None:
        await deny(self._peer, message)

    def _observe(self, message: RpcMessage) -> None:
        self._commands = commands_of(message) or self._commands

    # -- a turn --------------------------------------------------------------------------------

    async def _begin(self, prompt: str, images: Sequence[Image]) -> AcpTurn:
        instructed = "\n\n".join(filter(None, (self._instructions, prompt)))
        turn = self._new_turn()
        await turn.ask(self._parts(instructed, images))
        return turn

    async def _begin_command(self, text: str) -> AcpTurn:
        turn = self._new_turn()
        turn.is_command = True
        await turn.ask(self._parts(text, ()))
        return turn

    async def _problem_of(self, command: str) -> str:
        """Say of an unknown one which there are: some send it to the model, others do nothing."""
        name = command.split()[0]
        with contextlib.suppress(TimeoutError):  # an agent needs not name any
            async with asyncio.timeout(COMMANDS_S):
                while not self._commands:
                    await self._hear()
        if not self._commands or name in self._commands:
            return ""
        return f"{self.name} has no command {name}. It has {', '.join(self._commands)}."

    def _new_turn(self) -> AcpTurn:
        return AcpTurn(
            self._pipes,
            self._peer,
            self._runtime,
            self._spec,
            session=self._session,
            cost=self._cost,
            said_before=self._said,
        )

    def _end(self, turn: AcpTurn) -> None:
        self._cost, self._said = turn.cost, turn.said
        self._commands = turn.commands or self._commands
        if not turn.has_failed and not turn.is_command:  # else it may not have read them
            self._instructions = ""

    def _parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        """Return a message as ACP wants it; the prompt names the path of each picture."""
        parts: list[dict[str, Any]] = [{"type": "text", "text": prompt}]
        for image in images if self._takes_images else ():
            data = base64.b64encode(image.data).decode()
            parts.append({"type": "image", "mimeType": image.mime_type, "data": data})
        return parts


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
