"""OpenCode's own program in a terminal: how it is started, and what it says on its port.

The program is a server with a screen. It gets a port that was free and a password of its own.
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
from remoteclaw.protocols import Activity, AgentSpec, Decision, Launch, prompt_file
from remoteclaw.runtimes.base import server_environment
from remoteclaw.runtimes.local_http import LocalServer
from remoteclaw.runtimes.opencode_config import configured, with_configuration
from remoteclaw.runtimes.opencode_store import OpencodeTranscript, begun_with
from remoteclaw.runtimes.terminal import NotedWatch, TerminalNotes, telling
from remoteclaw.runtimes.wire import count, mapping, mappings, text

USER = "opencode"
HOST = "127.0.0.1"
#: Its titles, once its screen is drawn: "OpenCode", and "OC | " before that of a conversation.
_TITLES = ("OpenCode", "OC | ")
#: After how long without a word its connection is made again, in seconds: it says something every
#: 10 seconds.
SILENT_S = 35.0
_ID = re.compile(r"ses_[A-Za-z0-9]+")


class OpencodeTerminal:
    """OpenCode in a terminal."""

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, prompt: str, run_dir: Path
    ) -> Launch:
        """Return the command line; all else goes with the environment, as for turns.

        With `--session`, opencode keeps a `--prompt` until another conversation is begun: so the
        watch sends it, by a name by which it is sent once.
        """
        instructions = prompt_file(run_dir, spec.system_prompt)
        said = spec.system_prompt.encode("utf-8", "replace")
        share_text(instructions, said, run_dir / instructions.name)
        config = configured(spec, run_dir, instructions)
        servers = {name: _server(each, run_dir) for name, each in spec.mcp_servers.items()}
        config["mcp"] = {**mapping(config.get("mcp")), **servers}
        if spec.permissions == "deny":  # nobody is asked
            config["permission"] = _refused(config["permission"])
        port, password = _free_port(), secrets.token_urlsafe(24)
        argv = [*spec.command, "--hostname", HOST, "--port", str(port)]
        argv += ["--model", spec.model] if spec.model else []
        if session_id:
            argv.append(f"--session={session_id}")
        elif prompt:
            argv.append(f"--prompt={prompt}")
        TerminalNotes(run_dir).begin(
            port=port,
            password=password,
            prompt=prompt,
            goes_on=bool(session_id),
            model=spec.model or "",
            message=_message_id(),
        )
        env = {
            "OPENCODE_SERVER_USERNAME": USER,
            "OPENCODE_SERVER_PASSWORD": password,
            # Each start unpacks a library of 14 MB, which nobody would take out of /tmp again.
            "BUN_TMPDIR": str(run_dir),
        }
        return Launch(
            argv=tuple(argv),
            env={**with_configuration(spec, config), **env},
            cwd=spec.workspace,
            session_id=session_id,
        )

    def watch(
        self, *, run_dir: Path, workspace: str, env: Mapping[str, str], conversation: str | None
    ) -> "OpencodeWatch":
        """Return what follows an opencode."""
        return OpencodeWatch(TerminalNotes(run_dir), env, conversation)

    def transcript(
        self, conversation: str, *, workspace: str, env: Mapping[str, str]
    ) -> OpencodeTranscript:
        """Return the record of a conversation."""
        return OpencodeTranscript(conversation, env)

    def places(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the part of its environment that says where it keeps its files."""
        return {name: env[name] for name in ("HOME", "XDG_DATA_HOME", "OPENCODE_DB") if name in env}


class OpencodeWatch(NotedWatch):
    """What opencode says on its port: which conversations are at work, and what it asks.

    Its title alone tells that its screen is drawn.
    """

    def __init__(
        self, notes: TerminalNotes, env: Mapping[str, str], conversation: str | None
    ) -> None:
        super().__init__(notes, conversation)
        self._env, about = env, self._about
        self._server = LocalServer(count(about.get("port")), USER, text(about.get("password")))
        self._prompt = text(about.get("prompt"))
        """What it was started with, until it has taken that up."""
        self._is_connected = self._is_titled = False
        self._busy: set[str] = set()
        self._asked: dict[str, str] = {}
        """What it asks, each by the name of the request."""
        self._requests: dict[str, PermissionEvent] = {}
        """Those that are for a permission."""
        self._is_main: dict[str, bool] = {}
        """Whether a conversation is no subagent's."""

    @property
    def activity(self) -> Activity:
        """What it does: it is idle only as long as it can be asked, and nothing was typed."""
        if not self._is_connected:
            return "unknown"
        if self._asked:
            return "waiting"
        if self._busy:
            return "busy"
        may_rest = self.is_ready and not (self._prompt or self._is_touched)
        return "idle" if may_rest else "unknown"

    @property
    def transcript(self) -> OpencodeTranscript | None:
        """The record of the conversation that is open, once it has one."""
        return OpencodeTranscript(self.conversation, self._env) if self.conversation else None

    @property
    def requests(self) -> Sequence[PermissionEvent]:
        """What it asks that its port takes an answer for; its questions are answered by keys."""
        return tuple(self._requests.values())

    async def answer(self, request: str, decision: Decision) -> None:
        """Answer a request for a permission; one that is answered already is not found."""
        reply = {"reply": "once"}
        if decision.verdict == "deny":
            reply = {"reply": "reject", "message": decision.message}
        await self._server.post(f"/permission/{quote(request, safe='')}/reply", reply)

    def title(self, text: str) -> None:
        """Take the title, which says that its screen is drawn."""
        self._is_titled |= text.startswith(_TITLES)
        self._tell()

    def typed(self) -> None:
        """Note that a person has typed: a menu may be open, of which it says nothing."""
        if self.activity == "idle":
            self._touch(True)
        self._tell()

    async def look(self) -> None:
        """Follow its events as long as the connection holds."""
        try:
            async with self._server.events("/event", silent_s=SILENT_S) as events:
                await self._see()
                self._is_connected = True
                self._tell()
                await self._see_prompt()
                async for event in events:
                    await self._take(mapping(event))
                    self._tell()
        except OSError:  # not yet, no more, or too slow
            pass
        finally:
            self._is_connected = False

    async def _see(self) -> None:
        """Take how it is now; raises `OSError` where a version doesn't say so."""
        status = await self._server.get("/session/status")
        asked = [await self._server.get(path) for path in ("/permission", "/question")]
        if not isinstance(status, dict) or not all(isinstance(each, list) for each in asked):
            raise OSError("opencode doesn't say what it does")
        self._busy = {id_ for id_, each in status.items() if mapping(each).get("type") != "idle"}
        requests = [request for each in asked for request in mappings(each)]
        self._asked = {text(request.get("id")): _words(request) for request in requests}
        self._requests = {text(each.get("id")): _request(each) for each in mappings(asked[0])}
        for id_ in self._busy:
            await self._work(id_)

    async def _take(self, event: dict[str, Any]) -> None:
        about = mapping(event.get("properties"))
        session = text(about.get("sessionID"))
        match event.get("type"):
            case "session.created":
                is_main = not mapping(about.get("info")).get("parentID")
                self._is_main[session] = is_main
                if is_main:
                    self._open(session)
            case "session.status" if mapping(about.get("status")).get("type") != "idle":
                if session not in self._busy:  # one that works on is not on the screen by that
                    self._busy.add(session)
                    await self._work(session)
            case "session.status" | "session.idle" | "session.deleted":
                self._busy.discard(session)
            case "permission.asked" | "question.asked" as kind:
                self._asked[text(about.get("id"))] = _words(about)
                if kind == "permission.asked":
                    self._requests[text(about.get("id"))] = _request(about)
            case "permission.replied" | "question.replied" | "question.rejected":
                self._asked.pop(text(about.get("requestID")), None)
                self._requests.pop(text(about.get("requestID")), None)

    async def _work(self, session: str) -> None:
        """Note that a conversation is at work: the one on the screen, or a subagent of it."""
        self._touch(False)
        self._take_up()
        if session not in self._is_main and _ID.fullmatch(session):
            info = mapping(await self._server.get(f"/session/{session}"))
            self._is_main[session] = bool(info) and not info.get("parentID")
        if self._is_main.get(session):
            self._open(session)

    def _open(self, session: str) -> None:
        if session != self.conversation and _ID.fullmatch(session):
            self._opened(session)

    async def _see_prompt(self) -> None:
        """Check whether it has taken up the prompt of its start; else send that.

        It may have done that before anybody was there to hear of it.
        """
        if not self._prompt:
            return
        if self._about.get("goes_on"):
            has_it = await self._has_message()
        else:
            since_ms = count(self._about.get("began_ns")) // 1_000_000
            begun = await asyncio.to_thread(begun_with, self._prompt, since_ms, self._env)
            has_it = begun is not None
            if begun:
                self._open(begun)
        if has_it:
            self._take_up()
            self._tell()

    async def _has_message(self) -> bool:
        """Send the prompt if it isn't there yet; return whether it was."""
        path, message = f"/session/{self.conversation}", text(self._about.get("message"))
        if await self._server.get(f"{path}/message/{message}") is not None:
            return True
        provider, slash, model = text(self._about.get("model")).partition("/")
        chosen = {"model": {"providerID": provider, "modelID": model}} if slash else {}
        said = [{"type": "text", "text": self._prompt}]
        await self._server.post(
            f"{path}/prompt_async", {"messageID": message, "parts": said, **chosen}
        )
        return False

    def _take_up(self) -> None:
        if self._prompt:
            self._prompt = ""
            self._notes.add(prompt="")

    def _tell(self) -> None:
        self.known.is_ready |= self._is_connected and self._is_titled
        self.known.waiting_for = next(iter(self._asked.values()), "")
        self.tell()


def _request(request: Mapping[str, Any]) -> PermissionEvent:
    """Return what it asks permission for: a tool with what it would do, or with its patterns."""
    given = mapping(request.get("metadata")) or {"patterns": request.get("patterns")}
    return PermissionEvent(text(request.get("id")), text(request.get("permission")), given)


def _words(request: Mapping[str, Any]) -> str:
    """Return what is asked, in a few words."""
    if questions := mappings(request.get("questions")):
        return telling({"text": questions[0].get("question")})
    given = mapping(request.get("metadata")) or {"pattern": request.get("patterns")}
    return f"{text(request.get('permission'))}: {telling(given)}".removesuffix(": ")


def _server(server: McpServerConfig, run_dir: Path) -> dict[str, Any]:
    """Return an MCP server as opencode's configuration describes one."""
    if server.url is not None:
        return {"type": "remote", "url": server.url, "headers": dict(server.headers)}
    env = server_environment(server, run_dir)
    command = [server.command, *server.args]
    return {"type": "local", "command": command, "environment": env}


def _refused(rules: Any) -> Any:
    """Return rules that refuse what they would ask for."""
    if isinstance(rules, dict):
        return {name: _refused(rule) for name, rule in rules.items()}
    return "deny" if rules == "ask" else rules


def _free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind((HOST, 0))
        return int(chosen.getsockname()[1])


def _message_id() -> str:
    """Return a name for a message that is behind all that there are: it begins with the time."""
    signs = string.ascii_letters + string.digits
    moment = (now_ms() << 12) % (1 << 48)
    return f"msg_{moment:012x}" + "".join(secrets.choice(signs) for _ in range(14))
