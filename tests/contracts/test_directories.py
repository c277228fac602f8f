"""The directories in which CLIs run commands: those that people are shown."""

import pytest

from remoteclaw.events import PermissionEvent
from remoteclaw.protocols import Decision
from remoteclaw.session.permission import rule_of
from tests.support.agents import AgentCli
from tests.support.bridged import Open
from tests.support.own_files import OWN_FILES, write_own_files

#: Turns after which a CLI has run `touch one` and `touch two` in the directory `sub`, each after a
#: person was asked, by CLI.
MOVING = {
    "claude": ("SHELL:cd sub\nSHELL:touch one", "SHELL:cd sub && pwd\nSHELL:touch two"),
    "codex": (
        'TOOL:exec_command:{"cmd": "touch one", "workdir": "sub"}',
        'TOOL:exec_command:{"cmd": "touch two", "workdir": "./sub"}',
    ),
    "gemini": (
        'TOOL:run_shell_command:{"command": "touch one", "dir_path": "sub"}',
        'TOOL:run_shell_command:{"command": "touch two", "dir_path": "sub", "description": "x"}',
    ),
    "opencode": (
        'TOOL:bash:{"command": "touch one", "description": "x", "workdir": "sub"}',
        'TOOL:bash:{"command": "touch two", "description": "x", "workdir": "./sub"}',
    ),
}


@pytest.mark.thorough("opencode", "gemini-hooks", "gemini")
@pytest.mark.parametrize("hooks", ["", "hooks"])
async def test_a_command_runs_in_the_directory_that_people_are_shown(
    opened: Open, cli: AgentCli, hooks: str
) -> None:
    """ "For this conversation" then allows it in this directory, and not in the workspace."""
    if cli.name not in MOVING or (hooks and hooks not in OWN_FILES[cli.name]):
        pytest.skip("the user's hooks are not asked about the directory")
    write_own_files(OWN_FILES[cli.name].get(hooks, {}))
    asked: list[PermissionEvent] = []

    async def allow(event: PermissionEvent) -> Decision:
        asked.append(event)
        return Decision("allow")

    async with opened() as agent:
        (agent.workspace / "sub").mkdir()
        await agent.ask("SHELL:touch one", on_permission=allow)
        (agent.workspace / "one").unlink()
        for text in MOVING[cli.name]:
            await agent.ask(text, on_permission=allow)
        made = {str(each.relative_to(agent.workspace)) for each in agent.workspace.rglob("*")}
        workspace = str(agent.workspace)

    touching = [event for event in asked if event.intent and "touch" in event.intent.command]
    assert made == {"sub", "sub/one", "sub/two"}
    assert [event.place for event in touching] == [
        workspace,
        f"{workspace}/sub",
        f"{workspace}/sub",
    ]
    assert rule_of(touching[0]) != rule_of(touching[1])
