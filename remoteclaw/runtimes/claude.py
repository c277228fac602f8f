"""Claude Code, over its own long-lived protocol: stream-json on standard input and output.

Everything that holds a secret (system prompt, MCP servers) goes over the wire, nothing into argv,
and no file of the user's is edited. What a workspace says about claude is not obeyed.
"""

import asyncio
import base64
import logging
import math
import re
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.errors import AgentUnavailable, ErrorCategory, classify_end, classify_error
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    AgentUsage,
    AnswerEndEvent,
    DoneEvent,
    ErrorEvent,
    PermissionEvent,
    SteeredEvent,
    TextEvent,
)
from remoteclaw.messages import Image, McpServerConfig
from remoteclaw.protocols import (
    FILES,
    SIDE_EFFECTS_FILE,
    AgentPipes,
    AgentProcess,
    AgentSpec,
    Capabilities,
    Decision,
    Launch,
)
from remoteclaw.runtimes.claude_failure import Failures, complaint
from remoteclaw.runtimes.claude_turn import Activity, Exchange, TurnReading
from remoteclaw.runtimes.environment import inherit
from remoteclaw.runtimes.programs import find_program
from remoteclaw.runtimes.wire import count, decode, mapping, mappings, text

__all__ = ["ClaudeProcess", "ClaudeRuntime"]

#: How long claude may take until its MCP servers are connected, in seconds. It gives each of them
#: 30 s itself and then goes on without, saying so.
START_S = 60.0
#: How often claude repeats a failed request to its model, unless the environment says otherwise.
#: Its own default of 10 keeps a person waiting for three minutes; 4 take about 8 seconds.
MAX_RETRIES = "4"
#: How long claude may do nothing after a turn of its own before it takes up our message, in
#: seconds. It needs milliseconds; a claude that never does would hold its worker for good.
CLAIM_S = 10.0
#: How long it may do nothing before it takes up a message that it was given in mid-turn, in
#: seconds: hooks of the user's run before, for a minute at most unless told otherwise.
QUEUED_CLAIM_S = 120.0
#: What stands behind every message, as a block of text of its own. Claude takes only the last
#: block for what somebody typed: there `@/any/file` is replaced by the file, whatever the agent is
#: allowed to read, and `/name` is a command.
CLOSING = "(End of the message.)"

#: What claude is told that asks for a permission outside of a turn.
_NOBODY_LISTENS = "Nobody can be asked for a permission now: go on without it."
#: What it is told that gives a tool what we can't repeat to it.
_TOO_DEEP = "The tool's input is nested too deeply: use it with less in it."
_UNREADABLE = "claude printed a line that can't be read, or was too long"

#: The ids of claude's conversations. Nothing else goes into Redis and onto command lines as one.
_SESSION_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

#: The names of models that claude is asked for, as it gives them itself: `claude-opus-4-8[1m]`.
_MODEL = re.compile(r"[A-Za-z0-9][\w.:/@-]*(\[\w+\])?")

log = logging.getLogger(__name__)


class ClaudeRuntime:
    """How to start Claude Code and how to take over a running one."""

    name = "claude"
    command = ("claude",)
    #: It makes large ones smaller itself, and puts a note in place of what is no picture.
    image_types = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
    capabilities = Capabilities(
        steers=True, explains_denial=True, reports_cost=True, forks=True, tested="2.1.197"
    )
    natives = ("@anthropic-ai/claude-code-linux-*/claude",)

    def find(self, program: str, path: str | None) -> str | None:
        """Return the program to start: the real one, where npm's script would start that."""
        return find_program(program, path=path, natives=self.natives)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return what claude needs of our environment: its own settings and its provider's keys."""
        prefixes = ["ANTHROPIC_", "CLAUDE_", "DISABLE_", "MCP_"]
        if inherited.get("CLAUDE_CODE_USE_BEDROCK"):
            prefixes.append("AWS_")
        if inherited.get("CLAUDE_CODE_USE_VERTEX"):
            prefixes += ["GOOGLE_", "VERTEX_", "CLOUD_ML_"]
        # Set by a claude for the shells it starts; another claude would take itself for nested.
        markers = ("CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SESSION_ID")
        env = inherit(inherited, prefixes=prefixes, without=markers)
        env.setdefault("CLAUDE_CODE_MAX_RETRIES", MAX_RETRIES)
        # What claude says when a timer of its own goes off, nobody hears: it is offered none.
        env.setdefault("CLAUDE_CODE_DISABLE_CRON", "1")
        # The first turn has the user's own MCP servers: claude waits for them, 5 s at most.
        env.setdefault("MCP_CONNECTION_NONBLOCKING", "0")
        # Else each process begins its prompt with the workspace's git status of that moment.
        env.setdefault("CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS", "1")
        return env

    def fitted(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec as it is."""
        return spec

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line; a new conversation gets an id of our choice, known from now."""
        fresh_id = str(uuid.uuid4())
        argv = [*spec.command, "-p", "--verbose", "--include-partial-messages"]
        argv += ["--input-format", "stream-json", "--output-format", "stream-json"]
        argv += ["--permission-prompt-tool", "stdio", "--replay-user-messages"]
        # The workspace's only if it is trusted: its hooks run whatever the agent may do.
        argv += [f"--setting-sources={'user,project,local' if spec.trust_workspace else 'user'}"]
        if session_id:
            argv.append(f"--resume={session_id}")
        if fork:
            argv.append("--fork-session")
        if fork or not session_id:
            argv.append(f"--session-id={fresh_id}")
        # A resumed claude takes the model's plain name from its transcript, without its context.
        if model := spec.model or (spec.note if _MODEL.fullmatch(spec.note) else ""):
            argv += ["--model", model]
        if not spec.inherit_mcp:
            argv.append("--strict-mcp-config")
        allowed = _reading(run_dir / FILES)
        if spec.permissions != "deny":
            allowed += [f"mcp__{name}" for name in spec.mcp_servers]
        argv += ["--allowedTools", ",".join(allowed)]
        return Launch(
            argv=tuple(argv),
            env=spec.env,
            cwd=spec.workspace,
            session_id=fresh_id if fork or not session_id else session_id,
        )

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
        """Return a claude that is ready for a turn; a new one gets its prompt and servers first."""
        process = ClaudeProcess(pipes, session_id=session_id)
        if parked_state is not None:
            process.restore(parked_state)
        else:
            await process.greet(spec.system_prompt, spec.mcp_servers, run_dir)
        return process


class ClaudeProcess:
    """One claude, between and during turns."""

    def __init__(self, pipes: AgentPipes, *, session_id: str | None) -> None:
        self._pipes = pipes
        self._session_id = session_id
        self._model = ""
        self._last_request = 0
        self._cost_so_far = 0.0
        self._is_busy = False
        self._is_asked = asyncio.Event()
        self._steered: dict[str, str] = {}
        """Messages given to claude in mid-turn that it has not taken up: their names, by id."""
        self._asked: dict[str, dict[str, Any]] = {}
        """Requests for a permission that were not answered yet, by their ids."""
        self._denied: list[str] = []
        """Tools that this turn was denied."""
        self._activity = Activity()
        self._failures = Failures()
        self.unknown_lines = 0
        """Lines of a kind that this version does not know; they are skipped."""

    @property
    def session_id(self) -> str | None:
        """Claude's id of the conversation; `claude --resume` takes the same."""
        return self._session_id

    @property
    def note(self) -> str:
        """The model that claude has named: another process asks for the same."""
        return self._model

    # -- coming and going ----------------------------------------------------------------------

    async def greet(
        self, system_prompt: str, servers: Mapping[str, McpServerConfig], run_dir: Path
    ) -> None:
        """Send what is fixed for the process's life; wait for MCP servers, for nothing else.

        Claude reads `initialize` before the first message in any case, so its answer, which comes
        after 0.4 s, is not waited for.
        """
        await self._request({"subtype": "initialize", "appendSystemPrompt": system_prompt})
        if not servers:
            return
        request_id = await self._request(
            {
                "subtype": "mcp_set_servers",
                "servers": {name: _server(server, run_dir) for name, server in servers.items()},
            }
        )
        try:
            async with asyncio.timeout(START_S):
                await self._answer(request_id)
        except TimeoutError:
            log.warning("claude's MCP servers were not ready after %d s", START_S)

    async def _answer(self, request_id: str) -> None:
        """Read until a control request is answered; what it says of failed servers is logged."""
        while (line := await self._pipes.read()) is not None:
            message = decode(line)
            if message is None:
                raise AgentUnavailable(_UNREADABLE, category=ErrorCategory.FATAL)
            if message.get("type") == "result":
                raise self._refusal(message)
            response = mapping(message.get("response"))
            if response.get("request_id") == request_id:
                for name, why in mapping(mapping(response.get("response")).get("errors")).items():
                    log.warning("claude could not connect MCP server %s: %s", name, why)
                return
        raise AgentUnavailable(
            f"claude ended while it started: {self._pipes.last_errors()}",
            category=classify_end(self._pipes.last_errors()),
        )

    @staticmethod
    def _refusal(message: dict[str, Any]) -> AgentUnavailable:
        """Return why claude gave up at once: for a conversation it doesn't know, mostly."""
        why = complaint(message)
        return AgentUnavailable(f"claude did not start: {why}", category=classify_error(why))

    def parked_state(self) -> dict[str, Any] | None:
        """Return what the next driver must know; None if claude is busy, or will be by itself.

        With nobody to read it, to answer its questions and to hold its session's lease, claude
        must not take a turn: one whose background task still runs can't be parked.
        """
        if self._is_busy:
            return None
        for line in self._pipes.take_unread():
            message = decode(line) or {}
            if message.get("type") == "control_request":
                return None
            self._activity.note(message)
        if self._activity.may_speak or not self._pipes.is_clean:
            return None
        return {
            "session_id": self._session_id,
            "model": self._model,
            "last_request": self._last_request,
            "cost_so_far": self._cost_so_far,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another driver left off."""
        self._session_id = state["session_id"]
        self._model = state["model"]
        self._last_request = state["last_request"]
        self._cost_so_far = state["cost_so_far"]

    # -- a turn --------------------------------------------------------------------------------

    async def turn(
        self, prompt: str, images: Sequence[Image] = ()
    ) -> AsyncGenerator[AgentEvent, None]:
        """Ask claude; yield what it says, with exactly one `DoneEvent`, last."""
        self._is_busy = True
        self._denied, self._asked = [], {}
        self._failures.begin()
        exchange = await self._ask(prompt, images)
        self._is_asked.set()
        give_up_at: float | None = None
        before: AgentRunResult | None = None  # what earlier answers of this turn came to
        while True:
            # While claude does something it may take its time; only to begin it may not.
            try:
                line = await self._read(None if self._activity.is_in_turn else give_up_at)
            except TimeoutError:
                if before is not None:
                    log.warning("claude did not take up a message that it was given in mid-turn")
                    self._is_asked.clear()
                    yield DoneEvent(before, ends_agent=True)
                    return
                yield _unfit("claude answered something else, and never this message")
                break
            if line is None:
                errors = self._pipes.last_errors()
                yield ErrorEvent(
                    ErrorCategory.DIED,
                    f"claude ended in mid-turn: {errors or 'it said nothing about that'}",
                )
                break
            message = decode(line)
            if message is None:
                # It may have been a question that claude waits with, or the end of the turn.
                yield _unfit(_UNREADABLE)
                break
            is_unasked = self._activity.is_unasked
            self._activity.note(message)
            self._failures.note(message)
            if (message.get("type"), message.get("subtype")) == ("system", "init"):
                self._model = text(message.get("model"))
            if key := self._steered.pop(text(message.get("uuid")), None):
                yield SteeredEvent(key)
            if message.get("type") == "control_request":
                if wanted := await self._permission_wanted(message):
                    yield wanted
            elif message.get("type") == "control_cancel_request":
                self._asked.pop(text(message.get("request_id")), None)
            elif message.get("type") != "result":
                events = exchange.read(message, is_unasked=is_unasked)
                if events is None:
                    self.unknown_lines += 1
                if events and (key := self._steered.pop(exchange.message_id, None)):
                    yield SteeredEvent(key)  # it is repeated only behind what answers it
                for event in events or ():
                    yield event
            elif exchange.is_answered_by(message, is_unasked=is_unasked):
                if key := self._steered.pop(exchange.message_id, None):
                    yield SteeredEvent(key)  # a hook of the user's refused it
                said, run = self._result(message, exchange.reading)
                run = before.followed_by(run) if before else run
                is_over = not self._steered or isinstance(said, ErrorEvent)
                if is_over:
                    self._is_asked.clear()
                    self._is_busy = False  # the consumer may stop here
                if said:
                    yield said
                if is_over:
                    # With a question open, it may go on with whatever it asked about.
                    yield DoneEvent(run, ends_agent=bool(self._asked))
                    return
                # What came after the last tool gets an answer of its own, right behind this one.
                yield AnswerEndEvent()
                before = run
                give_up_at = asyncio.get_running_loop().time() + QUEUED_CLAIM_S
                exchange = Exchange(next(iter(self._steered)), holds_back=self._activity.may_speak)
            else:
                log.info("claude took a turn of its own, and what it said is dropped")
                give_up_at = asyncio.get_running_loop().time() + CLAIM_S
                for event in exchange.drop():
                    yield event
        self._is_asked.clear()
        run = AgentRunResult(text=exchange.reading.text, session_id=self._session_id)
        yield DoneEvent(before.followed_by(run) if before else run)

    async def _ask(self, prompt: str, images: Sequence[Image]) -> Exchange:
        """Send a message, behind everything that claude has said up to now."""
        # That belongs to nobody: requests are denied, text is dropped.
        for line in self._pipes.take_unread():
            message = decode(line) or {}
            self._activity.note(message)
            await self._deny_if_request(message)
        holds_back = self._activity.may_speak or not self._pipes.is_clean
        self._activity.is_asked()
        exchange = Exchange(str(uuid.uuid4()), holds_back=holds_back)
        await self._say(exchange.message_id, prompt, images)
        return exchange

    async def _say(self, message_id: str, prompt: str, images: Sequence[Image]) -> None:
        content = [*map(_image_block, images)]
        content += [{"type": "text", "text": part} for part in (prompt, CLOSING)]
        message = {"role": "user", "content": content}
        await self._send({"type": "user", "uuid": message_id, "message": message})

    async def _read(self, until: float | None) -> bytes | None:
        async with asyncio.timeout_at(until):
            return await self._pipes.read()

    async def steer(self, prompt: str, key: str, images: Sequence[Image] = ()) -> None:
        """Give claude a message while it works.

        While it uses a tool, it hears of the message with the tool's result; while it writes, it
        answers it in a turn of its own right behind, which counts as a part of ours.
        """
        await self._is_asked.wait()
        message_id = str(uuid.uuid4())
        self._steered[message_id] = key
        await self._say(message_id, prompt, images)

    async def interrupt(self) -> None:
        """Stop the running turn; claude answers within milliseconds, also while it runs a tool."""
        if self._is_busy:
            await self._request({"subtype": "interrupt"})

    def _result(
        self, message: dict[str, Any], reading: TurnReading
    ) -> tuple[TextEvent | ErrorEvent | None, AgentRunResult]:
        """Translate the last line of a turn; return also what it alone says.

        `subtype` is "success" for most failures, so `is_error` and `terminal_reason` decide.
        A claude that failed with a message still waiting would take that up by itself.
        """
        event: TextEvent | ErrorEvent | None = None
        aborted = text(message.get("terminal_reason")).startswith("aborted")
        answer = reading.text
        if message.get("is_error") and not aborted:
            event = self._failures.of(message, ends_agent=bool(self._steered))
        elif aborted and self._steered:
            why = "claude was stopped with a message still waiting"
            event = ErrorEvent(ErrorCategory.ABORTED, why, ends_agent=True)
        elif not answer and not aborted and (answer := text(message.get("result"))):
            # What claude says without a model comes in the result alone.
            event = TextEvent(answer)
        # A conversation that claude doesn't know is answered under a new id: not the one to keep.
        if not message.get("errors"):
            self._keep_session_id(text(message.get("session_id")))
        usage = mapping(message.get("usage"))
        return event, AgentRunResult(
            text=answer,
            session_id=self._session_id,
            duration_ms=count(message.get("duration_ms")),
            usage=AgentUsage(
                input_tokens=count(usage.get("input_tokens")),
                output_tokens=count(usage.get("output_tokens")),
                cache_read_tokens=count(usage.get("cache_read_input_tokens")),
                cache_write_tokens=count(usage.get("cache_creation_input_tokens")),
            ),
            aborted=aborted,
            total_cost_usd=self._cost_of_turn(message.get("total_cost_usd")),
            num_turns=count(message.get("num_turns")),
            stop_reason=text(message.get("stop_reason")) or None,
            permission_denials=tuple(self._denied),
        )

    def _keep_session_id(self, session_id: str) -> None:
        if _SESSION_ID.fullmatch(session_id):
            self._session_id = session_id
        elif session_id:
            log.warning("claude named a conversation in a way that is no id, and is not believed")

    def _cost_of_turn(self, total: Any) -> float | None:
        """Return what was added to the process's total, which is what claude reports.

        A turn of claude's own, which has no answer that it could stand with, counts to the next.
        """
        if not isinstance(total, int | float) or not math.isfinite(total):
            return None
        before, self._cost_so_far = self._cost_so_far, float(total)
        return max(0.0, total - before)

    # -- permissions ---------------------------------------------------------------------------

    async def _permission_wanted(self, message: dict[str, Any]) -> PermissionEvent | None:
        request = mapping(message.get("request"))
        if request.get("subtype") != "can_use_tool":
            await self._refuse_request(message)
            return None
        request_id = text(message.get("request_id"))
        self._asked[request_id] = message
        tool = text(request.get("tool_name"))
        return PermissionEvent(request_id, tool, mapping(request.get("input")))

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a request for a permission; one that claude took back is not answered."""
        message = self._asked.pop(permission_id, None)
        if message is None:
            return
        request = mapping(message.get("request"))
        if decision.verdict == "deny":
            self._denied.append(text(request.get("tool_name")))
            await self._respond(message, {"behavior": "deny", "message": decision.message})
            return
        answer: dict[str, Any] = {
            "behavior": "allow",
            "updatedInput": mapping(request.get("input")),
        }
        if decision.verdict == "allow_session":
            answer["updatedPermissions"] = _rules_for_session(request)
        try:
            await self._respond(message, answer)
        except TypeError:  # orjson reads what is nested deeper than it writes
            self._denied.append(text(request.get("tool_name")))
            await self._respond(message, {"behavior": "deny", "message": _TOO_DEEP})

    async def _deny_if_request(self, message: dict[str, Any]) -> None:
        if message.get("type") != "control_request":
            return
        if mapping(message.get("request")).get("subtype") == "can_use_tool":
            await self._respond(message, {"behavior": "deny", "message": _NOBODY_LISTENS})
        else:
            await self._refuse_request(message)

    async def _refuse_request(self, message: dict[str, Any]) -> None:
        """Answer a request that we don't know: claude would wait for ever."""
        response = {
            "subtype": "error",
            "request_id": message.get("request_id"),
            "error": "not supported",
        }
        await self._send({"type": "control_response", "response": response})

    async def _respond(self, message: dict[str, Any], answer: dict[str, Any]) -> None:
        response = {
            "subtype": "success",
            "request_id": message.get("request_id"),
            "response": answer,
        }
        await self._send({"type": "control_response", "response": response})

    # -- the wire ------------------------------------------------------------------------------

    async def _request(self, request: dict[str, Any]) -> str:
        self._last_request += 1
        request_id = f"rc-{self._last_request}"
        await self._send({"type": "control_request", "request_id": request_id, "request": request})
        return request_id

    async def _send(self, message: dict[str, Any]) -> None:
        await self._pipes.write(orjson.dumps(message))


def _rules_for_session(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the suggested rules that allow this call again, none of them in a file of the user's.

    Claude suggests more beside them: to accept all edits from now on (`rm` among them), or to open
    another directory. A rule without content would allow the tool for whatever it is asked.
    """
    tool = text(request.get("tool_name"))
    return [
        {**one, "destination": "session"}
        for one in mappings(request.get("permission_suggestions"))
        if (one.get("type"), one.get("behavior")) == ("addRules", "allow")
        and all(
            rule.get("toolName") == tool and text(rule.get("ruleContent")).strip("*: ")
            for rule in mappings(one.get("rules"))
        )
    ]


def _unfit(why: str) -> ErrorEvent:
    """Return the end of a claude that can't be believed any more."""
    return ErrorEvent(ErrorCategory.FATAL, why, ends_agent=True)


def _image_block(image: Image) -> dict[str, Any]:
    data = base64.b64encode(image.data).decode()
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": image.mime_type, "data": data},
    }


def _reading(directory: Path) -> list[str]:
    """Return the rules that let claude read in a directory, whatever links lead there.

    With `--add-dir` it could as well, but would name the directory in its system prompt, and no
    other process' prompt would be like it.
    """
    return [f"Read(/{path}/**)" for path in dict.fromkeys((directory, directory.resolve()))]


def _server(server: McpServerConfig, run_dir: Path) -> dict[str, Any]:
    """Return an MCP server as claude wants it described."""
    if server.url is not None:
        return {"type": "http", "url": server.url, "headers": server.headers}
    env = {**server.env, "REMOTECLAW_SIDE_EFFECTS_FILE": str(run_dir / SIDE_EFFECTS_FILE)}
    return {"type": "stdio", "command": server.command, "args": list(server.args), "env": env}
