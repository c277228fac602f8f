"""Codex's own rules and settings, which allow commands and tools of servers."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.errors import AgentUnavailable
from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes.codex.runtime import CodexRuntime
from remoteclaw.runtimes.codex.thread import asked_instead
from tests.support.rows import for_each


@for_each(
    ("rules", "allowed"),
    [
        ('prefix_rule(pattern=["git", "push"], decision="allow")', ["`git push`"]),
        ('prefix_rule(pattern=["npm", ["test", "run"]])', ["`npm test|run`"]),
        ('network_rule(host="example.org", decision="allow")', ["`example.org`"]),
        ('[prefix_rule(pattern=[word]) for word in ["rm"]]', ["`…`"]),
        ('prefix_rule(pattern=["rm"], decision=how)', ["`rm`"]),
        ('allow = prefix_rule\nallow(pattern=["rm"])', ["unknown commands"]),
        ("prefix_rule(", ["unknown commands"]),
        ('prefix_rule(pattern=["rm"], decision="forbidden")', []),
        ('prefix_rule(pattern=["rm"], decision="prompt")\nhost_executable(name="git")', []),
        ("# prefix_rule", []),
    ],
)
def test_rules_of_codex_that_allow_something_are_found(
    directory: Path, rules: str, allowed: list[str]
) -> None:
    file = directory / "rules" / "default.rules"
    file.parent.mkdir(exist_ok=True)
    file.write_text(rules)

    openings = CodexRuntime().openings(spec_of(directory))

    assert openings == [f"{file} allows {', '.join(allowed)}" for _ in allowed[:1]]
    assert CodexRuntime().openings(spec_of(directory, permissions="auto")) == []


def test_rules_of_a_workspace_count_if_it_is_trusted(directory: Path) -> None:
    work, rules = directory / "above" / "work", 'prefix_rule(pattern=["touch"])\n'
    for place in (work.parent, work):
        file = place / ".codex" / "rules" / "own.rules"
        file.parent.mkdir(parents=True)
        file.write_text(rules)

    def openings(*, trust: bool) -> list[str]:
        return CodexRuntime().openings(
            dataclasses.replace(spec_of(directory), workspace=str(work), trust_workspace=trust)
        )

    assert openings(trust=False) == []
    assert openings(trust=True) == [
        f"{place}/.codex/rules/own.rules allows `touch`" for place in (work, work.parent)
    ]


def spec_of(directory: Path, **options: Any) -> AgentSpec:
    return AgentSpec("codex", ("codex",), "/w", {"CODEX_HOME": str(directory)}, **options)


def test_under_deny_codex_is_not_started_with_such_rules(directory: Path) -> None:
    (directory / "rules").mkdir()
    file = directory / "rules" / "default.rules"
    file.write_text('prefix_rule(pattern=["touch"])\n')

    with pytest.raises(AgentUnavailable) as refused:
        CodexRuntime().fitted(spec_of(directory, permissions="deny"))

    assert f"{file} allows `touch`" in str(refused.value)
    for permissions in ("ask", "edits", "auto"):
        spec = spec_of(directory, permissions=permissions)
        assert CodexRuntime().fitted(spec) == spec


@for_each(
    ("is_strict", "asked"),
    [
        (False, {"mcp_servers": {"a": {"tools": {"t": {"approval_mode": "prompt"}}}}}),
        (
            True,
            {
                "mcp_servers": {
                    "a": {
                        "default_tools_approval_mode": "prompt",
                        "tools": {"t": {"approval_mode": "prompt"}},
                    }
                }
            },
        ),
    ],
)
def test_tools_that_the_users_settings_approve_are_asked_for(
    is_strict: bool, asked: dict[str, Any]
) -> None:
    settings = {
        "model": "approve",
        "mcp_servers": {
            "a": {
                "command": "x",
                "default_tools_approval_mode": "auto",
                "tools": {"t": {"approval_mode": "approve"}},
            },
            "b": {"command": "x"},
        },
    }

    assert asked_instead(settings, is_strict=is_strict) == asked
