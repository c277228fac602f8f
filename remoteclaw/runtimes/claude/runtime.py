"""The runtime of Claude Code, over its stream-json protocol on standard input and output.

Secrets are sent over the pipes (system prompt, MCP servers) or in the environment, never in argv.
No file of the user is edited. Claude obeys the settings of a workspace only if it is trusted.
"""

import asyncio
import base64
import contextlib
import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from remoteclaw.errors import AgentUnavailable, AsideFailed, ErrorCategory, classify_error
from remoteclaw.events import AsideAnswer, Compacted, ContextSize
from remoteclaw.host.environment import inherit
from remoteclaw.messages import Image
from remoteclaw.protocols import AgentPipes, AgentSpec, Capabilities, Launch, Remedies
from remoteclaw.runtimes.agent import CliProcess
from remoteclaw.runtimes.base import BaseRuntime, json_file, split_note, with_point
from remoteclaw.runtimes.claude.aside import ClaudeAside, ClaudeContext
from remoteclaw.runtimes.claude.failure import error_text
from remoteclaw.runtimes.claude.hook import hooks_of
from remoteclaw.runtimes.claude.launch import (
    PLANNING,
    SETTINGS,
    common_options,
    environment_of,
    ruling_options,
    server_of,
)
from remoteclaw.runtimes.claude.peer import ClaudePeer
from remoteclaw.runtimes.claude.terminal import ClaudeTerminal
from remoteclaw.runtimes.claude.transcript import NOTHING, end_before, file_of, projects_of
from remoteclaw.runtimes.claude.turn import ClaudeConversation, ClaudeTurn
from remoteclaw.runtimes.wire import UUID, mapping, text

#: The longest wait for claude's MCP servers, in seconds. Claude itself waits 30 s for each server,
#: then continues without it and reports that.
MCP_START_S = 60.0
#: The number of retries of a failed request to the model, unless the environment sets it.
#: Claude's default of 10 keeps a person waiting for three minutes; 4 take about 8 seconds.
MAX_RETRIES = "4"
#: Claude summarizes no conversation that is shorter than this, in tokens: its smallest window is
#: 100,000, of which it keeps a third free.
MIN_COMPACTED = 50_000
#: The longest wait for the size of the conversation, in seconds; it comes within 0.1 s.
CONTEXT_S = 2.0
#: What claude says about a conversation that is too short for a summary.
_TOO_SHORT = re.compile(r"(Error: )?(No|Not enough) messages to compact")
#: The command for plan mode, which claude itself offers only in its terminal.
PLAN_COMMAND = "/plan"
PLAN_USAGE = "Say what is to be planned: `/plan TASK`."

log = logging.getLogger(__name__)


class ClaudeRuntime(BaseRuntime):
    """The runtime of Claude Code."""

    name = "claude"
    command = ("claude",)
    capabilities = Capabilities(
        steers=True,
        explains_denial=True,
        takes_commands=True,
        reports_cost=True,
        forks=True,
        has_points=True,
        asides="copy",
        compacts=True,
        keeps_on_request=True,
        compact_at=0.75,
        rules=frozenset(
            ("Bash", "Edit", "Read", "WebFetch", "WebFetch(domain)", "WebSearch", "mcp")
        ),
        tested="2.1.197",
    )
    remedies = Remedies(
        install="npm install -g @anthropic-ai/claude-code",
        sign_in="run `claude auth login`",
        keys=("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
        models="`claude`, then /model",
    )
    natives = ("@anthropic-ai/claude-code-linux-*/claude",)
    terminal = ClaudeTerminal()

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that claude needs: the common ones, its settings, provider keys."""
        prefixes = ["ANTHROPIC_", "CLAUDE_", "DISABLE_", "MCP_"]
        if inherited.get("CLAUDE_CODE_USE_BEDROCK"):
            prefixes.append("AWS_")
        if inherited.get("CLAUDE_CODE_USE_VERTEX"):
            prefixes += ["GOOGLE_", "VERTEX_", "CLOUD_ML_"]
        # Claude sets these for its shells. If they are inherited, it believes that it is nested.
        nesting_variables = (
            "CLAUDE_CODE_ENTRYPOINT",
            "CLAUDE_CODE_SSE_PORT",
            "CLAUDE_CODE_SESSION_ID",
        )
        env = inherit(inherited, prefixes=prefixes, without=nesting_variables)
        env.setdefault("CLAUDE_CODE_MAX_RETRIES", MAX_RETRIES)
        # Claude's own timers would begin turns whose output no worker reads.
        env.setdefault("CLAUDE_CODE_DISABLE_CRON", "1")
        # Makes claude wait up to 5 s for the user's own MCP servers, so that the first turn has
        # them.
        env.setdefault("MCP_CONNECTION_NONBLOCKING", "0")
        # The git status at the beginning of each prompt would break the prompt cache.
        env.setdefault("CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS", "1")
        return env

    def signed_in(self, env: Mapping[str, str]) -> str:
        """Return the account and its organization, each with its own plan, that claude noted."""
        directory = env.get("CLAUDE_CONFIG_DIR") or env.get("HOME") or "~"
        noted = json_file(Path(directory).expanduser() / ".claude.json")
        account = mapping(noted.get("oauthAccount"))
        ids = (text(account.get("accountUuid")), text(account.get("organizationUuid")))
        return "/".join(filter(None, ids))

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line, with the id of a new conversation if one is begun."""
        new_id = str(uuid.uuid4())
        argv = [*spec.command, "-p", "--verbose", "--include-partial-messages"]
        argv += ["--input-format", "stream-json", "--output-format", "stream-json"]
        argv += ["--permission-prompt-tool", "stdio", "--replay-user-messages"]
        # The user's own settings may make claude ask less (`defaultMode`).
        argv += ["--permission-mode", "default"]
        point, refused = _marks_of(spec.note)
        if session_id and spec.repeats and not fork:
            # The refused message stays in claude's conversation, so it would be there twice.
            point = end_before(refused, file_of(projects_of(spec.env), session_id)) or ""
            session_id = session_id if point != NOTHING else None
        if session_id:
            argv.append(f"--resume={session_id}")
        # Without a point, a copy made during a turn has half of that turn, and an invented reply.
        if session_id and (fork or spec.repeats) and UUID.fullmatch(point):
            argv.append(f"--resume-session-at={point}")
        if fork:
            argv.append("--fork-session")
        if fork or not session_id:
            argv.append(f"--session-id={new_id}")
        argv += [*ruling_options(spec), *common_options(spec, run_dir)]
        return Launch(
            argv=tuple(argv),
            env=environment_of(spec),
            cwd=spec.workspace,
            session_id=new_id if fork or not session_id else session_id,
        )

    def process(
        self, pipes: AgentPipes, spec: AgentSpec, *, session_id: str | None, run_dir: Path
    ) -> "ClaudeProcess":
        """Return the process before its handshake."""
        return ClaudeProcess(pipes, spec, session_id)


class ClaudeProcess(CliProcess[dict[str, Any], ClaudeTurn]):
    """One claude process, between and during turns."""

    name = "claude"

    def __init__(self, pipes: AgentPipes, spec: AgentSpec, session_id: str | None) -> None:
        self._peer = ClaudePeer(pipes)
        super().__init__(pipes, self._peer)
        self._spec = spec
        self._conversation = ClaudeConversation(session_id)
        self._conversation.point, _ = _marks_of(spec.note)
        self._conversation.default_model = split_note(spec.note)[0].removeprefix(PLANNING)
        self._conversation.has_default_model = spec.model is None

    @property
    def session_id(self) -> str | None:
        """Claude's id of the conversation, as for `claude --resume`."""
        return self._conversation.session_id

    @property
    def note(self) -> str:
        """Claude's default model, whether it is in plan mode, its point and its refused message."""
        planning = PLANNING if self._conversation.is_planning else ""
        note = f"{planning}{self._conversation.default_model}"
        marks = f"{self._conversation.point} {self._conversation.refused}"
        return with_point(note, marks.rstrip())

    # -- start and park ------------------------------------------------------------------------

    async def handshake(
        self, spec: AgentSpec, session_id: str | None, run_dir: Path, *, fork: bool
    ) -> None:
        """Send the settings of the process, and wait only for its MCP servers.

        Claude processes `initialize` before the first message, so the answer, which takes 0.4 s, is
        not awaited.
        """
        hooks = hooks_of(spec)
        await self._peer.request("initialize", appendSystemPrompt=spec.system_prompt, **hooks)
        await self._peer.request("apply_flag_settings", settings=SETTINGS)
        if spec.note.startswith(PLANNING):
            await self._peer.set_mode("plan")
        has_model = spec.model or self._conversation.default_model
        if spec.note and not (fork or has_model):  # else claude takes the conversation's last model
            await self._choose(None)
        if spec.mcp_servers:
            await self._set_servers(spec, run_dir)

    async def _set_servers(self, spec: AgentSpec, run_dir: Path) -> None:
        servers = {name: server_of(server, run_dir) for name, server in spec.mcp_servers.items()}
        try:
            async with asyncio.timeout(MCP_START_S):
                answer = await self._call("mcp_set_servers", servers=servers)
        except TimeoutError:
            log.warning("claude's MCP servers were not ready after %d s", MCP_START_S)
            return
        for name, why in mapping(mapping(answer.get("response")).get("errors")).items():
            log.warning("claude could not connect MCP server %s: %s", name, why)
            self.missing_servers[name] = text(why)

    async def _call(self, subtype: str, **fields: Any) -> dict[str, Any]:
        """Send a control request between turns, and return the answer.

        Raises `AgentUnavailable` if claude reports a failure instead.
        """
        request_id = await self._peer.request(subtype, **fields)

        def is_answer(message: dict[str, Any]) -> bool:
            response = mapping(message.get("response"))
            return response.get("request_id") == request_id or message.get("type") == "result"

        message = await self._read_until(is_answer)
        if message.get("type") == "result":  # usually because the conversation is unknown
            why = error_text(message)
            category = classify_error(why)
            raise AgentUnavailable(f"claude did not start: {why}", category=category)
        return mapping(message.get("response"))

    async def _choose(self, model: str | None) -> bool:
        self._conversation.has_default_model = False
        name = model or self._conversation.default_model or await self._configured_model()
        answer = await self._call("set_model", model=name)
        if answer.get("subtype") == "error":
            why = text(answer.get("error"))
            raise AgentUnavailable(why, category=ErrorCategory.UNKNOWN_MODEL)
        self._conversation.has_default_model = model is None
        return True

    async def _configured_model(self) -> str:
        """Return the model of the user's settings, which claude leaves out of its default."""
        settings = mapping((await self._call("get_settings")).get("response"))
        effective = mapping(settings.get("effective"))
        of_environment = {**self._spec.env, **mapping(effective.get("env"))}.get("ANTHROPIC_MODEL")
        return text(of_environment) or text(effective.get("model")) or "default"

    def _state(self) -> dict[str, Any]:
        return {
            "session_id": self._conversation.session_id,
            "default_model": self._conversation.default_model,
            "is_planning": self._conversation.is_planning,
            "point": self._conversation.point,
            "last_request": self._peer.last_id,
            "totals": self._conversation.totals.state(),
            "context": self._conversation.context,
            "limit": self._conversation.limit,
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._conversation.session_id = state["session_id"]
        self._conversation.default_model = state["default_model"]
        self._conversation.has_default_model = self.model is None
        self._conversation.is_planning = state["is_planning"]
        self._conversation.point = state["point"]
        self._peer.last_id = state["last_request"]
        self._conversation.totals.restore(state["totals"])
        self._conversation.context = state["context"]
        self._conversation.limit = tuple(state["limit"])

    def _is_request(self, message: dict[str, Any]) -> bool:
        return message.get("type") == "control_request"

    async def _deny(self, message: dict[str, Any]) -> None:
        await self._peer.deny(message)

    def _observe(self, message: dict[str, Any]) -> None:
        self._conversation.note(message)

    # -- a turn --------------------------------------------------------------------------------

    async def _begin(self, prompt: str, images: Sequence[Image]) -> ClaudeTurn:
        turn = self._new_turn()
        await turn.ask(self._parts(prompt, images))
        return turn

    async def _problem_of(self, command: str) -> str:
        return PLAN_USAGE if command == PLAN_COMMAND else ""

    async def _begin_command(self, text: str) -> ClaudeTurn:
        name, _, rest = text.partition(" ")
        if name == PLAN_COMMAND:
            await self._peer.set_mode("plan")
            return await self._begin(rest, ())
        turn = self._new_turn()
        await turn.command(text)
        return turn

    def _new_turn(self) -> ClaudeTurn:
        unasked = self._spec.unasked_servers
        return ClaudeTurn(self._pipes, self._peer, self._conversation, unasked)

    def _new_aside(self) -> ClaudeAside:
        return ClaudeAside(self._peer, self._conversation)

    async def aside(self, prompt: str) -> AsideAnswer:
        """Ask a question during the turn and return its answer. Raises `AsideFailed`.

        In a turn that begins with a compaction, claude would summarize the conversation once more
        for each question. So a question about a long one waits until the turn's answer begins.
        """
        if self._is_in_turn:
            await self._turn_started.wait()
        if (turn := self._turn) and not 0 < self._conversation.context < MIN_COMPACTED:
            await turn.has_answer.wait()
        if turn and turn.has_compacted:
            raise AsideFailed("claude summarizes the conversation in this turn")
        return await super().aside(prompt)

    async def compact(self, keep: str = "") -> Compacted:
        """Have claude summarize its conversation, and return how that ended."""
        made = await super().compact(keep)
        is_empty = made.done is None and _TOO_SHORT.match(made.run.text) is not None
        return replace(made, is_empty=is_empty)

    async def context_size(self) -> ContextSize | None:
        """Return the size of the conversation.

        Claude, whose answer takes 30 to 90 ms, is asked only for what no turn has told.
        """
        conversation = self._conversation
        model, limit = conversation.limit
        if limit and model == self.model and conversation.context:
            return ContextSize(conversation.context, limit)
        if not conversation.tells_size:
            return None
        question = ClaudeContext(self._peer)
        with contextlib.suppress(AsideFailed, TimeoutError):
            async with asyncio.timeout(CONTEXT_S):
                await self._ask(question, "")
        conversation.tells_size = question.size is not None
        if question.size:
            conversation.limit = (self.model, question.size.limit)
        return question.size

    def _finish(self, number: int) -> None:
        if self._turn:
            self._turn.has_answer.set()
        super()._finish(number)

    def _parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        """Return the content blocks of a message."""
        return [*map(_image_block, images), {"type": "text", "text": prompt}]


def _marks_of(note: str) -> tuple[str, str]:
    """Return the point in a note, and the id of the message that the model has refused last."""
    _, marks = split_note(note)
    point, _, refused = marks.partition(" ")
    return point, refused


def _image_block(image: Image) -> dict[str, Any]:
    data = base64.b64encode(image.data).decode()
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": image.mime_type, "data": data},
    }
