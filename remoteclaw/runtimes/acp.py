"""The Agent Client Protocol: any agent that speaks it, and what gemini and opencode share.

What one of them does in its own way stands in its own file, as a method of its runtime.
"""

import asyncio
import base64
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoteclaw.errors import AgentUnavailable, ErrorCategory
from remoteclaw.events import AgentEvent, DoneEvent, ErrorEvent, NoticeEvent
from remoteclaw.messages import OWN_SERVER, Image, McpServerConfig
from remoteclaw.protocols import (
    SIDE_EFFECTS_FILE,
    AgentPipes,
    AgentProcess,
    AgentSpec,
    Capabilities,
    Launch,
)
from remoteclaw.runtimes.acp_turn import CANCELLED, AcpTurn, LogNote, failure
from remoteclaw.runtimes.environment import inherit
from remoteclaw.runtimes.jsonrpc import METHOD_NOT_FOUND, Message, Peer, RpcProcess
from remoteclaw.runtimes.programs import find_program
from remoteclaw.runtimes.wire import mapping, mappings, text

__all__ = ["AcpProcess", "AcpRuntime"]

#: The version of the protocol that we speak.
PROTOCOL = 1
#: How long a replay of what was said before may take, in seconds.
REPLAY_S = 10.0
#: How an agent says that somebody has to sign in first.
AUTH_REQUIRED = -32000
#: What an agent tells again of a session that it loads.
_REPLAYED = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call")

log = logging.getLogger(__name__)


class AcpRuntime:
    """How to start an agent that speaks ACP and how to take over a running one."""

    name = "acp"
    command: tuple[str, ...] = ()
    image_types = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
    capabilities = Capabilities(
        steers=False, explains_denial=False, forks=True, resumes="where it can"
    )
    natives: tuple[str, ...] = ()
    #: Whether what is said before comes once more behind the answer to `session/load`.
    replays_late = False
    #: The options that allow commands like one until the session ends: another agent's "always" may
    #: be written down for ever.
    for_session: tuple[str, ...] = ()

    #: What of its standard error is a log, and the lines of it that `read_log` reads.
    log: tuple[re.Pattern[bytes], re.Pattern[bytes]] | None = None

    def read_log(self, line: str) -> LogNote | None:
        """Return what a line of its log says of a turn."""
        return None

    def find(self, program: str, path: str | None) -> str | None:
        """Return the program to start: the real one, where npm's script would start that."""
        return find_program(program, path=path, natives=self.natives)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the common variables: what else an agent needs, its configuration names."""
        return inherit(inherited)

    def fitted(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec as it is."""
        return spec

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line, which is the configured one."""
        return Launch(argv=spec.command, env=spec.env, cwd=spec.workspace, session_id=session_id)

    def may_load(self, spec: AgentSpec, session_id: str) -> bool:
        """Whether a conversation can be gone on with by `session/load`, without harm to it."""
        return True

    def tool_name(self, call: Mapping[str, Any]) -> str:
        """Return the name of a tool that a `tool_call` is about, for people."""
        return text(call.get("title")) or text(call.get("kind"))

    def server_of(self, call: Mapping[str, Any], spec: AgentSpec) -> str | None:
        """Return the MCP server of the configuration that a tool is of, where that is certain."""
        return None

    def server_name(self, name: str, spec: AgentSpec) -> str:
        """Return what the agent calls an MCP server that is called `name` here."""
        return name

    def instructs_by_prompt(self) -> bool:
        """Whether the system prompt goes with the first message, for want of a better way."""
        return True

    async def connect(
        self,
        pipes: AgentPipes,
        spec: AgentSpec,
        *,
        session_id: str | None,
        fork: bool,
        parked_state: Mapping[str, Any] | None,
        run_dir: Path,
    ) -> AgentProcess:
        """Return an agent that is ready for a turn; a new one gets its session first."""
        process = AcpProcess(pipes, self, spec)
        if parked_state is not None:
            process.restore(parked_state)
        else:
            await process.greet(spec, session_id, run_dir, fork=fork)
        return process


class AcpProcess(RpcProcess[AcpTurn]):
    """One agent with one session, between and during turns."""

    def __init__(self, pipes: AgentPipes, runtime: AcpRuntime, spec: AgentSpec) -> None:
        super().__init__(pipes, Peer(pipes))
        if runtime.log:
            pipes.follow_log(*runtime.log)
        self._spec = spec
        self._said = ""
        """The id of the last message of an earlier turn."""
        self._runtime = runtime
        self.name = runtime.name
        self._session = ""
        self._cost = 0.0
        """What the session has cost so far, in US dollars."""
        self._instructions = ""
        """What goes with the first message."""
        self._notice = ""
        """What the person is to know in the first turn."""
        self._takes_images = False
        """Whether it can be shown pictures; else it has their paths."""
        self._was_replayed = False
        """Whether the agent told what was said before, while it loaded the session."""

    @property
    def session_id(self) -> str | None:
        """The agent's id of the session."""
        return self._session or None

    # -- coming and going ----------------------------------------------------------------------

    async def greet(
        self, spec: AgentSpec, session_id: str | None, run_dir: Path, *, fork: bool = False
    ) -> None:
        """Begin a session, or go on with one or a copy of it; MCP servers connect meanwhile."""
        about = await self._call(
            "initialize",
            {
                "protocolVersion": PROTOCOL,
                "clientCapabilities": {
                    "fs": {"readTextFile": False, "writeTextFile": False},
                    "terminal": False,
                },
                "clientInfo": {"name": "remoteclaw", "version": "1"},
            },
        )
        version = about.get("protocolVersion")
        if version not in (None, PROTOCOL):
            why = f"speaks version {version!s:.9} of the Agent Client Protocol, not {PROTOCOL}"
            raise AgentUnavailable(f"{self._runtime.name} {why}", category=ErrorCategory.FATAL)
        can = mapping(about.get("agentCapabilities"))
        self._takes_images = mapping(can.get("promptCapabilities")).get("image") is True
        params = {"cwd": spec.workspace, "mcpServers": self._servers(can, run_dir)}
        if session_id:
            begun = await self._go_on(spec, session_id, params, can, fork=fork)
        else:
            begun = await self._call("session/new", params)
            self._session = text(begun.get("sessionId"))
        if spec.model:
            await self._choose_model(spec.model, begun)
        if self._runtime.instructs_by_prompt():
            self._instructions = spec.system_prompt

    def _servers(self, can: Mapping[str, Any], run_dir: Path) -> list[dict[str, Any]]:
        """Return the MCP servers as ACP wants them described."""
        takes_http = mapping(can.get("mcpCapabilities")).get("http") is True
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

    async def _go_on(
        self,
        spec: AgentSpec,
        session_id: str,
        params: dict[str, Any],
        can: dict[str, Any],
        *,
        fork: bool,
    ) -> Mapping[str, Any]:
        """Go on with a session, or a copy of it; return what the agent says of that."""
        params = {**params, "sessionId": session_id}
        ways = mapping(can.get("sessionCapabilities"))
        if fork:
            if "fork" not in ways:
                raise self._lost("can't begin with a copy of a session")
            begun = await self._call("session/fork", params)
            self._session = text(begun.get("sessionId"))
            return begun
        self._session = session_id
        if "resume" in ways:
            answer = await self._request("session/resume", params)
            # Some announce what they don't know.
            if answer.error is None or answer.error.code != METHOD_NOT_FOUND:
                return self._result_of("session/resume", answer)
        if not (can.get("loadSession") and self._runtime.may_load(spec, session_id)):
            raise self._lost("can't go on with a session of an earlier process")
        return await self._load(params)

    async def _load(self, params: dict[str, Any]) -> Mapping[str, Any]:
        """Go on with a session that the agent tells first, from its beginning."""
        self._was_replayed = False
        loaded = await self._call("session/load", params)
        if self._runtime.replays_late:
            await self._skip_replay()
        elif not self._was_replayed:  # some begin an empty session for an id they don't know
            raise self._lost("told nothing of the session that it was to go on with")
        return loaded

    def _lost(self, why: str) -> AgentUnavailable:
        return AgentUnavailable(
            f"{self._runtime.name} {why}", category=ErrorCategory.SESSION_EXPIRED
        )

    async def _skip_replay(self) -> None:
        try:
            async with asyncio.timeout(REPLAY_S):
                while True:
                    update = mapping((await self.next_of_start()).params.get("update"))
                    if update.get("sessionUpdate") == "available_commands_update":
                        return
        except TimeoutError:
            log.warning("%s did not end its replay", self._runtime.name)

    async def _choose_model(self, model: str, begun: Mapping[str, Any]) -> None:
        """Ask for a model by its id or its name, unless the session has it.

        Some agents write down what they are asked for, for all sessions.
        """
        offer = _Models.of(begun)
        model_id = offer.id_of(model)
        if model_id == offer.current:
            return
        session = {"sessionId": self._session}
        if offer.option:
            choice = {"configId": offer.option, "value": model_id}
            answer = await self._request("session/set_config_option", {**session, **choice})
        else:
            choice = {"modelId": model_id}
            answer = await self._request("session/set_model", {**session, **choice})
        if answer.error:
            log.warning("the model %s could not be chosen: %s", model, failure(answer.error)[1])
            self._notice = f"The model {model} can't be chosen; another one answers."

    async def _call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request of the start and return what it results in."""
        return self._result_of(method, await self._request(method, params))

    async def _request(self, method: str, params: Mapping[str, Any]) -> Message:
        """Send a request of the start and return its answer; what else is said is dropped."""
        request = await self._peer.request(method, params)
        while True:
            message = await self.next_of_start()
            if message.is_request:
                await self._peer.refuse(message)
            elif not message.method and message.id == request:
                return message
            update = mapping(message.params.get("update"))
            self._was_replayed |= update.get("sessionUpdate") in _REPLAYED

    def _result_of(self, method: str, message: Message) -> Mapping[str, Any]:
        if message.error is None:
            return message.result
        category, detail = failure(message.error)
        if message.error.code == AUTH_REQUIRED:
            category = ErrorCategory.AUTH
        elif method in ("session/load", "session/resume", "session/fork"):
            category = ErrorCategory.SESSION_EXPIRED
        raise AgentUnavailable(f"{self._runtime.name} did not start: {detail}", category=category)

    def parked_state(self) -> dict[str, Any] | None:
        """Return what the next driver must know; None in a turn, or with a request open."""
        if self._turn is not None:
            return None
        if any(message.is_request for message in self._peer.take_unread()):
            return None
        if not self._pipes.is_clean:
            return None
        return {
            "session": self._session,
            "last_id": self._peer.last_id,
            "cost": self._cost,
            "instructions": self._instructions,
            "takes_images": self._takes_images,
            "said": self._said,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another driver left off."""
        self._session = state["session"]
        self._peer.last_id = state["last_id"]
        self._cost = state["cost"]
        self._instructions = state["instructions"]
        # Another version of ours may have left it without these.
        self._takes_images = state.get("takes_images", True)
        self._said = state.get("said", "")

    # -- a turn --------------------------------------------------------------------------------

    async def turn(
        self, prompt: str, images: Sequence[Image] = ()
    ) -> AsyncGenerator[AgentEvent, None]:
        """Ask the agent; yield what it says, with exactly one `DoneEvent`, last."""
        for message in self._peer.take_unread():
            if message.method == "session/request_permission" and message.id is not None:
                await self._peer.respond(message.id, CANCELLED)  # it belongs to nobody
            elif message.is_request:
                await self._peer.refuse(message)
        notice, self._notice = self._notice, ""
        if notice:
            yield NoticeEvent(notice)
        instructions, self._instructions = self._instructions, ""
        if instructions:
            prompt = f"{instructions}\n\n{prompt}"
        turn = AcpTurn(
            self._pipes,
            self._peer,
            self._runtime,
            self._spec,
            self._session,
            self._cost,
            said_before=self._said,
        )
        await turn.ask(self.parts(prompt, images))
        async with contextlib.aclosing(self.events_of(turn)) as events:
            async for event in events:
                if isinstance(event, ErrorEvent):
                    self._instructions = instructions  # it may not have read them
                if isinstance(event, DoneEvent):
                    self._cost = turn.cost
                    self._said = turn.said
                yield event

    def parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        """Return a message as ACP wants it; the prompt names the path of each picture."""
        parts: list[dict[str, Any]] = [{"type": "text", "text": prompt}]
        for image in images if self._takes_images else ():
            data = base64.b64encode(image.data).decode()
            parts.append({"type": "image", "mimeType": image.mime_type, "data": data})
        return parts


@dataclass(frozen=True, slots=True)
class _Models:
    """Which models an agent offers when a session begins."""

    current: str
    """The id of the one that the session has."""
    names: Mapping[str, str]
    """The name of each, by its id."""
    option: str = ""
    """The setting that chooses one; empty where there is a method for that."""

    @classmethod
    def of(cls, begun: Mapping[str, Any]) -> "_Models":
        """Return what an agent says of them, in either of the protocol's two ways."""
        for option in mappings(begun.get("configOptions")):
            if "model" in (option.get("category"), option.get("id")):
                listed = mappings(option.get("options"))
                offered = [
                    one for each in listed for one in mappings(each.get("options")) or [each]
                ]
                names = {text(one.get("value")): text(one.get("name")) for one in offered}
                return cls(text(option.get("currentValue")), names, text(option.get("id")))
        models = mapping(begun.get("models"))
        offered = mappings(models.get("availableModels"))
        names = {text(one.get("modelId")): text(one.get("name")) for one in offered}
        return cls(text(models.get("currentModelId")), names)

    def id_of(self, model: str) -> str:
        """Return the id of a model that is named by its id or its name."""
        named = [model_id for model_id, name in self.names.items() if name == model]
        if model == self.current or model in self.names or not named:
            return model
        return self.current if self.current in named else named[0]


def _server(name: str, server: McpServerConfig, run_dir: Path) -> dict[str, Any]:
    """Return an MCP server as ACP wants it described."""
    if server.url is not None:
        headers = [{"name": key, "value": value} for key, value in server.headers.items()]
        return {"type": "http", "name": name, "url": server.url, "headers": headers}
    env = {**server.env, "REMOTECLAW_SIDE_EFFECTS_FILE": str(run_dir / SIDE_EFFECTS_FILE)}
    return {
        "name": name,
        "command": server.command,
        "args": list(server.args),
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }
