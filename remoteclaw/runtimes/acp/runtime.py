"""The runtime of any agent that speaks the Agent Client Protocol; base of gemini and opencode."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remoteclaw.events import AgentUsage, Intent
from remoteclaw.protocols import AgentPipes, AgentSpec, Capabilities, Launch
from remoteclaw.runtimes.acp.messages import LogNote
from remoteclaw.runtimes.acp.process import AcpProcess
from remoteclaw.runtimes.base import BaseRuntime
from remoteclaw.runtimes.wire import text


class AcpRuntime(BaseRuntime):
    """Any agent that speaks ACP. The defaults are safe for an unknown agent."""

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
    """Whether the system prompt precedes the first message: ACP has no field for it."""
    aside_modes: tuple[str, ...] = ("read-only", "ask", "chat", "plan")
    """Modes in which the agent does nothing without a permission, the best one first."""
    needs_aside_mode = False
    """Whether the agent would use tools without a permission in every other mode."""
    log: tuple[re.Pattern[bytes], re.Pattern[bytes]] | None = None
    """Patterns of log lines in standard error: of all, and of those for `read_log()`."""

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the configured command line."""
        return Launch(argv=spec.command, env=spec.env, cwd=spec.workspace, session_id=session_id)

    def process(
        self, pipes: AgentPipes, spec: AgentSpec, *, session_id: str | None, run_dir: Path
    ) -> AcpProcess:
        """Return the agent before its handshake."""
        return AcpProcess(pipes, self, spec, run_dir)

    def read_log(self, line: str) -> LogNote | None:
        """Return what a line of the agent's log reports about a turn; None if nothing."""
        return None

    def totals(self, spec: AgentSpec, session: str) -> tuple[AgentUsage, float] | None:
        """Return the tokens of a session so far, and their cost in US dollars, from its record.

        None if the agent keeps no such record: then its answers report the tokens.
        """
        return None

    def aside_directory(self, spec: AgentSpec, run_dir: Path) -> str:
        """Return the working directory of a new session for asides."""
        return spec.workspace

    def forget(self, spec: AgentSpec, session: str) -> None:
        """Delete the agent's files of an aside's session."""

    def tool_name(self, call: Mapping[str, Any]) -> str:
        """Return the display name of the tool of a `tool_call`.

        It says whether the tool fetches something from elsewhere, which a title may not tell.
        """
        title, kind = text(call.get("title")), text(call.get("kind"))
        if title and kind == "fetch" and kind not in title.casefold():
            return f"{title} ({kind})"
        return title or kind

    def server_of(self, call: Mapping[str, Any], spec: AgentSpec) -> str | None:
        """Return the configured MCP server of a tool; None if it can't be determined reliably."""
        return None

    def has_arguments(self, call: Mapping[str, Any]) -> bool:
        """Whether all is known of a call that `intent_of` needs besides the request.

        Else a request waits for an update of its call.
        """
        return True

    def intent_of(self, call: Mapping[str, Any], before: Mapping[str, Any]) -> Intent | None:
        """Return the action of a request's `toolCall`; None if it can't be determined reliably.

        `before` has the fields of the call that the agent reported before the request.
        """
        return None

    def server_name(self, name: str, spec: AgentSpec) -> str:
        """Return the agent's name for the MCP server `name` of the configuration."""
        return name
