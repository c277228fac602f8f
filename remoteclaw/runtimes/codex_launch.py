"""The launch of codex: the options that its turns and its terminals share."""

from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes.codex_thread import APPROVAL, own_settings, servers_of, trust_of

#: The beginning of the names of variables with headers for MCP servers, in a terminal.
HEADERS = "REMOTECLAW_HEADER_"
#: The variables that codex withholds from its commands.
_KEYS = f'["OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "{HEADERS}*"]'


def common_options(spec: AgentSpec) -> list[str]:
    """Return the options about tools, trust and the user's own MCP servers."""
    options = [
        "check_for_update_on_startup=false",
        f"shell_environment_policy.exclude={_KEYS}",
        # Agents of its own go on working when it is stopped.
        "features.multi_agent=false",
        # Its model is offered the tool anyway, and told that it is for another mode.
        "features.default_mode_request_user_input=true",
        trust_of(spec),
    ]
    if not spec.trust_workspace:
        options.append("project_doc_max_bytes=0")  # the workspace's AGENTS.md
    for name, own in sorted(servers_of(own_settings(spec.env)).items()):
        if name in spec.mcp_servers:
            continue  # ours replaces it
        if not spec.inherit_mcp:
            options.append(f"mcp_servers.{name}.enabled=false")
        elif (spec.permissions == "deny" or spec.branch) and APPROVAL not in own:
            options.append(f'mcp_servers.{name}.{APPROVAL}="prompt"')
    return [word for option in options for word in ("-c", option)]
