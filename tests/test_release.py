"""`scripts/release` in a scratch clone whose `scripts/check` is quick."""

import hashlib
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from remoteclaw import __version__
from tests.support.agents import ROOT

IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@chat.example")
CHECK = "scripts/check"


def git(clone: Path, *arguments: str) -> str:
    command = ["git", *IDENTITY, *arguments]
    return subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def clone(directory: Path) -> Path:
    """Return a clone of the checkout, with its uncommitted changes, in which checks succeed."""
    clone = directory / "clone"
    git(directory, "clone", "--quiet", "--shared", str(ROOT), str(clone))
    diff = ["git", "diff", "HEAD", "--binary"]
    changes = subprocess.run(diff, cwd=ROOT, check=True, capture_output=True).stdout
    if changes:
        subprocess.run(["git", "apply"], cwd=clone, check=True, input=changes)
    (clone / "scripts/release").write_bytes((ROOT / "scripts/release").read_bytes())
    (clone / "scripts/release").chmod(0o755)
    (clone / CHECK).write_text("#!/bin/sh\n")
    git(clone, "config", "user.name", "Ada")
    git(clone, "config", "user.email", "ada@chat.example")
    commit(clone)
    return clone


def commit(clone: Path) -> None:
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "change")


def release(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(clone / "scripts/release"), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def state(clone: Path) -> tuple[str, str, str, bool]:
    """Return what a release changes: the commit, the tags, the files and the worktrees."""
    commit, tags = git(clone, "rev-parse", "HEAD"), git(clone, "tag")
    worktrees = git(clone, "worktree", "list")
    return commit, tags, worktrees, (clone / "dist").exists()


@pytest.mark.thorough
def test_a_release_is_a_commit_a_tag_two_files_and_their_notes(clone: Path) -> None:
    done = release(clone, "9.9.9")

    assert done.returncode == 0, done.stderr
    assert "nothing is published" in done.stdout
    assert git(clone, "show", "--format=%s", "--name-only", "HEAD").split("\n\n") == [
        "release: 9.9.9",
        "CHANGELOG.md\nremoteclaw/__init__.py\n",
    ]
    assert git(clone, "cat-file", "-t", "v9.9.9").strip() == "tag"
    assert git(clone, "rev-parse", "v9.9.9^{commit}") == git(clone, "rev-parse", "HEAD")
    assert git(clone, "status", "--porcelain") == ""
    assert len(git(clone, "worktree", "list").splitlines()) == 1
    changes = (clone / "CHANGELOG.md").read_text()
    heading = f"## Unreleased\n\n## 9.9.9 - {datetime.now(UTC):%Y-%m-%d}\n\n### Added\n"
    assert heading in changes
    dist = clone / "dist"
    names = ["remoteclaw-9.9.9-py3-none-any.whl", "remoteclaw-9.9.9.md", "remoteclaw-9.9.9.tar.gz"]
    assert sorted(file.name for file in dist.iterdir()) == names
    notes = (dist / names[1]).read_text()
    for name in (names[0], names[2]):
        assert f"{hashlib.sha256((dist / name).read_bytes()).hexdigest()}  {name}" in notes
    start, _, _ = changes.partition(heading)[2].partition("\n\n#")
    assert start in notes
    assert "## Unreleased" not in notes

    again = release(clone, "9.9.10")

    assert again.stderr == "No release: CHANGELOG.md has nothing under '## Unreleased'.\n"


@pytest.mark.thorough
def test_a_dry_run_shows_a_release_and_changes_nothing(clone: Path) -> None:
    before = state(clone)

    dry = release(clone, "9.9.9", "--dry-run")

    assert dry.returncode == 0, dry.stderr
    assert "# RemoteClaw 9.9.9" in dry.stdout
    assert "nothing is committed" in dry.stdout
    assert state(clone) == before


@pytest.mark.thorough
def test_what_makes_no_release_is_refused_in_a_sentence_and_changes_nothing(clone: Path) -> None:
    before = state(clone)

    for version in ("1.2", "v1.2.3", "1.2.3-rc1", "01.2.3", "1.2.3; rm -rf /"):
        assert "is no version: write one such as 1.2.3" in release(clone, version).stderr
    old = f"No release: {__version__} is not after {__version__}, the version in "
    assert release(clone, __version__).stderr.startswith(old)
    for arguments in ((), ("1.2.3", "1.2.4"), ("--help",)):
        assert release(clone, *arguments).stderr == "Usage: scripts/release VERSION [--dry-run]\n"
    (clone / "forgotten.txt").touch()
    assert "has changes, such as forgotten.txt: commit" in release(clone, "9.9.9").stderr
    (clone / "forgotten.txt").unlink()
    git(clone, "tag", "v9.9.9")
    assert "there is a tag v9.9.9 already." in release(clone, "9.9.9").stderr
    git(clone, "tag", "-d", "v9.9.9")

    assert state(clone) == before

    (clone / CHECK).write_text("#!/bin/sh\necho 'Found 1 error.' >&2\nexit 1\n")
    commit(clone)
    assert release(clone, "9.9.9").stderr.endswith("scripts/check failed: Found 1 error.\n")
    project = clone / "pyproject.toml"
    (clone / CHECK).write_text("#!/bin/sh\n")
    project.write_text(re.sub("(?m)^readme = .*\n", "", project.read_text()))
    commit(clone)
    before = state(clone)
    assert "lacks the version or the README." in release(clone, "9.9.9").stderr
    assert state(clone) == before
