"""The Agent Client Protocol: any agent that speaks it, and the base of gemini and opencode."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remoteclaw.events import Intent
from remoteclaw.protocols import AgentPipes, AgentSpec, Capabilities, Launch
from remoteclaw.runtimes.acp_process import AcpProcess
from remoteclaw.runtimes.acp_turn import LogNote
from remoteclaw.runtimes.base import BaseRuntime
from remoteclaw.runtimes.wire import text


class AcpRuntime(BaseRuntime):
    """Any agent that speaks ACP. Each default fits agents that nothing is known of."""

    name = "acp"
    command: tuple[str, ...] = ()
    capabilities = Capabilities(
        steers=False,
        explains_denial=False,
        takes_commands=True,
        forks=True,
        asides="notes",
        resumes="where it can",
    )
    instructs_by_prompt = True
    """Whether the system prompt goes with the first message, for want of a better way."""
    aside_modes: tuple[str, ...] = ("read-only", "ask", "chat", "plan")
    """Modes in which it does nothing without a permission, the best one first."""
    needs_aside_mode = False
    """Whether it would use tools without a permission in every other mode."""
    log: tuple[re.Pattern[bytes], re.Pattern[bytes]] | None = None
    """Patterns of the log in standard error, and of its lines for `read_log()`."""

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line, which is the configured one."""
        return Launch(argv=spec.command, env=spec.env, cwd=spec.workspace, session_id=session_id)

    def process(
        self, pipes: AgentPipes, spec: AgentSpec, *, session_id: str | None, run_dir: Path
    ) -> AcpProcess:
        """Return the agent before its handshake."""
        return AcpProcess(pipes, self, spec, run_dir)

    def read_log(self, line: str) -> LogNote | None:
        """Return what a line of its log says of a turn."""
        return None

    def aside_place(self, spec: AgentSpec, run_dir: Path) -> str:
        """Return the working directory of an empty session beside the conversation."""
        return spec.workspace

    def forget(self, spec: AgentSpec, session: str) -> None:
        """Remove what the agent keeps of a session that was asked beside the conversation."""

    def tool_name(self, call: Mapping[str, Any]) -> str:
        """Return the name of a tool that a `tool_call` is about, for people."""
        return text(call.get("title")) or text(call.get("kind"))

    def server_of(self, call: Mapping[str, Any], spec: AgentSpec) -> str | None:
        """Return the configured MCP server that a tool is of, where that is certain."""
        return None

    def intent_of(self, call: Mapping[str, Any], before: Mapping[str, Any]) -> Intent | None:
        """Return what a `toolCall` of a request is for, where that is certain.

        `before` is what was said of the call until then.
        """
        return None

    def server_name(self, name: str, spec: AgentSpec) -> str:
        """Return what the agent calls an MCP server that is called `name` here."""
        return name
