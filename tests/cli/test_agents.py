"""The command `agents`."""

import re
from pathlib import Path

from tests.support.cli import without_stack


def test_agents_lists_installed_clis_and_warns_of_untested_versions(directory: Path) -> None:
    for name, version in (("codex", "codex-cli 0.169.3"), ("gemini", "9.0.0")):
        program = directory / name
        program.write_text(f"#!/bin/sh\necho '{version}'\n")
        program.chmod(0o755)

    result = without_stack(directory, "agents", PATH=f"{directory}:/usr/bin:/bin")

    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines()}
    assert [*rows] == ["AGENT", "codex", "gemini"]
    assert rows["codex"][1:3] == ["0.169.3", "yes"]
    assert rows["gemini"][1:3] == ["9.0.0", "no"]
    assert result.stderr == (
        "remoteclaw: gemini: tested with 0.61.0, so try this version with care.\n"
    )


def test_agents_warns_of_an_agent_without_tools(directory: Path) -> None:
    program = directory / "gemini"
    program.write_text("#!/bin/sh\necho 0.61.0\n")
    program.chmod(0o755)
    work = directory / "work"
    work.mkdir()
    (work / ".gemini").mkdir()
    (directory / "remoteclaw.toml").write_text(
        f'[agents.main]\nruntime = "gemini"\nworkspace = "{work}"\n'
    )

    result = without_stack(directory, "agents", PATH=f"{directory}:/usr/bin:/bin")

    assert result.stderr.startswith(
        f"remoteclaw: main has no tools: gemini would obey {work / '.gemini'}"
    )
    assert result.stderr.count("\n") == 1


def test_agents_and_doctor_name_files_of_the_user_that_allow_more(directory: Path) -> None:
    program = directory / "codex"
    program.write_text("#!/bin/sh\necho codex-cli 0.169.0\n")
    program.chmod(0o755)
    rules = directory / "own" / "rules" / "default.rules"
    rules.parent.mkdir(parents=True)
    rules.write_text('prefix_rule(pattern=["git", "push"])\n')

    def printed(command: str, permissions: str) -> str:
        (directory / "remoteclaw.toml").write_text(
            f'[agents.main]\nruntime = "codex"\npermissions = "{permissions}"\n'
        )
        env = {"PATH": f"{directory}:/usr/bin:/bin", "CODEX_HOME": str(directory / "own")}
        result = without_stack(directory, command, **env)
        return result.stdout + result.stderr

    allows = f"{rules} allows `git push`"
    more = f"more than its permissions is allowed: {allows}"
    assert f"remoteclaw: main: {more}.\n" in printed("agents", "ask")
    assert re.search(rf"ok  agent main .*{re.escape(more)}\n", printed("doctor", "ask"))
    assert re.search(rf"NO  agent main .*{re.escape(allows)}", printed("doctor", "deny"))
    assert allows not in printed("agents", "auto")


def test_agents_names_the_demo_if_no_cli_is_installed(directory: Path) -> None:
    result = without_stack(directory, "agents", PATH="/usr/bin:/bin")

    assert result.stdout.startswith("No agent CLI is installed, so the demo answers")


def test_agents_lists_clis_of_the_configuration(directory: Path) -> None:
    program = directory / "own"
    program.write_text("#!/bin/sh\necho 3.2.1\n")
    program.chmod(0o755)
    (directory / "remoteclaw.toml").write_text(
        f'[agents.main]\nruntime = "acp"\ncommand = ["{program}"]\n'
    )

    listed = without_stack(directory, "agents", PATH="/usr/bin:/bin")
    examined = without_stack(directory, "doctor", PATH="/usr/bin:/bin")
    program.unlink()
    missing = without_stack(directory, "agents", PATH="/usr/bin:/bin")

    assert listed.stdout.splitlines()[1].split()[:4] == ["main", "(acp)", "3.2.1", "no"]
    assert listed.stderr == ""
    assert f"acp 3.2.1 (configured), works in {directory}" in examined.stdout
    assert "tested with" not in examined.stdout
    assert missing.stdout == "No agent CLI is installed: see `remoteclaw doctor`.\n"
