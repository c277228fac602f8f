"""Paths of a workspace: what people may name, in a useful order."""

import subprocess
from pathlib import Path

import pytest

from remoteclaw.host import workspace_files
from remoteclaw.host.workspace_files import paths_like


def files(workspace: Path, *names: str) -> None:
    for name in names:
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).touch()


def git(workspace: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(workspace), *arguments], check=True, capture_output=True)


def test_the_likeliest_paths_come_first(directory: Path) -> None:
    files(directory, "shop/mail.py", "mail/a/b.py", "docs/email.md", "thumbnail", "shop/basket.py")
    assert paths_like(directory, "Mail", 8) == [
        "shop/mail.py",
        "mail/a/b.py",
        "docs/email.md",
    ]
    assert paths_like(directory, "mail", 1) == ["shop/mail.py"]
    assert len(paths_like(directory, "", 3)) == 3
    assert paths_like(directory / "gone", "", 8) == []


def test_hidden_and_ignored_files_and_those_outside_are_left_out(directory: Path) -> None:
    """With git and without it, whatever the repository configures."""
    (inside := directory / "work").mkdir()
    files(directory, "secret.txt")
    files(inside, "a.txt", ".env", ".ssh/id", "sub/.hidden/x", "built.log", "bad\nname")
    (inside / "up").symlink_to(directory)
    shown = ["a.txt", "built.log"]
    assert paths_like(inside, "", 50) == shown

    git(directory, "init", "-q")
    (inside / ".gitignore").write_text("*.log\n")
    assert paths_like(inside, "", 50) == ["a.txt"]
    git(directory, "add", "-f", "work/built.log")
    git(directory, "config", "core.fsmonitor", f"touch {directory}/ran; false")
    assert paths_like(inside, "", 50) == ["a.txt", "built.log"]
    assert paths_like(inside, "secret", 50) == []
    git(directory, "config", "core.worktree", "/")
    assert "secret" not in str(paths_like(inside, "", 50))
    assert not (directory / "ran").exists()


def test_a_repository_that_is_elsewhere_names_none_of_its_files(directory: Path) -> None:
    """Whoever writes in the workspace, such as the agent, can lead git out of it."""
    (inside := directory / "work").mkdir()
    (outside := directory / "other").mkdir()
    files(outside, "secret.txt", "sub/secret.txt")
    git(outside, "init", "-q")
    git(outside, "add", ".")
    files(inside, "a.txt", "gone.txt")
    (inside / "sub").symlink_to(outside / "sub")
    (inside / "out").symlink_to(outside / "secret.txt")
    (inside / "in").symlink_to("a.txt")

    (inside / ".git").write_text(f"gitdir: {outside}/.git\n")
    assert paths_like(inside, "secret", 50) == []
    (inside / ".git").unlink()

    git(inside, "init", "-q")
    git(inside, "add", "gone.txt")
    (inside / "gone.txt").unlink()
    assert paths_like(inside, "", 50) == ["a.txt", "in"]
    git(inside, "config", "core.worktree", str(outside))
    assert paths_like(inside, "secret", 50) == []


def test_a_huge_workspace_without_git_is_searched_in_part(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_files, "MAX_ENTRIES", 10)
    files(directory, *(f"f{number}" for number in range(20)))
    assert len(paths_like(directory, "f", 50)) == 10
