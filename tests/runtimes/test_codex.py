"""What codex may do without being asked: look around, where it works."""

from pathlib import Path
from typing import Any

import pytest

from remoteclaw.runtimes.codex_turn import only_looks
from remoteclaw.runtimes.jsonrpc import Message


def command(*actions: dict[str, Any], cwd: str, method: str = "commandExecution") -> Message:
    params = {"cwd": cwd, "commandActions": [*actions]}
    return Message(method=f"item/{method}/requestApproval", id=0, params=params)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work" / "src").mkdir(parents=True)
    (tmp_path / "files").mkdir()
    (tmp_path / "work" / "link").symlink_to("/etc")
    return tmp_path / "work"


@pytest.mark.parametrize(
    ("action", "is_harmless"),
    [
        ({"type": "read", "path": "src/a.py"}, True),
        ({"type": "read", "path": "{files}/1-0/1-a.txt"}, True),
        ({"type": "listFiles", "path": None}, True),
        ({"type": "search", "path": "src", "query": "x"}, True),
        ({"type": "read", "path": "/etc/passwd"}, False),
        ({"type": "read", "path": "../secret"}, False),
        ({"type": "read", "path": "link/passwd"}, False),
        ({"type": "unknown", "command": "rm -rf ."}, False),
    ],
)
def test_looking_around_needs_nobody(work: Path, action: dict[str, Any], is_harmless: bool) -> None:
    files = work.parent / "files"
    if path := action.get("path"):
        action = {**action, "path": path.format(files=files)}

    assert only_looks(command(action, cwd=str(work)), (work, files)) is is_harmless


def test_one_action_that_does_more_is_enough_to_ask(work: Path) -> None:
    look, do = {"type": "read", "path": "a"}, {"type": "unknown"}

    assert not only_looks(command(look, do, cwd=str(work)), (work,))
    assert not only_looks(command(cwd=str(work)), (work,))
    assert not only_looks(command(look, cwd="/"), (work,))
    assert not only_looks(command(look, cwd=str(work), method="fileChange"), (work,))
