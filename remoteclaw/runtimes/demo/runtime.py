"""The runtime of the demo agent, which needs no installed CLI.

`command` in the configuration may name another program with the protocol of `agent.py`.
"""

import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remoteclaw.errors import ErrorCategory, classify_error
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    DoneEvent,
    ErrorEvent,
    SteeredEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.messages import Image
from remoteclaw.protocols import AgentPipes, AgentSpec, Capabilities, Decision, Launch
from remoteclaw.runtimes.agent import CliProcess, CliTurn
from remoteclaw.runtimes.asides import CliAside
from remoteclaw.runtimes.base import BaseRuntime
from remoteclaw.runtimes.wire import Lines, count, mapping, text

COMMAND = (sys.executable, "-I", "-S", str(Path(__file__).with_name("agent.py")))


class DemoRuntime(BaseRuntime):
    """The runtime of the demo agent."""

    name = "demo"
    command = COMMAND
    image_types: frozenset[str] = frozenset()
    capabilities = Capabilities(
        steers=True, explains_denial=True, asides="copy", chooses_model=False
    )

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line."""
        known_id = session_id or str(uuid.uuid4())
        argv = (*spec.command, "resume" if session_id else "start", known_id)
        return Launch(argv=argv, env=spec.env, cwd=spec.workspace, session_id=known_id)

    def process(
        self, pipes: AgentPipes, spec: AgentSpec, *, session_id: str | None, run_dir: Path
    ) -> "DemoProcess":
        """Return the process, which needs no handshake."""
        return DemoProcess(pipes, session_id)


class DemoAside(CliAside[dict[str, Any]]):
    """One question to the demo during its turn."""

    def __init__(self, lines: Lines) -> None:
        super().__init__()
        self._lines = lines
        self._id = uuid.uuid4().hex

    async def ask(self, prompt: str) -> None:
        """Send the question."""
        await self._lines.send({"type": "aside", "id": self._id, "prompt": prompt})

    async def take(self, message: dict[str, Any]) -> bool:
        """Handle the answer."""
        if message.get("type") != "aside" or message.get("id") != self._id:
            return False
        if error := text(message.get("error")):
            self.fail(error)
        else:
            self.succeed(text(message.get("text")))
        return True

    async def stop(self) -> None:
        """Do nothing: the demo answers at once."""


class DemoTurn(CliTurn[dict[str, Any]]):
    """One turn of the demo."""

    def __init__(self, pipes: AgentPipes, lines: Lines, session_id: str | None) -> None:
        super().__init__(pipes)
        self._lines = lines
        self._session_id = session_id
        self._steered: set[str] = set()
        """The keys of joining messages that the demo has neither taken up nor refused yet."""
        self._ending: list[AgentEvent] = []
        """The turn's last events, held back until the demo has answered all joining messages."""

    async def steer(self, parts: list[dict[str, Any]], key: str) -> None:
        """Send a message into the turn; the demo refuses one that arrives too late."""
        self._steered.add(key)
        await self._lines.send({"type": "steer", "id": key, "prompt": parts[0]["prompt"]})

    async def interrupt(self) -> None:
        """Stop the turn."""
        await self._lines.send({"type": "interrupt"})

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Do nothing: the demo asks for no permissions."""

    async def take(self, message: dict[str, Any]) -> list[AgentEvent]:
        """Return the events of a line."""
        tool_id = text(message.get("id"))
        match message.get("type"):
            case "text":
                return self._text.add(text(message.get("text")))
            case "thinking":
                return [ThinkingEvent(text(message.get("text")))]
            case "tool_use":
                name, arguments = text(message.get("name")), mapping(message.get("input"))
                return [ToolUseEvent(name, tool_id, arguments)]
            case "tool_result":
                return [ToolResultEvent(tool_id, text(message.get("output")))]
            case "steered" if tool_id in self._steered:
                self._steered.remove(tool_id)
                return [SteeredEvent(tool_id)]
            case "refused":
                self._steered.discard(tool_id)
            case "done":
                self._ending = self._done(message)
        return [] if self._steered else self._ending

    def _done(self, message: dict[str, Any]) -> list[AgentEvent]:
        done = DoneEvent(self.result(aborted=bool(message.get("aborted"))))
        if not (error := text(message.get("error"))):
            return [done]
        category = text(message.get("category"))
        is_named = category in set(ErrorCategory)
        failure = ErrorEvent(
            ErrorCategory(category) if is_named else classify_error(error),
            error,
            retry_at_ms=count(message.get("retry_at_ms")) or None,
        )
        return [failure, done]

    def result(self, *, aborted: bool = False) -> AgentRunResult:
        """Return the result of the turn so far."""
        return AgentRunResult(self._text.text, self._session_id, aborted=aborted)


class DemoProcess(CliProcess[dict[str, Any], DemoTurn]):
    """One demo process, between and during turns."""

    def __init__(self, pipes: AgentPipes, session_id: str | None) -> None:
        self._lines = Lines(pipes)
        super().__init__(pipes, self._lines)
        self._session_id = session_id

    @property
    def session_id(self) -> str | None:
        """The id of the conversation, which `DemoRuntime.launch()` has chosen."""
        return self._session_id

    async def handshake(
        self, spec: AgentSpec, session_id: str | None, run_dir: Path, *, fork: bool
    ) -> None:
        """Do nothing: the command line has all parameters."""

    def _state(self) -> dict[str, Any]:
        return {"session_id": self._session_id}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._session_id = state["session_id"]

    def _is_request(self, message: dict[str, Any]) -> bool:
        return False  # the demo sends no requests

    async def _deny(self, message: dict[str, Any]) -> None:
        """Do nothing: the demo sends no requests."""

    async def _begin(self, prompt: str, images: Sequence[Image]) -> DemoTurn:
        turn = DemoTurn(self._pipes, self._lines, self._session_id)
        await self._lines.send({"type": "turn", "prompt": prompt})
        return turn

    def _new_aside(self) -> DemoAside:
        return DemoAside(self._lines)

    def _parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        return [{"prompt": prompt}]
