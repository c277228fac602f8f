"""The runtime of the calculator: one process for each conversation, one line for each turn."""

import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remoteclaw.events import AgentEvent, AgentRunResult, DoneEvent
from remoteclaw.messages import Image
from remoteclaw.protocols import AgentPipes, AgentSpec, Capabilities, Decision, Launch
from remoteclaw.runtimes.agent import CliProcess, CliTurn
from remoteclaw.runtimes.base import BaseRuntime
from remoteclaw.runtimes.wire import Lines


class CalculatorRuntime(BaseRuntime):
    """The calculator's program, and the start of its process."""

    name = "calculator"
    command = (sys.executable, str(Path(__file__).with_name("calculator.py")))
    image_types: frozenset[str] = frozenset()
    capabilities = Capabilities(steers=False, explains_denial=False, chooses_model=False)

    def fitted(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec without RemoteClaw's tools, because the calculator uses none."""
        return spec.without_tools()

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line."""
        known_id = session_id or str(uuid.uuid4())
        return Launch(argv=spec.command, env=spec.env, cwd=spec.workspace, session_id=known_id)

    def process(
        self, pipes: AgentPipes, spec: AgentSpec, *, session_id: str | None, run_dir: Path
    ) -> "CalculatorProcess":
        """Return the process, which needs no handshake."""
        return CalculatorProcess(pipes, session_id)


class CalculatorTurn(CliTurn[dict[str, Any]]):
    """One sum."""

    async def take(self, message: dict[str, Any]) -> list[AgentEvent]:
        """Return the answer and the end of the turn."""
        return [*self._text.add(f"The sum is {message['sum']}."), DoneEvent(self.result())]

    def result(self, *, aborted: bool = False) -> AgentRunResult:
        """Return the result of the turn so far."""
        return AgentRunResult(self._text.text, aborted=aborted)

    async def steer(self, parts: list[dict[str, Any]], key: str) -> None:
        """Do nothing: `capabilities` say that no message joins a turn."""

    async def interrupt(self) -> None:
        """Do nothing: a sum takes no time."""

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Do nothing: the calculator asks for no permissions."""


class CalculatorProcess(CliProcess[dict[str, Any], CalculatorTurn]):
    """One process, between and during turns."""

    def __init__(self, pipes: AgentPipes, session_id: str | None) -> None:
        self._lines = Lines(pipes)
        super().__init__(pipes, self._lines)
        self._session_id = session_id

    @property
    def session_id(self) -> str | None:
        """The id of the conversation, which `launch()` has chosen."""
        return self._session_id

    async def handshake(
        self, spec: AgentSpec, session_id: str | None, run_dir: Path, *, fork: bool
    ) -> None:
        """Do nothing: the calculator is ready at once."""

    async def _begin(self, prompt: str, images: Sequence[Image]) -> CalculatorTurn:
        await self._lines.send({"prompt": prompt})
        return CalculatorTurn(self._pipes)

    def _parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        return [{"prompt": prompt}]

    def _is_request(self, message: dict[str, Any]) -> bool:
        return False

    async def _deny(self, message: dict[str, Any]) -> None:
        """Do nothing: the calculator sends no requests."""

    def _state(self) -> dict[str, Any]:
        return {"session_id": self._session_id}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._session_id = state["session_id"]
