"""OpenCode, over ACP; its whole configuration goes with its environment, and no file is edited."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remoteclaw.errors import ErrorCategory, classify_error
from remoteclaw.events import ErrorEvent, Intent
from remoteclaw.protocols import AgentSpec, Capabilities, Launch, Remedies, prompt_file
from remoteclaw.runtimes.acp import AcpRuntime
from remoteclaw.runtimes.acp_turn import LogNote
from remoteclaw.runtimes.base import inherit
from remoteclaw.runtimes.opencode_config import ASIDE, configured, with_configuration
from remoteclaw.runtimes.opencode_terminal import OpencodeTerminal
from remoteclaw.runtimes.wire import mapping, mappings, text

#: The failures after which it repeats a request. It reports the others itself.
_REPEATED = (ErrorCategory.RETRYABLE, ErrorCategory.USAGE_LIMIT, ErrorCategory.UNREACHABLE)
#: A field of its log.
_FIELD = re.compile(r'(?<![\w.])([\w.]+)=("(?:\\.|[^"\\])*+"|\S+)')


class OpencodeRuntime(AcpRuntime):
    """OpenCode."""

    name = "opencode"
    command = ("opencode",)
    capabilities = Capabilities(
        steers=True,
        explains_denial=False,
        takes_commands=True,
        reports_cost=True,
        forks=True,
        asides="copy",
        rules=frozenset(("Bash", "Edit", "Read", "WebFetch", "WebFetch(domain)", "WebSearch")),
        tested="1.18.33",
    )
    remedies = Remedies(
        install="npm install -g opencode-ai",
        sign_in="run `opencode auth login`",
        models="`opencode models`",
    )
    terminal = OpencodeTerminal()
    instructs_by_prompt = False  # its configuration names a file for that
    aside_modes = (ASIDE,)
    needs_aside_mode = True
    # The baseline runs on every processor; which of both a better one can run, is not looked for.
    natives = ("opencode-linux-*-baseline/bin/opencode", "opencode-linux-*/bin/opencode")
    log = (
        re.compile(rb"timestamp="),
        re.compile(rb'level=(INFO \S+ message=(process|stream)|ERROR \S+ message="stream error") '),
    )

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return what opencode needs of our environment: its own settings and providers' keys."""
        prefixes = ("OPENCODE_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_", "OPENROUTER_")
        env = inherit(inherited, prefixes=prefixes)
        env.setdefault("OPENCODE_DISABLE_AUTOUPDATE", "1")
        return env

    def read_log(self, line: str) -> LogNote | None:
        """Return the message that begins, its reader, or the reason of a retry."""
        fields = {name: value.strip('"') for name, value in _FIELD.findall(line)}
        session = fields.get("session.id")
        match fields.get("message"):
            case "process":
                return LogNote(session, begins=fields.get("messageID", ""))
            case "stream":
                return LogNote(session, is_own=fields.get("agent") == "compaction")
            case "stream error" if fields.get("small") != "true":
                names = ("error.error", "error.error.message", "error.error.code")
                why = "; ".join(filter(None, (fields.get(name) for name in names)))
                category = classify_error(why)
                return LogNote(
                    session,
                    failure=ErrorEvent(category, why) if category in _REPEATED else None,
                )
        return None

    def intent_of(self, call: Mapping[str, Any], before: Mapping[str, Any]) -> Intent | None:
        """Return what a tool of opencode's own is for.

        The first title of a call is the tool's name, and the kind of a request goes by what it is
        about. A request of the kind `other` is about files outside of the workspace.
        """
        kind, name = text(call.get("kind")), text(before.get("title"))
        asked, told = mapping(call.get("rawInput")), mapping(before.get("rawInput"))
        elsewhere = kind == "other"
        match name:
            case "bash" if kind == "execute" or elsewhere:
                cwd = "/" if elsewhere else text(told.get("workdir"))
                return Intent("Bash", command=text(asked.get("command")), cwd=cwd)
            case "write" | "edit" | "patch" | "apply_patch" if kind == "edit" or elsewhere:
                return Intent("Edit", paths=_paths(call, asked))
            case "read" | "glob" | "grep" | "list" if kind in ("read", "search") or elsewhere:
                return Intent("Read", paths=_paths(call, asked))
            case "webfetch" if kind == "fetch":
                return Intent("WebFetch", url=text(asked.get("url")))
            case "websearch" | "codesearch":
                return Intent("WebSearch")
        return None

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line, with our configuration merged into the agent's own."""
        prompt = prompt_file(run_dir, spec.system_prompt)
        return Launch(
            argv=(*spec.command, "acp", "--print-logs", "--log-level", "INFO"),
            env=with_configuration(spec, configured(spec, run_dir, prompt)),
            cwd=spec.workspace,
            session_id=session_id,
            prompt_file=prompt,
        )


def _paths(call: Mapping[str, Any], asked: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the files of a request: a patch of several names them in a list of its own."""
    if path := call.get("kind") == "other" and text(asked.get("filepath")):
        return (path,)
    files = mappings(asked.get("files"))
    paths = [text(part.get("path")) for part in mappings(call.get("locations"))]
    paths += [text(file.get(name)) for file in files for name in ("filePath", "movePath")]
    if not files:
        paths.append(text(asked.get("filepath")))
    return tuple(dict.fromkeys(filter(None, paths)))
