"""The command-line options and environment that gemini's turns and terminals share."""

from collections.abc import Collection

from remoteclaw.protocols import AgentSpec


def common_options(spec: AgentSpec, servers: Collection[str]) -> list[str]:
    """Return the options about MCP servers; `servers` are the configured ones."""
    options: list[str] = []
    if not spec.inherit_mcp:
        # The tools of a server that is named here need no permission.
        allowed = servers if spec.permissions != "deny" else ()
        options += ["--allowed-mcp-server-names", ",".join(allowed) or "none"]
    return options


def environment_of(spec: AgentSpec) -> dict[str, str]:
    """Return gemini's whole environment, which also decides whether it trusts its workspace."""
    trust = "true" if spec.trust_workspace else "false"
    return {**spec.env, "GEMINI_CLI_TRUST_WORKSPACE": trust}
