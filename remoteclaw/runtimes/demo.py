"""The demo agent: a process like any other that needs nothing installed and says so.

`command` in the configuration may name another program that speaks the same few lines; see
`demo_agent.py`.
"""

import asyncio
import sys
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.errors import ErrorCategory, classify_error
from remoteclaw.events import (
    AgentEvent,
    AgentRunResult,
    DoneEvent,
    ErrorEvent,
    SteeredEvent,
    TextEvent,
    ThinkingEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from remoteclaw.messages import Image
from remoteclaw.protocols import AgentPipes, AgentProcess, AgentSpec, Capabilities, Decision, Launch
from remoteclaw.runtimes.environment import inherit
from remoteclaw.runtimes.programs import find_program
from remoteclaw.runtimes.wire import count, decode, mapping, text

__all__ = ["DemoProcess", "DemoRuntime"]

COMMAND = (sys.executable, "-I", "-S", str(Path(__file__).with_name("demo_agent.py")))


#: How long the demo may take to say what became of a message that came too late, in seconds.
REFUSE_S = 5.0


class DemoRuntime:
    """How to start the demo agent."""

    name = "demo"
    command = COMMAND
    image_types: frozenset[str] = frozenset()
    capabilities = Capabilities(steers=True, explains_denial=True)

    def find(self, program: str, path: str | None) -> str | None:
        """Return the program to start."""
        return find_program(program, path=path)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the common variables: the demo needs no others."""
        return inherit(inherited)

    def fitted(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec as it is."""
        return spec

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line."""
        known_id = session_id or str(uuid.uuid4())
        argv = (*spec.command, "resume" if session_id else "start", known_id)
        return Launch(argv=argv, env=spec.env, cwd=spec.workspace, session_id=known_id)

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
        """Return the demo, which needs no handshake."""
        return DemoProcess(pipes, (parked_state or {}).get("session_id", session_id))


class DemoProcess:
    """One demo agent."""

    def __init__(self, pipes: AgentPipes, session_id: str | None) -> None:
        self._pipes = pipes
        self._is_busy = False
        self._is_asked = asyncio.Event()
        self._steered: set[str] = set()
        """Messages given to the demo in mid-turn of which it has said nothing yet."""
        self.session_id = session_id
        self.note = ""

    def parked_state(self) -> dict[str, Any] | None:
        """Return the id; None in a turn or with something unread."""
        if self._is_busy or not self._pipes.is_clean:
            return None
        return {"session_id": self.session_id}

    async def turn(
        self, prompt: str, images: Sequence[Image] = ()
    ) -> AsyncGenerator[AgentEvent, None]:
        """Ask the demo; yield what it says."""
        self._is_busy = True
        self._pipes.take_unread()
        await self._pipes.write(orjson.dumps({"type": "turn", "prompt": prompt}))
        self._is_asked.set()
        said = ""
        while (line := await self._pipes.read()) is not None:
            message = decode(line)
            if message is None:
                why = "the agent printed a line that can't be read, or was too long"
                yield ErrorEvent(ErrorCategory.FATAL, why, ends_agent=True)
                yield DoneEvent(AgentRunResult(said, self.session_id))
                return
            tool_id = text(message.get("id"))
            match message.get("type"):
                case "text":
                    said += text(message.get("text"))
                    yield TextEvent(text(message.get("text")))
                case "thinking":
                    yield ThinkingEvent(text(message.get("text")))
                case "tool_use":
                    name, arguments = text(message.get("name")), mapping(message.get("input"))
                    yield ToolUseEvent(name, tool_id, arguments)
                case "tool_result":
                    yield ToolResultEvent(tool_id, text(message.get("output")))
                case "steered" if tool_id in self._steered:
                    self._steered.remove(tool_id)
                    yield SteeredEvent(tool_id)
                case "done":
                    self._is_asked.clear()
                    if not await self._are_refused():
                        why = "the agent did not say what became of a message"
                        yield ErrorEvent(ErrorCategory.FATAL, why, ends_agent=True)
                    self._is_busy = False
                    if error := text(message.get("error")):
                        category = text(message.get("category"))
                        is_named = category in set(ErrorCategory)
                        yield ErrorEvent(
                            ErrorCategory(category) if is_named else classify_error(error),
                            error,
                            retry_at_ms=count(message.get("retry_at_ms")) or None,
                        )
                    aborted = bool(message.get("aborted"))
                    yield DoneEvent(AgentRunResult(said, self.session_id, aborted=aborted))
                    return
        errors = self._pipes.last_errors() or "it said nothing about that"
        detail = f"the agent ended in mid-turn: {errors}"
        yield ErrorEvent(ErrorCategory.DIED, detail)
        yield DoneEvent(AgentRunResult(said, self.session_id))

    async def _are_refused(self) -> bool:
        """Wait until the demo has refused what came too late for the turn; False if it doesn't."""
        try:
            async with asyncio.timeout(REFUSE_S):
                while self._steered and (line := await self._pipes.read()) is not None:
                    message = decode(line) or {}
                    if message.get("type") == "refused":
                        self._steered.discard(text(message.get("id")))
        except TimeoutError:
            self._steered.clear()
            return False
        return True

    async def steer(self, prompt: str, key: str, images: Sequence[Image] = ()) -> None:
        """Give the demo a message while it works."""
        await self._is_asked.wait()
        self._steered.add(key)
        await self._pipes.write(orjson.dumps({"type": "steer", "id": key, "prompt": prompt}))

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Do nothing: the demo asks for no permissions."""

    async def interrupt(self) -> None:
        """Stop the running turn."""
        if self._is_busy:
            await self._pipes.write(b'{"type": "interrupt"}')
