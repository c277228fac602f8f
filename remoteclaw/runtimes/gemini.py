"""Gemini CLI, over ACP.

It destroys its own sessions: unless its retention is switched off, a later start deletes the
history of one that was resumed, and one that is loaded in the minute in which it was begun is
overwritten. So it goes on with a session of an earlier process only where neither can happen.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.protocols import FILES, AgentSpec, Capabilities, Launch
from remoteclaw.runtimes.acp import AcpRuntime
from remoteclaw.runtimes.environment import inherit
from remoteclaw.runtimes.wire import mapping, text

__all__ = ["GeminiRuntime"]


class GeminiRuntime(AcpRuntime):
    """How to start Gemini CLI."""

    name = "gemini"
    command = ("gemini",)
    capabilities = Capabilities(
        steers=False,
        explains_denial=False,
        resumes="from our record, unless its session retention is off",
        tested="0.61.0",
    )
    replays_late = True
    for_session = ("proceed_always_tool", "proceed_always")

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return what gemini needs of our environment: its own settings and its keys."""
        env = inherit(inherited, prefixes=("GEMINI_", "GOOGLE_"))
        env["GEMINI_CLI_NO_RELAUNCH"] = "true"  # else it starts itself a second time
        env["NO_COLOR"] = "1"
        return env

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line. What needs a permission is asked: we decide about it."""
        argv = [*spec.command, "--acp", "--approval-mode", "default"]
        argv += ["--include-directories", str(run_dir / FILES)]
        if not spec.inherit_mcp:
            # To gemini, a server that is named here needs no permission for any of its tools.
            named = spec.mcp_servers if spec.permissions != "deny" else ()
            argv += ["--allowed-mcp-server-names", ",".join(named) or "none"]
        if spec.model:
            argv += ["-m", spec.model]
        trust = "true" if spec.trust_workspace else "false"
        env = {**spec.env, "GEMINI_CLI_TRUST_WORKSPACE": trust}
        return Launch(argv=tuple(argv), env=env, cwd=spec.workspace, session_id=session_id)

    def may_load(self, spec: AgentSpec, session_id: str) -> bool:
        """Whether its retention is off, and the session is not of this minute."""
        home = Path(spec.env.get("GEMINI_CLI_HOME") or spec.env.get("HOME") or "~").expanduser()
        try:
            settings = orjson.loads((home / ".gemini" / "settings.json").read_bytes())
        except (OSError, ValueError):
            return False
        general = mapping(mapping(settings).get("general"))
        if mapping(general.get("sessionRetention")).get("enabled") is not False:
            return False
        sessions = (home / ".gemini" / "tmp").glob(f"*/chats/session-*-{session_id[:8]}.jsonl")
        minute = time.strftime("%Y-%m-%dT%H-%M", time.gmtime())
        return not any(minute in file.name for file in sessions)

    def tool_name(self, call: Mapping[str, Any]) -> str:
        """Return a tool's name, which only the id of its call has: the title may be the model's."""
        return text(call.get("toolCallId")).rpartition("__")[0] or text(call.get("title"))

    def server_of(self, call: Mapping[str, Any], spec: AgentSpec) -> str | None:
        """Return the configured server whose tool it is, if there are no others and it is clear."""
        call_id = text(call.get("toolCallId"))
        fitting = [name for name in spec.server_names if call_id.startswith(f"mcp_{name}_")]
        return fitting[0] if len(fitting) == 1 and not spec.inherit_mcp else None
