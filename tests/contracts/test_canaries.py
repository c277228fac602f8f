"""What each CLI does without asking, with each value of `permissions` and files of the user.

`permissions` is a ceiling: no setting, rule or hook of the user, and no list that is built into a
CLI, allows more. `REMOTECLAW_RECORD_CANARIES=1 scripts/test -n 0 tests/contracts/test_canaries.py`
records what a new version of a CLI does; `git diff` and a failed test show the changes.
"""

import os
from pathlib import Path

import pytest

from remoteclaw.config.home import Home
from remoteclaw.up.agents import version_of
from tests.conftest import THOROUGH, required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.bridged import conversation
from tests.support.canaries import (
    CANARIES,
    COMMON,
    CONDUCTS,
    FEW,
    SAMPLE,
    WITH_FILES,
    Grounds,
    Record,
    breaches,
    recorded_clis,
    try_out,
    verdicts,
)
from tests.support.own_files import OWN_FILES

IS_RECORDING = os.environ.get("REMOTECLAW_RECORD_CANARIES") == "1"
#: The CLIs that judge commands by their text themselves, so that more commands are tried.
JUDGES = ("claude", "codex")
#: What can't be closed, by CLI; `docs/permissions.md` says so.
OPEN: dict[str, set[str]] = {"opencode": {"its tool to read, through a link"}}
#: What a CLI refuses or can't do even with `auto`, so that its record proves nothing, by CLI.
NEVER: dict[str, set[str]] = {
    "gemini": {
        *('`echo "$(<FILE)"`', "`cat <<< $(cat FILE)`", "`tar -cf - DIR`", "`./program &`"),
        *("`git diff`", "`git diff --no-index a.txt FILE`"),  # it breaks them itself
        *("`cd hostile && git status`", "`git -C hostile status`"),
        "`git --git-dir=hostile/.git status`",
        *("its tool to read, elsewhere", "its tool to read, through a link"),
        *("its tool to list, elsewhere", "its tool to search, elsewhere"),
        *("its tool to write, elsewhere", "its tool to write, through a link"),
        "its tool to write, a hook of git",
    },
}


@pytest.fixture(params=recorded_clis())
def cli(request: pytest.FixtureRequest, model_server: ModelServerProcess) -> AgentCli:
    return required(request.param, model_server)


@pytest.mark.thorough("edits", "branch", "auto", "codex-deny", "gemini", "opencode")
@pytest.mark.parametrize("conduct", CONDUCTS)
async def test_a_cli_does_without_asking_only_what_is_recorded(
    cli: AgentCli, conduct: str, home: Home, directory: Path
) -> None:
    """Only a part is tried without REMOTECLAW_TEST_THOROUGH; the records are of all actions.

    Fewer are tried with gemini and opencode, which leave each command to RemoteClaw: it judges it
    alike for every CLI.
    """
    is_whole = THOROUGH or IS_RECORDING
    tried = CANARIES if is_whole else SAMPLE if cli.name in JUDGES else FEW
    found = await verdicts(home, cli, conduct, directory, tried)

    record, version = Record.of(cli.name), version_of(cli.program, dict(os.environ))
    changes = record.changes(conduct, found, tried)
    if IS_RECORDING:
        record.version, record.verdicts[conduct] = version, found
        record.save()
    else:
        assert changes == [], f"{cli.name} {version} is not like {record.version}: {changes}"
    assert breaches(conduct, found) - OPEN.get(cli.name, set()) == set()
    if conduct == "auto":  # an action that never happens proves nothing
        never = {name for name, verdict in found.items() if verdict != "happens"}
        assert never == NEVER.get(cli.name, set())


@pytest.mark.thorough(
    *("edits", "deny", "branch", "sandbox", "agents", "rules-without-hooks", "everything"),
    *("core-tools", "other-policies", "default-agent", "opencode"),
)
@pytest.mark.parametrize("conduct", ["ask", "edits", "deny", "branch"])
@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in recorded_clis() for kind in OWN_FILES[name]]
)
async def test_files_of_the_user_allow_nothing_more(
    name: str,
    kind: str,
    conduct: str,
    home: Home,
    directory: Path,
    model_server: ModelServerProcess,
) -> None:
    """Only a part of the actions is tried without REMOTECLAW_TEST_THOROUGH."""
    cli, tried = required(name, model_server), CANARIES if THOROUGH else WITH_FILES
    found = await verdicts(home, cli, conduct, directory, tried, OWN_FILES[name][kind])

    happened = {action for action, verdict in found.items() if verdict == "happens"}
    before = Record.of(name).verdicts[conduct]
    more = {action for action in happened if before[action] != "happens"}
    assert more - OPEN.get(name, set()) == set()


@pytest.mark.thorough("gemini", "opencode")
async def test_nobody_is_asked_for_common_reading_commands(
    cli: AgentCli, home: Home, directory: Path
) -> None:
    grounds = Grounds(directory, home.path / "work")
    with grounds.open():
        async with conversation(home, cli) as agent:
            tried = {command: await try_out(agent, f"SHELL:{command}") for command in COMMON}

    assert [command for command, (_, is_asked) in tried.items() if is_asked] == []
    assert "TODO" in tried["grep -rn TODO src"][0]
    assert not any("CANARY-elsewhere" in reply for reply, _ in tried.values())


def test_every_action_is_recorded_and_none_is_forbidden() -> None:
    for name in recorded_clis():
        expected = {each.name for each in CANARIES if each.command or name in each.tools}
        for conduct in CONDUCTS:
            found = Record.of(name).verdicts[conduct]
            assert found.keys() == expected
            assert breaches(conduct, found) - OPEN.get(name, set()) == set()
