"""/diff: the changes of a workspace, also in a hostile repository."""

import os
import subprocess
from pathlib import Path

import pytest

from remoteclaw.commands.diff import MAX_BYTES, _changes


def git(workspace: Path, *arguments: str) -> None:
    who = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
    argv = ("git", "-C", str(workspace), *who, *arguments)
    subprocess.run(argv, check=True, capture_output=True)


@pytest.fixture
def workspace(directory: Path) -> Path:
    """A repository with one commit."""
    workspace = directory / "work"
    workspace.mkdir()
    (workspace / "plan.txt").write_text("one\ntwo\n")
    git(workspace, "init", "-q")
    git(workspace, "add", ".")
    git(workspace, "commit", "-q", "-m", "first")
    return workspace


def state(workspace: Path) -> list[tuple[str, bytes]]:
    """Return the files that git keeps in `.git`."""
    files = sorted(path for path in (workspace / ".git").rglob("*") if path.is_file())
    return [(str(path), path.read_bytes()) for path in files]


def test_diff_shows_changed_and_new_files_and_changes_nothing(workspace: Path) -> None:
    (workspace / "plan.txt").write_text("one\nthree\n")
    (workspace / "new one.txt").write_text("hello\n")
    (workspace / ".gitignore").write_text("*.log\n")
    (workspace / "noise.log").write_text("noise\n")
    git(workspace, "add", ".gitignore")
    before = state(workspace)

    shown = _changes(workspace)

    assert shown.startswith(f"Changed in `{workspace}` since `")
    assert "3 files changed" in shown
    for line in ("-two", "+three", "+hello", "+*.log"):
        assert f"\n{line}\n" in shown
    assert "noise.log" not in shown
    assert shown.endswith("\n```")
    assert state(workspace) == before


def test_diff_shows_only_the_part_of_a_repository_below_the_workspace(workspace: Path) -> None:
    (workspace / "part").mkdir()
    (workspace / "part/own.txt").write_text("own\n")
    (workspace / "plan.txt").write_text("other\n")

    shown = _changes(workspace / "part")

    assert "+own" in shown
    assert "plan.txt" not in shown


def test_diff_says_that_nothing_has_changed_or_that_there_is_no_repository(
    workspace: Path, directory: Path
) -> None:
    assert _changes(workspace).startswith(f"Nothing has changed in `{workspace}` since `")
    assert "is in no git repository" in _changes(directory)
    assert "is in no git repository" in _changes(directory / "not there")


def test_diff_shows_every_file_as_new_before_the_first_commit(directory: Path) -> None:
    git(directory, "init", "-q")
    (directory / "first.txt").write_text("first\n")

    shown = _changes(directory)

    assert "since the beginning" in shown
    assert "+first" in shown


def test_diff_says_that_git_is_not_installed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(workspace))

    assert _changes(workspace).startswith("git is not installed")


def test_a_long_diff_is_cut_at_the_end_of_a_line(workspace: Path) -> None:
    (workspace / "plan.txt").write_text("".join(f"line {n}\n" for n in range(50_000)))

    shown = _changes(workspace)

    assert len(shown) < MAX_BYTES + 500
    assert shown.endswith("\n```\n\nThere is more: `git diff` shows all of it.")


def test_a_diff_hides_nothing_in_names_and_files(workspace: Path) -> None:
    (workspace / "a\u202e\u3164.txt").write_text("one\r\n\ttwo\u200b\n")

    shown = _changes(workspace)

    assert "+++ b/a\\u202e\\u3164.txt" in shown
    assert "\n+one\\u000d\n+\ttwo\\u200b\n" in shown


def test_a_code_fence_in_a_file_does_not_end_the_diff_block(workspace: Path) -> None:
    (workspace / "plan.txt").write_text("````\nnot code\n````\n")

    shown = _changes(workspace)

    assert "\n`````diff\n" in shown
    assert shown.endswith("\n`````")


def test_diff_runs_no_program_that_the_repository_configures(
    workspace: Path, directory: Path
) -> None:
    program = directory / "evil"
    program.write_text(f"#!/bin/sh\necho ran >> {directory}/ran\ncat\n")
    program.chmod(0o755)
    for name in (
        "diff.external",
        "diff.evil.command",
        "diff.evil.textconv",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "core.fsmonitor",
        "core.pager",
        "pager.diff",
        "core.sshCommand",
        "core.editor",
        "alias.diff",
    ):
        git(workspace, "config", name, str(program))
    git(workspace, "config", "core.hooksPath", str(directory))
    for hook in ("post-index-change", "query-watchman", "pre-auto-gc"):
        os.link(program, directory / hook)
    (workspace / ".gitattributes").write_text("* diff=evil filter=evil\n")
    (workspace / "plan.txt").write_text("changed\n")
    (workspace / "new.txt").write_text("new\n")

    shown = _changes(workspace)

    assert "+changed" in shown
    assert "+new" in shown
    assert not (directory / "ran").exists()


def test_diff_does_not_enter_a_nested_repository(workspace: Path, directory: Path) -> None:
    inner = workspace / "inner"
    inner.mkdir()
    (inner / "a.txt").write_text("a\n")
    (inner / ".gitattributes").write_text("* filter=evil\n")
    git(inner, "init", "-q")
    git(inner, "add", ".")
    git(inner, "commit", "-q", "-m", "inner")
    git(workspace, "add", "inner")
    program = directory / "evil"
    program.write_text(f"#!/bin/sh\necho ran >> {directory}/ran\n")
    program.chmod(0o755)
    git(inner, "config", "filter.evil.clean", str(program))
    (inner / "a.txt").write_text("b\n")
    (workspace / "plan.txt").write_text("changed\n")

    assert "+changed" in _changes(workspace)
    assert not (directory / "ran").exists()


def test_diff_does_not_block_on_an_index_that_is_a_fifo(workspace: Path) -> None:
    (workspace / ".git/index").unlink()
    os.mkfifo(workspace / ".git/index")

    assert _changes(workspace).startswith("Nothing has changed")
