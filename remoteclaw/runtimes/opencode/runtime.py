"""The runtime of OpenCode, over ACP; its configuration is passed in an environment variable."""

import contextlib
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remoteclaw.errors import ErrorCategory, classify_error
from remoteclaw.events import AgentUsage, ErrorEvent, Intent
from remoteclaw.host.environment import inherit
from remoteclaw.protocols import AgentSpec, Capabilities, Launch, Remedies, prompt_file
from remoteclaw.runtimes.acp.messages import LogNote
from remoteclaw.runtimes.acp.runtime import AcpRuntime
from remoteclaw.runtimes.opencode.config import ASIDE, configuration_of, environment_with
from remoteclaw.runtimes.opencode.own import OwnConfig
from remoteclaw.runtimes.opencode.store import totals_of
from remoteclaw.runtimes.opencode.terminal import OpencodeTerminal
from remoteclaw.runtimes.wire import mapping, mappings, text

#: The failures after which opencode retries a request. It reports other failures over ACP.
_RETRIED = (ErrorCategory.RETRYABLE, ErrorCategory.USAGE_LIMIT, ErrorCategory.UNREACHABLE)
#: A field of a log line, such as `agent=build`.
_FIELD = re.compile(r'(?<![\w.])([\w.]+)=("(?:\\.|[^"\\])*+"|\S+)')


class OpencodeRuntime(AcpRuntime):
    """The runtime of OpenCode."""

    name = "opencode"
    command = ("opencode",)
    capabilities = Capabilities(
        steers=True,
        explains_denial=False,
        takes_commands=True,
        reports_cost=True,
        forks=True,
        asides="copy",
        compacts=True,
        rules=frozenset(("Bash", "Edit", "Read", "WebFetch", "WebFetch(domain)", "WebSearch")),
        tested="1.18.33",
    )
    remedies = Remedies(
        install="npm install -g opencode-ai",
        sign_in="run `opencode auth login`",
        models="`opencode models`",
    )
    terminal = OpencodeTerminal()
    instructs_by_prompt = False  # the configuration names the file of the system prompt
    aside_modes = (ASIDE,)
    needs_aside_mode = True
    # The baseline build runs on every processor, so the processor's features aren't checked.
    natives = ("opencode-linux-*-baseline/bin/opencode", "opencode-linux-*/bin/opencode")
    log = (
        re.compile(rb"timestamp="),
        re.compile(rb'level=(INFO \S+ message=(process|stream)|ERROR \S+ message="stream error") '),
    )

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that opencode needs: common ones, its settings, provider keys."""
        prefixes = ("OPENCODE_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_", "OPENROUTER_")
        env = inherit(inherited, prefixes=prefixes)
        env.setdefault("OPENCODE_DISABLE_AUTOUPDATE", "1")
        return env

    def read_log(self, line: str) -> LogNote | None:
        """Return the beginning of a message or of a request for it, or a failed request."""
        fields = {name: value.strip('"') for name, value in _FIELD.findall(line)}
        session = fields.get("session.id")
        match fields.get("message"):
            case "process":
                return LogNote(session, begun_message=fields.get("messageID", ""))
            case "stream":
                is_compaction = fields.get("agent") == "compaction"
                return LogNote(session, is_compaction=is_compaction, begins_request=True)
            case "stream error" if fields.get("small") != "true":
                names = ("error.error", "error.error.message", "error.error.code")
                why = "; ".join(filter(None, (fields.get(name) for name in names)))
                category = classify_error(why)
                return LogNote(
                    session,
                    failure=ErrorEvent(category, why) if category in _RETRIED else None,
                )
        return None

    def totals(self, spec: AgentSpec, session: str) -> tuple[AgentUsage, float] | None:
        """Return the totals from opencode's database: over ACP, it reports only the last request.

        None for a database that can't be read, or has no totals, as in an older version.
        """
        with contextlib.suppress(OSError):
            return totals_of(session, spec.env)
        return None

    def has_arguments(self, call: Mapping[str, Any]) -> bool:
        """Whether the arguments of a call are known, which a request doesn't repeat."""
        return call.get("title") != "bash" or "command" in mapping(call.get("rawInput"))

    def intent_of(self, call: Mapping[str, Any], before: Mapping[str, Any]) -> Intent | None:
        """Return the action of a built-in tool.

        The first title of a call is the tool's name. The kind of a request depends on the requested
        permission: `other` is for files outside of the workspace.
        """
        kind, name = text(call.get("kind")), text(before.get("title"))
        input_, before_input = mapping(call.get("rawInput")), mapping(before.get("rawInput"))
        is_outside = kind == "other"
        match name:
            case "bash" if kind == "execute" or is_outside:
                cwd = text(before_input.get("workdir")) if self.has_arguments(before) else None
                return Intent("Bash", command=text(input_.get("command")), cwd=cwd)
            case "write" | "edit" | "patch" | "apply_patch" if kind == "edit" or is_outside:
                return Intent("Edit", paths=_paths(call, input_))
            case "read" | "glob" | "grep" | "list" if kind in ("read", "search") or is_outside:
                return Intent("Read", paths=_paths(call, input_))
            case "webfetch" if kind == "fetch":
                return Intent("WebFetch", url=text(input_.get("url")))
            case "websearch" | "codesearch":
                return Intent("WebSearch")
        return None

    def openings(self, spec: AgentSpec) -> list[str]:
        """Return the user's tools, which ask for no permission, and plugins; "deny" allows none."""
        if not spec.is_limited or spec.permissions == "deny":
            return []
        own = OwnConfig(spec.env, spec.workspace, is_trusted=spec.trust_workspace)
        tools = [f"the tool {file} asks for no permission" for file in own.tool_files()]
        return [*tools, *(f"the plugin {name} may allow anything" for name in own.plugins())]

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line, and the configuration in the environment.

        Raises `AgentUnavailable` for an untrusted workspace with plugins.
        """
        prompt = prompt_file(run_dir, spec.system_prompt)
        env = environment_with(spec, configuration_of(spec, run_dir, prompt))
        # Opencode also listens on loopback, where every user of the machine could run commands.
        env.setdefault("OPENCODE_SERVER_PASSWORD", secrets.token_urlsafe(24))
        return Launch(
            argv=(*spec.command, "acp", "--print-logs", "--log-level", "INFO"),
            env=env,
            cwd=spec.workspace,
            session_id=session_id,
            prompt_file=prompt,
        )


def _paths(call: Mapping[str, Any], input_: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the files of a request; a patch of several files has them in the list `files`."""
    if path := call.get("kind") == "other" and text(input_.get("filepath")):
        return (path,)
    files = mappings(input_.get("files"))
    paths = [text(part.get("path")) for part in mappings(call.get("locations"))]
    paths += [text(file.get(name)) for file in files for name in ("filePath", "movePath")]
    if not files:
        paths.append(text(input_.get("filepath")))
    return tuple(dict.fromkeys(filter(None, paths)))
