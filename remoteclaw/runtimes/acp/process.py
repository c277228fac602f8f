"""A running agent that speaks ACP: one process with one session, and its turns."""

import asyncio
import base64
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from remoteclaw.errors import AgentUnavailable, ErrorCategory
from remoteclaw.events import ContextSize
from remoteclaw.messages import OWN_SERVER, Image
from remoteclaw.protocols import LOG_LINE, AgentPipes, AgentSpec
from remoteclaw.runtimes.acp.aside import AcpAside, AsideSessions
from remoteclaw.runtimes.acp.messages import classify_rpc_error, commands_of, cost_of, deny
from remoteclaw.runtimes.acp.session import SessionModel, server_description
from remoteclaw.runtimes.acp.turn import AcpTurn
from remoteclaw.runtimes.agent import COMPACT, CliProcess
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer
from remoteclaw.runtimes.wire import mapping, text

if TYPE_CHECKING:
    from remoteclaw.runtimes.acp.runtime import AcpRuntime

#: The version of the protocol.
PROTOCOL = 1
#: The error code of an agent that is not signed in.
AUTH_REQUIRED = -32000
#: The longest wait for a new agent to announce its slash commands, in seconds.
COMMANDS_S = 2.0
#: The updates with which an agent replays a session that it loads.
_REPLAYED = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call")

log = logging.getLogger(__name__)


class AcpProcess(CliProcess[RpcMessage, AcpTurn]):
    """One agent with one session, between and during turns."""

    def __init__(
        self, pipes: AgentPipes, runtime: "AcpRuntime", spec: AgentSpec, run_dir: Path
    ) -> None:
        self._peer = RpcPeer(pipes)
        super().__init__(pipes, self._peer)
        if runtime.log:
            pipes.follow_log(*runtime.log)
        self.name = runtime.name
        self._runtime = runtime
        self._spec = spec
        self._run_dir = run_dir
        self._capabilities: Mapping[str, Any] = {}
        """The capabilities that the agent announced at its start."""
        self._aside_sessions: AsideSessions | None = None
        """The sessions of asides; None before the first aside."""
        self._session_capabilities: tuple[str, ...] = ()
        """The session capabilities that the agent announced, such as `fork` and `close`."""
        self._has_turns = False
        """Whether the session has had a turn: without one there is nothing to copy."""
        self._was_replayed = False
        """Whether the agent replayed earlier messages while it loaded the session."""
        self._session = ""
        self._cost: float | None = 0.0
        """The cost of the session so far, in US dollars; None if it is not known."""
        self._context: ContextSize | None = None
        """The size of the conversation after the last turn; None if it is not known."""
        self._instructions = ""
        """The system prompt, until a message has carried it."""
        self._takes_images = False
        """Whether prompts can contain images; else the agent has only their paths."""
        self._last_message_id = ""
        """The id of the last message of the latest turn."""
        self._default_model = ""
        """The agent's default model: the one with which the session began."""
        self._session_model = SessionModel()
        self._commands: tuple[str, ...] = ()
        """The agent's slash commands; empty until it has announced them."""

    @property
    def session_id(self) -> str | None:
        """The agent's id of the session; None before the session has begun."""
        return self._session or None

    @property
    def note(self) -> str:
        """The agent's default model, for a next process that no longer has a configured one."""
        return self._default_model

    async def handshake(
        self, spec: AgentSpec, session_id: str | None, run_dir: Path, *, fork: bool
    ) -> None:
        """Begin a session, or resume or fork `session_id`, and choose its model."""
        params = {
            "protocolVersion": PROTOCOL,
            "clientCapabilities": {
                "fs": {"readTextFile": False, "writeTextFile": False},
                "terminal": False,
            },
            "clientInfo": {"name": "remoteclaw", "version": "1"},
        }
        agent = await self._call("initialize", params)
        self._capabilities = mapping(agent.get("agentCapabilities"))
        self._session_capabilities = tuple(mapping(self._capabilities.get("sessionCapabilities")))
        self._has_turns = bool(session_id)
        self._takes_images = (
            mapping(self._capabilities.get("promptCapabilities")).get("image") is True
        )
        session_params = {
            "cwd": self._spec.workspace,
            "mcpServers": self._server_descriptions(run_dir),
        }
        self._cost = None if session_id else 0.0
        if not session_id:
            session_info = await self._call("session/new", session_params)
        elif fork:
            session_info = await self._fork({**session_params, "sessionId": session_id})
        else:
            session_info = await self._resume({**session_params, "sessionId": session_id})
        self._session = (
            text(session_info.get("sessionId")) if fork or not session_id else session_id
        )
        self._session_model = SessionModel.of(session_info)
        self._default_model = spec.note if session_id else self._session_model.current
        # A resumed session keeps the last chosen model, so the default is restored explicitly.
        await self._choose(spec.model)
        if self._runtime.instructs_by_prompt:
            self._instructions = spec.system_prompt

    def _server_descriptions(self, run_dir: Path) -> list[dict[str, Any]]:
        """Return the descriptions of the MCP servers, without those that the agent can't reach."""
        takes_http = mapping(self._capabilities.get("mcpCapabilities")).get("http") is True
        servers = []
        for name, server in self._spec.mcp_servers.items():
            if server.url is None or takes_http:
                known_as = self._runtime.server_name(name, self._spec)
                servers.append(server_description(known_as, server, run_dir))
            else:
                hint = ', unless mcp_transport = "stdio"' if name == OWN_SERVER else ""
                why = "%s takes no MCP server over HTTP: %s is left out%s"
                log.warning(why, self.name, name, hint)
        return servers

    async def _fork(self, params: dict[str, Any]) -> Mapping[str, Any]:
        """Copy a session; return the result. Raises `AgentUnavailable`."""
        if "fork" not in self._session_capabilities:
            raise self._session_lost("can't copy a session")
        return await self._call("session/fork", params)

    async def _resume(self, params: dict[str, Any]) -> Mapping[str, Any]:
        """Resume or load a session; return the result. Raises `AgentUnavailable`."""
        if "resume" in self._session_capabilities:
            return await self._call("session/resume", params)
        if not self._capabilities.get("loadSession"):
            raise self._session_lost("can't continue a session of an earlier process")
        loaded = await self._call("session/load", params)
        if not self._was_replayed:  # some agents begin an empty session for an unknown id
            raise self._session_lost("replayed nothing of the session that it was to continue")
        return loaded

    def _session_lost(self, why: str) -> AgentUnavailable:
        why = f"{self.name} {why}"
        return AgentUnavailable(why, category=ErrorCategory.SESSION_EXPIRED)

    async def _choose(self, model: str | None) -> bool:
        """Set the model of the session, unless it is set already.

        Raises `AgentUnavailable` if the agent refuses a chosen model: another model must not
        answer in its place.
        """
        name = model or self._default_model
        request = self._session_model.request(self._session, name)
        if request is None or not name:
            return bool(name)
        before = self._session_model
        self._session_model = replace(before, current="")  # it is not certain before the answer
        answer = await self._request(*request)
        self._session_model = before if answer.error else replace(before, current=name)
        if answer.error and model:
            why = classify_rpc_error(answer.error)[1]
            raise AgentUnavailable(why, category=ErrorCategory.UNKNOWN_MODEL)
        return answer.error is None

    async def _call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and return its result. Raises `AgentUnavailable` for an error."""
        answer = await self._request(method, params)
        if answer.error is None:
            return answer.result
        category, detail = classify_rpc_error(answer.error)
        if answer.error.code == AUTH_REQUIRED:
            category = ErrorCategory.AUTH
        elif method in ("session/load", "session/resume", "session/fork"):
            category = ErrorCategory.SESSION_EXPIRED
        why = f"{self.name} did not start: {detail}"
        raise AgentUnavailable(why, category=category)

    async def _request(self, method: str, params: Mapping[str, Any]) -> RpcMessage:
        """Send a request and return its answer; other messages are dropped."""
        request = await self._peer.request(method, params)
        while not (message := await self._read_between_turns()).is_answer_to(request):
            pass
        return message

    async def _read_between_turns(self) -> RpcMessage:
        """Return the next message outside of a turn; refuse it if it is a request."""
        message = await self._read_at_start()
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
            "said": self._last_message_id,
            "note": self._default_model,
            "session_model": astuple(self._session_model),
            "commands": self._commands,
            "abilities": self._session_capabilities,
            "has_turns": self._has_turns,
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._session = state["session"]
        self._peer.last_id = state["last_id"]
        self._cost = state["cost"]
        self._instructions = state["instructions"]
        self._takes_images = state["takes_images"]
        self._last_message_id = state["said"]
        self._default_model = state["note"]
        self._session_model = SessionModel(*state["session_model"])
        self._commands = tuple(state["commands"])
        self._session_capabilities = tuple(state["abilities"])
        self._has_turns = state["has_turns"]

    def _is_request(self, message: RpcMessage) -> bool:
        return message.is_request

    async def _deny(self, message: RpcMessage) -> None:
        await deny(self._peer, message)

    def _observe(self, message: RpcMessage) -> None:
        if message.params.get("sessionId", self._session) == self._session or not self._session:
            self._commands = commands_of(message) or self._commands
            if self._cost is None:
                self._cost = cost_of(message)

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
        """Return an error with the known commands if `command` is none of them.

        Without it, some agents would send the command to the model, and others would do nothing.
        """
        name = command.split()[0]
        if name == COMPACT and self._runtime.capabilities.compacts:
            return ""  # opencode does not announce it
        with contextlib.suppress(TimeoutError):  # an agent may announce no commands
            async with asyncio.timeout(COMMANDS_S):
                while not self._commands:
                    await self._read_between_turns()
        if not self._commands or name in self._commands:
            return ""
        instead = " `/new` begins an empty conversation." if name == COMPACT else ""
        return f"{self.name} has no command {name}. It has {', '.join(self._commands)}.{instead}"

    def _new_turn(self) -> AcpTurn:
        return AcpTurn(
            self._pipes,
            self._peer,
            self._runtime,
            self._spec,
            session=self._session,
            cost=self._cost,
            previous_message_id=self._last_message_id,
        )

    async def context_size(self) -> ContextSize | None:
        """Return the size of the conversation after the last turn."""
        return self._context

    def _carry_over(self, turn: AcpTurn) -> None:
        self._cost, self._last_message_id = turn.cost, turn.last_message_id
        self._context = turn.context
        self._has_turns = True
        if self._aside_sessions:
            self._aside_sessions.forget()
        self._commands = turn.commands or self._commands
        if not turn.has_failed and not turn.is_command:  # else the model may not have read them
            self._instructions = ""

    def _parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        """Return a message in ACP's format; the prompt names the path of each image."""
        parts: list[dict[str, Any]] = [{"type": "text", "text": prompt}]
        for image in images if self._takes_images else ():
            data = base64.b64encode(image.data).decode()
            parts.append({"type": "image", "mimeType": image.mime_type, "data": data})
        return parts

    # -- asides --------------------------------------------------------------------------------

    def _new_aside(self) -> AcpAside:
        if self._aside_sessions is None:
            place = self._runtime.aside_directory(self._spec, self._run_dir)
            self._aside_sessions = AsideSessions(
                self._peer, self._runtime, self._spec, place, self._session_capabilities
            )
        may_copy = (
            self._runtime.capabilities.asides == "copy" and "fork" in self._session_capabilities
        )
        return self._aside_sessions.new(
            main=self._session,
            model=self.model or self._default_model,
            copies=may_copy and self._has_turns,
            is_busy=self._is_in_turn,
        )

    async def _take_for_aside(self, message: RpcMessage) -> bool:
        """Pass a message or a log line of an aside to it; return False if it belongs to none."""
        if self._asides and message.method == LOG_LINE:
            note = self._runtime.read_log(text(message.params.get("line")))
            if note and note.session != self._session and (note.failure or note.is_compaction):
                for aside in self._asides:
                    await cast(AcpAside, aside).take_log(note)
                return True
        return await super()._take_for_aside(message)
