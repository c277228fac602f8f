"""The dialect of an agent within ACP. Each default fits agents that nothing is known of."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remoteclaw.events import ErrorEvent, Intent
from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes.wire import text

__all__ = ["AcpDialect", "LogNote"]


@dataclass(frozen=True, slots=True)
class LogNote:
    """A line of an agent's log about a turn."""

    session: str | None = None
    """The session that it is about, where it says so."""
    begins: str = ""
    """The id of a message that is begun."""
    is_own: bool = False
    """Whether that message is for the agent itself, such as a summary of the conversation."""
    failure: ErrorEvent | None = None
    """Why a request to the model failed, which the agent repeats."""
    wait_s: float = 0.0
    """The time until it does so, in seconds."""


class AcpDialect:
    """The ways of one agent."""

    name = "acp"
    may_load = True
    """Whether `session/load` does a conversation no harm."""
    instructs_by_prompt = True
    """Whether the system prompt goes with the first message, for want of a better way."""
    log: tuple[re.Pattern[bytes], re.Pattern[bytes]] | None = None
    """Patterns of the log in standard error, and of its lines for `read_log()`."""

    def read_log(self, line: str) -> LogNote | None:
        """Return what a line of its log says of a turn."""
        return None

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
