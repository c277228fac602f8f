"""The command line of claude: its permission rules and its model."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import orjson
import pytest

from remoteclaw.protocols import FILES, AgentSpec
from remoteclaw.runtimes.claude.hook import hooks_of
from remoteclaw.runtimes.claude.runtime import ClaudeRuntime

SPEC = AgentSpec(
    runtime="claude", command=("claude",), workspace="/w", env={}, system_prompt="who you are"
)


def argv_of(spec: AgentSpec, run_dir: Path) -> tuple[str, ...]:
    return ClaudeRuntime().launch(spec, session_id="x", fork=False, run_dir=run_dir).argv


def test_no_path_of_the_process_is_shown_to_the_model(directory: Path) -> None:
    """Claude repeats an `--add-dir` in its system prompt, but no permission rule."""
    (directory / "real").mkdir()
    (directory / "link").symlink_to(directory / "real")
    argv = argv_of(replace(SPEC, permissions="deny"), directory / "link")

    with_path = [word for word in argv if str(directory) in word]
    rules = [f"Read(/{directory / name / FILES}/**)" for name in ("link", "real")]
    assert with_path == [",".join(rules)]
    assert argv[argv.index(with_path[0]) - 1] == "--allowedTools"


@pytest.mark.parametrize(
    ("configured", "note", "expected"),
    [
        (None, "claude-opus-4-8[1m]", ["claude-opus-4-8[1m]"]),
        ("haiku", "claude-opus-4-8[1m]", ["haiku"]),
        (None, "arn:aws:bedrock:eu-1:2:inference-profile/x.y-v1:0", None),
        (None, "", []),
        (None, "--dangerously-skip-permissions", []),
        (None, "<synthetic>", []),
    ],
)
def test_a_resumed_claude_uses_the_configured_model_or_the_noted_one(
    directory: Path, configured: str | None, note: str, expected: list[str] | None
) -> None:
    argv = argv_of(replace(SPEC, model=configured, note=note), directory)

    models = [argv[place + 1] for place, word in enumerate(argv) if word == "--model"]
    assert models == ([note] if expected is None else expected)


def test_neither_note_nor_model_change_the_fingerprint() -> None:
    assert replace(SPEC, note="claude-opus-4-8[1m]").fingerprint == SPEC.fingerprint
    assert replace(SPEC, model="haiku").fingerprint == SPEC.fingerprint


@pytest.mark.parametrize("permissions", ["ask", "edits", "deny", "auto"])
@pytest.mark.parametrize("branch", ["", "read", "ask", "auto"])
def test_a_claude_that_may_not_do_everything_is_told_to_ask_first(
    directory: Path, permissions: str, branch: Literal["", "read", "ask", "auto"]
) -> None:
    """By a hook before each tool, and for commands by a rule that outranks those of the user."""
    spec = replace(SPEC, permissions=permissions, branch=branch)
    argv = argv_of(spec, directory)
    is_free = (permissions, branch) == ("auto", "")

    assert ("--settings" in argv) != is_free
    assert bool(hooks_of(spec)) != is_free
    if not is_free:
        settings = orjson.loads(argv[argv.index("--settings") + 1])
        assert settings["permissions"] == {"ask": ["Bash"]}
        assert not settings.get("disableAllHooks")
    assert "CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR" not in str(argv)
