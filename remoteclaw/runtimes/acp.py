"""The Agent Client Protocol: any agent that speaks it, and the base of gemini and opencode."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remoteclaw.messages import Image
from remoteclaw.protocols import AgentPipes, AgentSpec, Capabilities, Launch
from remoteclaw.runtimes.acp_dialect import AcpDialect
from remoteclaw.runtimes.acp_start import AcpStart
from remoteclaw.runtimes.acp_turn import AcpTurn, deny
from remoteclaw.runtimes.agent import CliProcess
from remoteclaw.runtimes.base import BaseRuntime
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer

__all__ = ["AcpProcess", "AcpRuntime"]


class AcpRuntime(AcpDialect, BaseRuntime):
    """Any agent that speaks ACP."""

    command: tuple[str, ...] = ()
    capabilities = Capabilities(
        steers=False,
        explains_denial=False,
        takes_commands=True,
        forks=True,
        resumes="where it can",
    )

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line, which is the configured one."""
        return Launch(argv=spec.command, env=spec.env, cwd=spec.workspace, session_id=session_id)

    def process(
        self, pipes: AgentPipes, spec: AgentSpec, *, session_id: str | None, run_dir: Path
    ) -> "AcpProcess":
        """Return the agent before its handshake."""
        return AcpProcess(pipes, self, spec)


class AcpProcess(CliProcess[RpcMessage, AcpTurn]):
    """One agent with one session, between and during turns."""

    def __init__(self, pipes: AgentPipes, dialect: AcpDialect, spec: AgentSpec) -> None:
        self._peer = RpcPeer(pipes)
        super().__init__(pipes, self._peer)
        if dialect.log:
            pipes.follow_log(*dialect.log)
        self.name = dialect.name
        self._dialect = dialect
        self._spec = spec
        self._session = ""
        self._cost = 0.0
        """The cost of the session so far, in US dollars."""
        self._instructions = ""
        """The text before the first message."""
        self._takes_images = False
        """Whether it can be shown pictures; else it has their paths."""
        self._said = ""
        """The id of the last message of an earlier turn."""

    @property
    def session_id(self) -> str | None:
        """The agent's id of the session."""
        return self._session or None

    async def handshake(
        self, spec: AgentSpec, session_id: str | None, run_dir: Path, *, fork: bool
    ) -> None:
        """Begin a session, or go on with one or a copy of it."""
        start = AcpStart(self._pipes, self._peer, self._dialect, spec)
        begun = await start.begin(session_id, run_dir, fork=fork)
        self._session, self._takes_images = begun.session, begun.takes_images
        self._notice = begun.notice
        if self._dialect.instructs_by_prompt:
            self._instructions = spec.system_prompt

    def _state(self) -> dict[str, Any]:
        return {
            "session": self._session,
            "last_id": self._peer.last_id,
            "cost": self._cost,
            "instructions": self._instructions,
            "takes_images": self._takes_images,
            "said": self._said,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another worker left off."""
        self._session = state["session"]
        self._peer.last_id = state["last_id"]
        self._cost = state["cost"]
        self._instructions = state["instructions"]
        self._takes_images = state["takes_images"]
        self._said = state["said"]

    def _is_request(self, message: RpcMessage) -> bool:
        return message.is_request

    async def _deny(self, message: RpcMessage) -> None:
        await deny(self._peer, message)

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

    def _new_turn(self) -> AcpTurn:
        return AcpTurn(
            self._pipes,
            self._peer,
            self._dialect,
            self._spec,
            session=self._session,
            cost=self._cost,
            said_before=self._said,
        )

    def _end(self, turn: AcpTurn) -> None:
        self._cost, self._said = turn.cost, turn.said
        if not turn.has_failed and not turn.is_command:  # else it may not have read them
            self._instructions = ""

    def _parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        """Return a message as ACP wants it; the prompt names the path of each picture."""
        parts: list[dict[str, Any]] = [{"type": "text", "text": prompt}]
        for image in images if self._takes_images else ():
            data = base64.b64encode(image.data).decode()
            parts.append({"type": "image", "mimeType": image.mime_type, "data": data})
        return parts
