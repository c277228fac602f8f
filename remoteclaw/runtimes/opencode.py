"""OpenCode, over ACP; its whole configuration goes with its environment, and no file is edited."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.protocols import FILES, AgentSpec, Capabilities, Launch
from remoteclaw.runtimes.acp import AcpRuntime
from remoteclaw.runtimes.environment import inherit
from remoteclaw.runtimes.wire import mapping, text

__all__ = ["OpencodeRuntime"]

#: Where opencode looks for a configuration that goes before its files.
CONFIG = "OPENCODE_CONFIG_CONTENT"
#: What it may do without being asked: it asks for nothing else by itself.
_HARMLESS = ("read", "glob", "grep", "list", "lsp", "skill", "task", "todowrite", "todoread")
#: What it asks for in any case, however a server is called.
_ASKED = (
    "bash",
    "codesearch",
    "doom_loop",
    "edit",
    "patch",
    "question",
    "webfetch",
    "websearch",
    "write",
)

log = logging.getLogger(__name__)


class OpencodeRuntime(AcpRuntime):
    """How to start OpenCode."""

    name = "opencode"
    command = ("opencode",)
    capabilities = Capabilities(
        steers=True, explains_denial=False, reports_cost=True, forks=True, tested="1.18.33"
    )
    for_session = ("always",)
    natives = ("opencode-linux-*/bin/opencode",)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return what opencode needs of our environment: its own settings and providers' keys."""
        prefixes = ("OPENCODE_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_", "OPENROUTER_")
        env = inherit(inherited, prefixes=prefixes)
        env.setdefault("OPENCODE_DISABLE_AUTOUPDATE", "1")
        return env

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, fork: bool, run_dir: Path
    ) -> Launch:
        """Return the command line, with our configuration merged into the agent's own."""
        prompt = run_dir / "system-prompt.md"
        config = _config(spec.env.get(CONFIG, ""))
        config["instructions"] = [*_listed(config.get("instructions")), str(prompt)]
        agent = mapping(config.get("agent"))
        config["agent"] = {**agent, "title": {"disable": True, **mapping(agent.get("title"))}}
        experimental = mapping(config.get("experimental"))
        config["experimental"] = {"continue_loop_on_deny": True, **experimental}
        config["permission"] = _permissions(spec, config.get("permission"), run_dir)
        env = {**spec.env, CONFIG: orjson.dumps(config).decode()}
        if not spec.trust_workspace:
            env["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
        return Launch(
            argv=(*spec.command, "acp"),
            env=env,
            cwd=spec.workspace,
            session_id=session_id,
            files={prompt.name: spec.system_prompt},
        )

    def instructs_by_prompt(self) -> bool:
        """Return False: its configuration names a file for that."""
        return False

    def tool_name(self, call: Mapping[str, Any]) -> str:
        """Return a tool's name: the title until it is known what the tool is to do."""
        return text(call.get("title"))


def _permissions(spec: AgentSpec, own: Any, run_dir: Path) -> Any:
    """Return what it may use, what it asks for, and what it doesn't see.

    The last rule that fits decides: no name of a server may undo what stands behind it.
    """
    files = {f"{run_dir / FILES}/**": "allow"}
    if spec.permissions == "auto" and spec.inherit_mcp:
        return own or {"external_directory": files}
    # Nothing else tells whose a tool is: a server's has its name and this sign before its own.
    hidden = {} if spec.inherit_mcp else {"*_*": "deny"}
    verdict = "ask" if spec.permissions == "deny" else "allow"
    servers = {f"{name}_*": verdict for name in spec.mcp_servers}
    if spec.permissions == "auto":
        rules: dict[str, Any] = {"*": own} if isinstance(own, str) else mapping(own)
        last = {**hidden, **servers, "doom_loop": "allow", "external_directory": "allow"}
        rules = {name: rule for name, rule in rules.items() if name not in last} | last
    else:
        rules = {
            "*": "ask",
            **hidden,
            **servers,
            **dict.fromkeys(_HARMLESS, "allow"),
            **dict.fromkeys(_ASKED, "ask"),
            "external_directory": {"*": "ask", **files},
        }
    if not spec.inherit_mcp:  # other data of a server's is read with tools of opencode's own
        data = {f"mcp:{name}:*": "allow" for name in spec.mcp_servers}
        rules["read"] = {"*": "allow", "mcp:*": "deny", **data}
    return rules


def _config(content: str) -> dict[str, Any]:
    try:
        return mapping(orjson.loads(content)) if content else {}
    except ValueError:
        log.warning("%s is not JSON, and is not used", CONFIG)
        return {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
