"""How claude is started: what its prompt tells of the process, and which model it asks."""

from dataclasses import replace
from pathlib import Path

import pytest

from remoteclaw.protocols import FILES, AgentSpec
from remoteclaw.runtimes.claude import ClaudeRuntime

SPEC = AgentSpec(
    runtime="claude", command=("claude",), workspace="/w", env={}, system_prompt="who you are"
)


def argv_of(spec: AgentSpec, run_dir: Path) -> tuple[str, ...]:
    return ClaudeRuntime().launch(spec, session_id="x", fork=False, run_dir=run_dir).argv


def test_no_path_of_the_process_is_told_to_the_model(directory: Path) -> None:
    """Claude repeats an `--add-dir` in its system prompt, and no rule."""
    (directory / "real").mkdir()
    (directory / "link").symlink_to(directory / "real")
    argv = argv_of(replace(SPEC, permissions="deny"), directory / "link")

    naming = [word for word in argv if str(directory) in word]
    rules = [f"Read(/{directory / name / FILES}/**)" for name in ("link", "real")]
    assert naming == [",".join(rules)]
    assert argv[argv.index(naming[0]) - 1] == "--allowedTools"


@pytest.mark.parametrize(
    ("configured", "note", "asked"),
    [
        (None, "claude-opus-4-8[1m]", ["claude-opus-4-8[1m]"]),
        ("haiku", "claude-opus-4-8[1m]", ["haiku"]),
        (None, "arn:aws:bedrock:eu-1:2:inference-profile/x.y-v1:0", None),
        (None, "", []),
        (None, "--dangerously-skip-permissions", []),
        (None, "<synthetic>", []),
    ],
)
def test_a_resumed_claude_asks_the_model_that_was_named(
    directory: Path, configured: str | None, note: str, asked: list[str] | None
) -> None:
    argv = argv_of(replace(SPEC, model=configured, note=note), directory)

    models = [argv[place + 1] for place, word in enumerate(argv) if word == "--model"]
    assert models == ([note] if asked is None else asked)


def test_its_note_is_no_reason_for_another_process() -> None:
    assert replace(SPEC, note="claude-opus-4-8[1m]").fingerprint == SPEC.fingerprint
