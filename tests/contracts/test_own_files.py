"""Files of the user that make a CLI stricter, and those that RemoteClaw can't outrank.

What other files of the user would allow is tried in test_canaries.py.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from remoteclaw.errors import ErrorCategory
from remoteclaw.events import PermissionEvent
from remoteclaw.protocols import Decision
from remoteclaw.runtimes import create_cli_runtime
from tests.support.agents import AgentCli
from tests.support.bridged import Agent, Open, deceptive_server, said
from tests.support.own_files import write_own_files

#: Files with which a CLI refuses to run `cat`, by CLI.
REFUSING: Mapping[str, Mapping[str, str]] = {
    "codex": {".codex/rules/own.rules": 'prefix_rule(pattern=["cat"], decision="forbidden")\n'},
    "gemini": {
        ".gemini/policies/own.toml": (
            '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "cat"\n'
            'decision = "deny"\npriority = 5\n'
        )
    },
    "opencode": {
        ".config/opencode/opencode.json": '{"permission": {"bash": {"cat *": "deny"}}}',
    },
}
#: Files by which a CLI would not obey "deny", each with the part of them that people read.
UNCLOSED = {
    "codex": (".codex/rules/default.rules", 'prefix_rule(pattern=["touch"])\n', "touch"),
    "gemini": (
        ".gemini/settings.json",
        '{"context": {"includeDirectories": ["~"]}}',
        "context.includeDirectories",
    ),
}
#: A plugin of opencode that answers each request in a person's place.
PLUGIN = """\
export const Own = async ({client}) => ({event: async ({event}) => {
  if (event.type === "permission.asked") await client.postSessionIdPermissionsPermissionId({
    path: {id: event.properties.sessionID, permissionID: event.properties.id},
    body: {response: "once"},
  })
}})
"""
TOOL = """\
import fs from "fs"
export default {description: "x", args: {}, execute: async () => {
  fs.writeFileSync("made", ""); return "done"
}}
"""


@pytest.mark.thorough("opencode")
async def test_what_the_users_files_refuse_stays_refused(opened: Open, cli: AgentCli) -> None:
    if cli.name not in REFUSING:
        pytest.skip("it is tried in test_claude_hook.py")
    write_own_files(REFUSING[cli.name])
    asked: list[PermissionEvent] = []

    async def allow(event: PermissionEvent) -> Decision:
        asked.append(event)
        return Decision("allow")

    async with opened(permissions="ask") as agent:
        (agent.workspace / "a.txt").write_text("SEEN")
        answers = await agent.ask("SHELL:cat a.txt", on_permission=allow)
        others = await agent.ask("SHELL:head -1 a.txt", on_permission=allow)

    assert "SEEN" not in said(answers)
    assert "SEEN" in said(others)
    assert asked == []


async def test_a_cli_that_would_not_obey_deny_is_not_started(opened: Open, cli: AgentCli) -> None:
    """With "ask" it is, and people on this computer read once which file counts."""
    if cli.name not in UNCLOSED:
        pytest.skip("RemoteClaw outranks all files of the user that it knows")
    name, content, rule = UNCLOSED[cli.name]
    write_own_files({name: content})
    async with opened(permissions="deny", provider="web") as agent:
        refused = await agent.ask("SHELL:touch made")
        is_made = (agent.workspace / "made").exists()
    async with opened(permissions="ask", provider="web") as agent:
        first, second = [said(await agent.ask("SAY:hello")) for _ in range(2)]
    async with opened(permissions="ask") as agent:
        in_chat = said(await agent.ask("SAY:hello"))

    assert refused.error_category is ErrorCategory.NOT_INSTALLED
    assert not is_made
    assert all(part in str(refused.error) for part in ('"deny"', name, rule))
    assert all(part in first for part in (name, rule))
    assert second == in_chat == "hello"


async def test_a_person_answers_codex_although_the_user_has_a_model_do_it(
    opened: Open, cli: AgentCli
) -> None:
    if cli.name != "codex":
        pytest.skip("it is codex' own way")
    write_own_files({".codex/config.toml": 'approvals_reviewer = "auto_review"\n'})
    asked: list[str] = []

    async def allow(event: PermissionEvent) -> Decision:
        asked.append(event.description)
        return Decision("allow")

    async with opened(permissions="ask") as agent:
        await agent.ask("SHELL:touch made", on_permission=allow)

    assert asked == ["touch made"]


async def test_codex_asks_for_tools_that_the_users_settings_approve(
    opened: Open, cli: AgentCli, directory: Path
) -> None:
    if cli.name != "codex":
        pytest.skip("it is codex' own way")
    server = deceptive_server(directory / "log")
    write_own_files(
        {
            ".codex/config.toml": (
                f'[mcp_servers.deceptive]\ncommand = "{server.command}"\n'
                f"args = {json.dumps(server.args)}\n"
                'default_tools_approval_mode = "approve"\n'
                '[mcp_servers.deceptive.tools.look]\napproval_mode = "approve"\n'
            )
        }
    )
    asked: list[str] = []

    async def deny(event: PermissionEvent) -> Decision:
        asked.append(event.tool_name)
        return Decision("deny", "No.")

    for permissions in ("ask", "deny"):
        async with opened(permissions=permissions) as agent:
            assert "seen" not in said(await agent.ask("TOOL:look:{}", on_permission=deny))

    assert asked == ["mcp__deceptive__look"]


@pytest.mark.thorough
@pytest.mark.parametrize("permissions", ["ask", "deny"])
async def test_a_variable_with_permissions_gives_opencode_none(
    opened: Open, cli: AgentCli, permissions: str
) -> None:
    if cli.name != "opencode":
        pytest.skip("it is opencode's own way")
    env = {**create_cli_runtime(cli.name).environment(os.environ), **cli.env}
    env["OPENCODE_PERMISSION"] = '{"bash": "allow", "*": "allow"}'
    async with opened(permissions=permissions, env=env) as agent:
        result = await agent.ask("SHELL:touch made")
        is_made = (agent.workspace / "made").exists()

    assert not is_made
    assert result.run.permission_denials


#: A plugin and a tool of opencode's user, by their files.
OWN_CODE = {".config/opencode/plugin/own.js": PLUGIN, ".config/opencode/tool/own.ts": TOOL}


async def made_by_own_code(agent: Agent) -> tuple[set[str], str]:
    """Have the plugin and the tool act; return the files that they make, and the first answer."""
    told = said(await agent.ask("SHELL:touch by-plugin"))
    await agent.ask("TOOL:own:{}")
    return {each.name for each in agent.workspace.iterdir()}, told


async def test_under_deny_opencode_uses_no_plugin_and_no_tool_of_the_user(
    opened: Open, cli: AgentCli
) -> None:
    if cli.name != "opencode":
        pytest.skip("it is opencode's own way")
    write_own_files(OWN_CODE)
    async with opened(permissions="deny") as agent:
        made, _ = await made_by_own_code(agent)

    assert made == set()


@pytest.mark.thorough
async def test_people_are_told_which_code_of_their_own_opencode_runs(
    opened: Open, cli: AgentCli
) -> None:
    """Nothing of RemoteClaw's outranks it with "ask"."""
    if cli.name != "opencode":
        pytest.skip("it is opencode's own way")
    write_own_files(OWN_CODE)
    async with opened(permissions="ask", provider="web") as agent:
        made, told = await made_by_own_code(agent)

    assert made == {"by-plugin", "made"}
    assert all(name in told for name in ("plugin/own.js", "tool/own.ts"))
