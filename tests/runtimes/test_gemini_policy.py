"""Gemini's policy for agents that need permissions, in front of the user's own policies."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.errors import AgentUnavailable
from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes.gemini import policy, settings
from remoteclaw.runtimes.gemini.runtime import GeminiRuntime


@pytest.fixture(autouse=True)
def system(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the machine's settings and policies."""
    for module in (policy, settings):
        monkeypatch.setattr(module, "SYSTEM", directory / "etc")
    return directory / "etc"


def spec_in(directory: Path, **options: Any) -> AgentSpec:
    env = {"HOME": str(directory / "user")}
    return AgentSpec("gemini", ("gemini",), str(directory), env, **options)


def write(directory: Path, **files: str) -> None:
    """Write files of the user; `__` in a name stands for a directory."""
    for name, content in files.items():
        file = directory / "user" / ".gemini" / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


def policies(directory: Path, **options: Any) -> list[list[dict[str, Any]]]:
    """Return the rules in each of the files that gemini gets."""
    run = directory / "run"
    run.mkdir()
    argv = (
        GeminiRuntime()
        .launch(spec_in(directory, **options), session_id=None, fork=False, run_dir=run)
        .argv
    )
    if "--admin-policy" not in argv:
        return []
    place = Path(argv[argv.index("--admin-policy") + 1])
    files = sorted(place.glob("*.toml"))
    return [tomllib.loads(file.read_text()).get("rule", []) for file in files]


@pytest.mark.parametrize(
    ("options", "is_limited"),
    [
        ({}, True),
        ({"permissions": "edits"}, True),
        ({"permissions": "deny"}, True),
        ({"permissions": "auto", "branch": "read"}, True),
        ({"permissions": "auto", "branch": "ask"}, True),
        ({"permissions": "auto"}, False),
        ({"permissions": "auto", "branch": "auto"}, False),
    ],
)
def test_an_agent_that_needs_permissions_gets_our_policy(
    directory: Path, options: dict[str, str], is_limited: bool
) -> None:
    found = policies(directory, **options)

    assert bool(found) is is_limited
    if is_limited:
        (ours,) = found
        assert {"toolName": "*", "decision": "ask_user", "priority": 0} in ours
        # Without a pattern, gemini would allow commands of a list of its own.
        shell = [rule for rule in ours if rule["toolName"] == "run_shell_command"]
        assert [(rule["decision"], rule["argsPattern"]) for rule in shell] == [("ask_user", ".")]


def test_what_the_users_policies_allow_is_asked_for_and_their_refusals_stay(
    directory: Path,
) -> None:
    write(
        directory,
        policies__a_toml=(
            '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = ["git", "rm \\"x\\""]\n'
            'decision = "allow"\npriority = 100\n'
            '[[rule]]\ntoolName = ["write_file", "replace"]\ndecision = "deny"\npriority = 0\n'
            '[[rule]]\ntoolName = "*"\ndecision = "allow"\npriority = 999\n'
            "toolAnnotations = { readOnlyHint = true }\n"
        ),
        policies__b_toml="[[rule",  # gemini ignores it, too
        elsewhere__c_toml='[[rule]]\ntoolName = "glob"\ndecision = "deny"\npriority = 5\n',
        settings_json=json.dumps({"tools": {"allowed": ["write_file"], "exclude": ["web_fetch"]}})[
            :-1
        ]
        + f', "policyPaths": ["{directory}/user/.gemini/elsewhere"], // own\n}}',
    )

    ours, by_settings, *of_files = policies(directory)

    assert by_settings == [{"toolName": "web_fetch", "decision": "deny", "priority": 400}]
    git, writing, anything = of_files[0]
    assert git == {
        "toolName": "run_shell_command",
        "commandPrefix": ["git", 'rm "x"'],
        "decision": "ask_user",
        "priority": 100,
    }
    assert (writing["decision"], "argsPattern" in writing) == ("deny", False)
    assert (anything["decision"], anything["argsPattern"]) == ("ask_user", ".")
    assert anything["toolAnnotations"] == {"readOnlyHint": True}
    assert of_files[1:] == [[{"toolName": "glob", "decision": "deny", "priority": 5}]]
    assert writing["priority"] > max(rule["priority"] for rule in ours)


def test_what_no_policy_of_ours_outranks_is_named_and_starts_no_agent_under_deny(
    directory: Path, system: Path
) -> None:
    runtime = GeminiRuntime()
    before = runtime.openings(spec_in(directory))
    write(directory, settings_json='{"context": {"includeDirectories": ["~/notes"]}}')
    (system / "policies").mkdir(parents=True)
    (system / "policies" / "own.toml").touch()

    openings = runtime.openings(spec_in(directory))

    assert before == []
    assert len(openings) == 2
    assert str(system / "policies" / "own.toml") in openings[0]
    assert '["~/notes"]' in openings[1]
    assert runtime.openings(spec_in(directory, permissions="auto")) == []
    with pytest.raises(AgentUnavailable, match=r'permissions = "deny".*own\.toml.*remove it'):
        runtime.fitted(spec_in(directory, permissions="deny"))


def test_files_of_a_workspace_count_if_it_is_trusted(directory: Path) -> None:
    own = directory / ".gemini"
    (own / "policies").mkdir(parents=True)
    (own / "policies" / "a.toml").write_text('[[rule]]\ntoolName = "x"\ndecision = "deny"\n')
    (own / "settings.json").write_text('{"context": {"includeDirectories": ["/etc"]}}')

    openings = GeminiRuntime().openings(spec_in(directory, trust_workspace=True))

    assert openings == [f'context.includeDirectories in {own / "settings.json"} adds ["/etc"]']
    assert GeminiRuntime().openings(spec_in(directory)) == []
    rules = policies(directory, trust_workspace=True)[-1]
    assert rules == [{"toolName": "x", "decision": "deny", "priority": 3}]


def test_an_editor_adds_no_directory_to_the_workspace() -> None:
    inherited = {"GEMINI_CLI_IDE_WORKSPACE_PATH": "/home/me", "GEMINI_MODEL": "x"}

    env = GeminiRuntime().environment(inherited)

    assert "GEMINI_CLI_IDE_WORKSPACE_PATH" not in env
    assert env["GEMINI_MODEL"] == "x"
