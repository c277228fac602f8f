"""The launch of gemini: the options that its turns and its terminals share."""

from collections.abc import Collection

from remoteclaw.protocols import AgentSpec


def common_options(spec: AgentSpec, servers: Collection[str]) -> list[str]:
    """Return the options of the model, and of MCP servers: it may have `servers` of ours."""
    options: list[str] = []
    if not spec.inherit_mcp:
        # To gemini, a server that is named here needs no permission for any of its tools.
        named = servers if spec.permissions != "deny" else ()
        options += ["--allowed-mcp-server-names", ",".join(named) or "none"]
    if spec.model:
        options += ["-m", spec.model]
    return options


def environment_of(spec: AgentSpec) -> dict[str, str]:
    """Return its environment: whether it is to trust its workspace is said there."""
    trust = "true" if spec.trust_workspace else "false"
    return {**spec.env, "GEMINI_CLI_TRUST_WORKSPACE": trust}
