"""What claude says of a failure, as a person at the console reads it."""

import os
from typing import Any

from remoteclaw.config.home import Home
from remoteclaw.messages import McpServerConfig
from remoteclaw.runtimes import create_cli_runtime
from tests.support.agents import AgentCli
from tests.support.bridges import agent_bridge
from tests.support.stack import message

# The reason and the remedy.
FAILURES = [
    ("HTTP:401", "refuses the key in ANTHROPIC_API_KEY (claude: `", "or take it away and run"),
    (
        "HTTP:404:model",
        "model `sonnet` (claude: `",
        "Correct `model` under [agents.main], or",
    ),
    ("HTTP:529", "is busy right now (claude: `", "send it again in a minute."),
    ("HTTP:400:credit", "no credit or quota left (claude: `", "Top it up at its provider"),
]


async def test_claudes_own_reason_comes_with_what_to_do(home: Home, claude: AgentCli) -> None:
    env = {**create_cli_runtime("claude").environment(os.environ), **claude.env}
    servers = {"web": McpServerConfig(command="/not/there")}
    about: dict[str, Any] = {"env": env, "model": "sonnet", "mcp_servers": servers}
    async with agent_bridge(home, "claude", command=claude.command, **about) as (bridge, _, _):
        fine = await bridge.handle(message("SAY:fine", provider="console"))
        for directive, reason, remedy in FAILURES:
            here = await bridge.handle(message(f"{directive} please", provider="console"))
            (words,) = [payload.text for payload in here.payloads]
            assert reason in words
            assert remedy in words
            assert "nobody's key" not in words
        far = await bridge.handle(message(f"{FAILURES[0][0]} please"))
        assert "claude: `" not in far.payloads[0].text

    answer, missing = (payload.text for payload in fine.payloads)
    assert answer == "fine"
    assert missing.startswith("(main works without the MCP server `web`, which claude could not")


async def test_who_has_not_signed_in_to_claude_reads_how(home: Home, claude: AgentCli) -> None:
    (home.path / "nobody").mkdir()
    own = {"HOME": str(home.path / "nobody")}
    env = {**create_cli_runtime("claude").environment(os.environ), **claude.env, **own}
    del env["ANTHROPIC_API_KEY"]
    async with agent_bridge(home, "claude", command=claude.command, env=env) as (bridge, _, _):
        failed = await bridge.handle(message("hello", provider="console"))

    assert failed.payloads[0].text.startswith(
        "main isn't signed in to its model (claude: `Not logged in · Please run /login`). "
        "Run `claude`, then /login, on the computer that RemoteClaw runs on; then send"
    )
