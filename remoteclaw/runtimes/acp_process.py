"""An agent that speaks the Agent Client Protocol: one process with one session, and its turns."""

import asyncio
import base64
import contextlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from remoteclaw.errors import AgentUnavailable, ErrorCategory
from remoteclaw.messages import OWN_SERVER, Image
from remoteclaw.protocols import LOG_LINE, AgentPipes, AgentSpec
from remoteclaw.runtimes.acp_aside import AcpAside, AsideSessions
from remoteclaw.runtimes.acp_session import described, model_of, model_request
from remoteclaw.runtimes.acp_turn import AcpTurn, commands_of, deny, failure
from remoteclaw.runtimes.agent import CliProcess
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer
from remoteclaw.runtimes.wire import mapping, text

if TYPE_CHECKING:
    from remoteclaw.runtimes.acp import AcpRuntime

#: The version of the protocol.
PROTOCOL = 1
#: The error of an agent without a sign-in.
AUTH_REQUIRED = -32000
#: How long an agent that has just begun is waited for to name its commands, in seconds.
COMMANDS_S = 2.0
#: The updates with which an agent repeats a session that it loads.
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
        self._can: Mapping[str, Any] = {}
        """The agent's capabilities, as it began."""
        self._beside: AsideSessions | None = None
        """What the questions beside its turns have in common, once there was one."""
        self._abilities: tuple[str, ...] = ()
        """What it can do with sessions."""
        self._has_turns = False
        """Whether the session has had a turn: else there is nothing to copy."""
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
        self._abilities = tuple(mapping(self._can.get("sessionCapabilities")))
        self._has_turns = bool(session_id)
        self._takes_images = mapping(self._can.get("promptCapabilities")).get("image") is True
        where = {"cwd": self._spec.workspace, "mcpServers": self._servers(run_dir)}
        if not session_id:
            begun = await self._call("session/new", where)
        elif fork:
            begun = await self._fork({**where, "sessionId": session_id})
        else:
            begun = await self._go_on({**where, "sessionId": session_id})
        self._session = text(begun.get("sessionId")) if fork or not session_id else session_id
        self._own_model = spec.note if session_id else model_of(begun)
        # A session that is gone on with has the model that it was asked for last.
        if model := spec.model or self._own_model:
            await self._choose_model(model, begun)
        if self._runtime.instructs_by_prompt:
            self._instructions = spec.system_prompt

    def _servers(self, run_dir: Path) -> list[dict[str, Any]]:
        """Return the MCP servers as ACP wants them described."""
        takes_http = mapping(self._can.get("mcpCapabilities")).get("http") is True
        servers = []
        for name, server in self._spec.mcp_servers.items():
            if server.url is None or takes_http:
                known_as = self._runtime.server_name(name, self._spec)
                servers.append(described(known_as, server, run_dir))
            else:
                hint = ', unless mcp_transport = "stdio"' if name == OWN_SERVER else ""
                why = "%s takes no MCP server over HTTP: %s is left out%s"
                log.warning(why, self.name, name, hint)
        return servers

    async def _fork(self, params: dict[str, Any]) -> Mapping[str, Any]:
        """Begin with a copy of a session; return what the agent says of it."""
        if "fork" not in self._abilities:
            raise self._lost("can't begin with a copy of a session")
        return await self._call("session/fork", params)

    async def _go_on(self, params: dict[str, Any]) -> Mapping[str, Any]:
        """Go on with a session; return what the agent says of it."""
        if "resume" in self._abilities:
            return await self._call("session/resume", params)
        if not self._can.get("loadSession"):
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

        Raises `AgentUnavailable` for a model that can't be had: another one is not what the person
        has asked for.
        """
        request = model_request(self._session, model, begun)
        if request is None:
            return
        answer = await self._request(*request)
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
            "abilities": self._abilities,
            "has_turns": self._has_turns,
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
        self._abilities = tuple(state["abilities"])
        self._has_turns = state["has_turns"]

    def _is_request(self, message: RpcMessage) -> bool:
        return message.is_request

    async def _deny(self, message: RpcMessage) -> None:
        await deny(self._peer, message)

    def _observe(self, message: RpcMessage) -> None:
        if message.params.get("sessionId", self._session) == self._session or not self._session:
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
        self._has_turns = True
        if self._beside:
            self._beside.forget()
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

    # -- beside a turn -------------------------------------------------------------------------

    def _new_aside(self) -> AcpAside:
        if self._beside is None:
            place = self._runtime.aside_place(self._spec, self._run_dir)
            self._beside = AsideSessions(
                self._peer, self._runtime, self._spec, place, self._abilities
            )
        may_copy = self._runtime.capabilities.asides == "copy" and "fork" in self._abilities
        return self._beside.new(
            main=self._session, copies=may_copy and self._has_turns, is_busy=self._is_in_turn
        )

    async def _take_beside(self, message: RpcMessage) -> bool:
        """Take a message of an aside: its log, too, which is no news of the turn."""
        if self._asides and message.method == LOG_LINE:
            note = self._runtime.read_log(text(message.params.get("line")))
            if note and note.session != self._session and (note.failure or note.is_own):
                for aside in self._asides:
                    await cast(AcpAside, aside).take_log(note)
                return True
        return await super()._take_beside(message)
