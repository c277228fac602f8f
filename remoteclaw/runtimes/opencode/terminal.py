"""OpenCode's own program in a terminal: its start, and its state from its HTTP port.

The program is a server with a screen. It gets a free port and a random password.
"""

import asyncio
import re
import secrets
import socket
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from remoteclaw.clock import now_ms
from remoteclaw.events import PermissionEvent
from remoteclaw.host.files import share_text
from remoteclaw.messages import McpServerConfig
from remoteclaw.protocols import Activity, AgentSpec, Decision, Launch, ModelRequest, prompt_file
from remoteclaw.runtimes.base import server_environment
from remoteclaw.runtimes.local_http import LocalServer
from remoteclaw.runtimes.opencode.config import configuration_of, denied, environment_with
from remoteclaw.runtimes.opencode.store import (
    OpencodeTranscript,
    conversation_begun_with,
    model_requests,
)
from remoteclaw.runtimes.terminal import NotedWatch, TerminalNotes, main_argument
from remoteclaw.runtimes.wire import count, mapping, mappings, text

USER = "opencode"
HOST = "127.0.0.1"
#: The beginnings of the title once the screen is drawn; "OC | " precedes a conversation's title.
_TITLES = ("OpenCode", "OC | ")
#: The connection is renewed after this many seconds without an event; opencode sends one every 10
#: seconds.
SILENT_S = 35.0
_ID = re.compile(r"ses_[A-Za-z0-9]+")


class OpencodeTerminal:
    """OpenCode in a terminal."""

    shows_prompt = False

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, prompt: str, run_dir: Path
    ) -> Launch:
        """Return the command line; the configuration is passed in the environment, as for turns.

        With `--session`, opencode does not send the `--prompt` before another conversation begins.
        So the watch sends the prompt, under an id chosen here, so that it is sent only once.
        """
        instructions = prompt_file(run_dir, spec.system_prompt)
        content = spec.system_prompt.encode("utf-8", "replace")
        share_text(instructions, content, run_dir / instructions.name)
        config = configuration_of(spec, run_dir, instructions)
        servers = {name: _server(server, run_dir) for name, server in spec.mcp_servers.items()}
        config["mcp"] = {**mapping(config.get("mcp")), **servers}
        if spec.permissions == "deny":  # no person is asked
            for rules in (config, *config["agent"].values()):
                rules["permission"] = denied(rules.get("permission", {}))
        port, password = _free_port(), secrets.token_urlsafe(24)
        argv = [*spec.command, "--hostname", HOST, "--port", str(port)]
        model = spec.model or spec.note  # else the model that was chosen last would answer
        argv += ["--model", model] if model else []
        if session_id:
            argv.append(f"--session={session_id}")
        elif prompt:
            argv.append(f"--prompt={prompt}")
        TerminalNotes(run_dir).begin(
            port=port,
            password=password,
            prompt=prompt,
            goes_on=bool(session_id),
            model=model,
            message=_message_id(),
        )
        env = {
            "OPENCODE_SERVER_USERNAME": USER,
            "OPENCODE_SERVER_PASSWORD": password,
            # Each start unpacks a library of 14 MB, which would remain in /tmp.
            "BUN_TMPDIR": str(run_dir),
        }
        return Launch(
            argv=tuple(argv),
            env={**environment_with(spec, config), **env},
            cwd=spec.workspace,
            session_id=session_id,
        )

    def watch(
        self, *, run_dir: Path, workspace: str, env: Mapping[str, str], conversation: str | None
    ) -> "OpencodeWatch":
        """Return a watch of the program with this run directory."""
        return OpencodeWatch(TerminalNotes(run_dir), env, conversation)

    def transcript(
        self, conversation: str, *, workspace: str, env: Mapping[str, str]
    ) -> OpencodeTranscript:
        """Return the transcript of a conversation."""
        return OpencodeTranscript(conversation, env)

    def model_requests(self, conversation: str, env: Mapping[str, str]) -> list[ModelRequest]:
        """Return the requests to the model in the transcript of a conversation."""
        return model_requests(conversation, env)

    def places(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that locate opencode's files."""
        return {name: env[name] for name in ("HOME", "XDG_DATA_HOME", "OPENCODE_DB") if name in env}


class OpencodeWatch(NotedWatch):
    """The state of one opencode, from events on its port: busy conversations and open requests.

    Only the title shows that the screen is drawn.
    """

    def __init__(
        self, notes: TerminalNotes, env: Mapping[str, str], conversation: str | None
    ) -> None:
        super().__init__(notes, conversation)
        self._env, noted = env, self._noted
        self._server = LocalServer(count(noted.get("port")), USER, text(noted.get("password")))
        self._prompt = text(noted.get("prompt"))
        """The prompt of the start; empty once opencode has taken it up."""
        self._is_connected = self._is_titled = False
        self._busy: set[str] = set()
        """The ids of busy conversations."""
        self._open_requests: dict[str, str] = {}
        """The descriptions of all open requests and questions, by id."""
        self._requests: dict[str, PermissionEvent] = {}
        """The open requests for a permission, by id."""
        self._is_main: dict[str, bool] = {}
        """Whether a conversation is a main one, and not a subagent's, by id."""

    @property
    def activity(self) -> Activity:
        """The activity; never `idle` without a connection, or after keys were typed."""
        if not self._is_connected:
            return "unknown"
        if self._open_requests:
            return "waiting"
        if self._busy:
            return "busy"
        may_rest = self.is_ready and not (self._prompt or self._is_touched)
        return "idle" if may_rest else "unknown"

    @property
    def transcript(self) -> OpencodeTranscript | None:
        """The transcript of the open conversation; None until it is known."""
        return OpencodeTranscript(self.conversation, self._env) if self.conversation else None

    @property
    def requests(self) -> Sequence[PermissionEvent]:
        """The open requests for a permission; questions can be answered by keys only."""
        return tuple(self._requests.values())

    async def answer(self, request: str, decision: Decision) -> None:
        """Answer a request for a permission; ignore one that is answered already."""
        reply = {"reply": "once"}
        if decision.verdict == "deny":
            reply = {"reply": "reject", "message": decision.message}
        await self._server.post(f"/permission/{quote(request, safe='')}/reply", reply)

    def title(self, text: str) -> None:
        """Note from the title that the screen is drawn."""
        self._is_titled |= text.startswith(_TITLES)
        self._update()

    def typed(self) -> None:
        """Note that a person has typed, which may have opened a menu that no event reports."""
        if self.activity == "idle":
            self._set_touched(True)
        self._update()

    async def poll(self) -> None:
        """Follow the events of the port until the connection ends."""
        try:
            async with self._server.events("/event", silent_s=SILENT_S) as events:
                await self._read_state()
                self._is_connected = True
                self._update()
                await self._check_prompt()
                async for event in events:
                    await self._apply(mapping(event))
                    self._update()
        except OSError:  # the port is not open yet, closed, or too slow
            pass
        finally:
            self._is_connected = False

    async def _read_state(self) -> None:
        """Read the current state from the port. Raises `OSError`."""
        status = await self._server.get("/session/status")
        answers = [await self._server.get(path) for path in ("/permission", "/question")]
        if not isinstance(status, dict) or not all(isinstance(each, list) for each in answers):
            raise OSError("opencode doesn't report its state")
        self._busy = {id_ for id_, entry in status.items() if mapping(entry).get("type") != "idle"}
        requests = [request for each in answers for request in mappings(each)]
        self._open_requests = {
            text(request.get("id")): _description_of(request) for request in requests
        }
        self._requests = {text(each.get("id")): _event_of(each) for each in mappings(answers[0])}
        for id_ in self._busy:
            await self._set_busy(id_)

    async def _apply(self, event: dict[str, Any]) -> None:
        properties = mapping(event.get("properties"))
        session = text(properties.get("sessionID"))
        match event.get("type"):
            case "session.created":
                is_main = not mapping(properties.get("info")).get("parentID")
                self._is_main[session] = is_main
                if is_main:
                    self._switch_to(session)
            case "session.status" if mapping(properties.get("status")).get("type") != "idle":
                if session not in self._busy:  # a further event does not mean it is on the screen
                    self._busy.add(session)
                    await self._set_busy(session)
            case "session.status" | "session.idle" | "session.deleted":
                self._busy.discard(session)
            case "permission.asked" | "question.asked" as kind:
                self._open_requests[text(properties.get("id"))] = _description_of(properties)
                if kind == "permission.asked":
                    self._requests[text(properties.get("id"))] = _event_of(properties)
            case "permission.replied" | "question.replied" | "question.rejected":
                self._open_requests.pop(text(properties.get("requestID")), None)
                self._requests.pop(text(properties.get("requestID")), None)

    async def _set_busy(self, session: str) -> None:
        """Note that a conversation is busy, and that it is on the screen unless a subagent's."""
        self._set_touched(False)
        self._clear_prompt()
        if session not in self._is_main and _ID.fullmatch(session):
            info = mapping(await self._server.get(f"/session/{session}"))
            self._is_main[session] = bool(info) and not info.get("parentID")
        if self._is_main.get(session):
            self._switch_to(session)

    def _switch_to(self, session: str) -> None:
        if session != self.conversation and _ID.fullmatch(session):
            self._set_conversation(session)

    async def _check_prompt(self) -> None:
        """Check whether opencode has taken up the prompt of the start; send it if the watch must.

        Opencode may have taken it up before the connection was open.
        """
        if not self._prompt:
            return
        if self._noted.get("goes_on"):
            has_prompt = await self._ensure_message()
        else:
            since_ms = count(self._noted.get("began_ns")) // 1_000_000
            conversation = await asyncio.to_thread(
                conversation_begun_with, self._prompt, since_ms, self._env
            )
            has_prompt = conversation is not None
            if conversation:
                self._switch_to(conversation)
        if has_prompt:
            self._clear_prompt()
            self._update()

    async def _ensure_message(self) -> bool:
        """Return whether the conversation has the prompt's message; send the message if not."""
        path, message = f"/session/{self.conversation}", text(self._noted.get("message"))
        if await self._server.get(f"{path}/message/{message}") is not None:
            return True
        provider, slash, model = text(self._noted.get("model")).partition("/")
        chosen = {"model": {"providerID": provider, "modelID": model}} if slash else {}
        parts = [{"type": "text", "text": self._prompt}]
        await self._server.post(
            f"{path}/prompt_async", {"messageID": message, "parts": parts, **chosen}
        )
        return False

    def _clear_prompt(self) -> None:
        if self._prompt:
            self._prompt = ""
            self._notes.add(prompt="")

    def _update(self) -> None:
        self.state.is_ready |= self._is_connected and self._is_titled
        self.state.waiting_for = next(iter(self._open_requests.values()), "")
        self.notify()


def _event_of(request: Mapping[str, Any]) -> PermissionEvent:
    """Return the event of a request, with the metadata of the tool call, or else its patterns."""
    metadata = mapping(request.get("metadata")) or {"patterns": request.get("patterns")}
    return PermissionEvent(text(request.get("id")), text(request.get("permission")), metadata)


def _description_of(request: Mapping[str, Any]) -> str:
    """Return a short description of a request or a question."""
    if questions := mappings(request.get("questions")):
        return main_argument({"text": questions[0].get("question")})
    metadata = mapping(request.get("metadata")) or {"pattern": request.get("patterns")}
    return f"{text(request.get('permission'))}: {main_argument(metadata)}".removesuffix(": ")


def _server(server: McpServerConfig, run_dir: Path) -> dict[str, Any]:
    """Return the description of an MCP server in the format of opencode's configuration."""
    if server.url is not None:
        return {"type": "remote", "url": server.url, "headers": dict(server.headers)}
    env = server_environment(server, run_dir)
    command = [server.command, *server.args]
    return {"type": "local", "command": command, "environment": env}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _message_id() -> str:
    """Return an id for a new message, which begins with the time and so sorts after all others."""
    signs = string.ascii_letters + string.digits
    moment = (now_ms() << 12) % (1 << 48)
    return f"msg_{moment:012x}" + "".join(secrets.choice(signs) for _ in range(14))
