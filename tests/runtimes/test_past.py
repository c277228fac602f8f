"""Past conversations that CLIs keep of a workspace."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.runtimes.past import past_conversations

IDS = [f"{number:08d}-0000-0000-0000-000000000000" for number in range(9)]


def written(file: Path, *lines: Any, at: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "{broken\n")
    os.utime(file, (at, at))


def to_claude(text: str, cwd: Path, **more: object) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "user", "cwd": str(cwd), "message": {"content": content}, **more}


def titles(
    runtime: str, workspace: Path, home: Path, most: int = 9
) -> list[tuple[str, str]] | None:
    found = past_conversations(runtime, str(workspace), {"HOME": str(home)}, most=most)
    return None if found is None else [(each.id, each.title) for each in found]


def test_claude_s_newest_come_first_with_what_was_said_first(directory: Path) -> None:
    work = directory / "my work"
    place = directory / ".claude/projects" / re.sub("[^A-Za-z0-9]", "-", str(work))
    header = '[remoteclaw {"from":{"id":"ada"}}]\n\n'
    written(place / f"{IDS[1]}.jsonl", {"type": "x"}, to_claude(f"{header}one\ntwo", work), at=1)
    skipped = to_claude("not a person's", work, isMeta=True)
    added = to_claude("<command-name>/x</command-name>", work)
    written(place / f"{IDS[2]}.jsonl", skipped, added, to_claude("y" * 99, work), at=2)
    # The same directory's name, another workspace; and no conversation.
    written(place / f"{IDS[3]}.jsonl", to_claude("other", directory / "my-work"), at=3)
    written(place / "notes.jsonl", to_claude("notes", work), at=4)

    assert titles("claude", work, directory) == [(IDS[2], "y" * 69 + "…"), (IDS[1], "one two")]
    assert titles("claude", work, directory, most=1) == [(IDS[2], "y" * 69 + "…")]


def test_codex_s_are_those_of_the_workspace(directory: Path) -> None:
    def session(number: int, cwd: Path, said: str) -> None:
        about = {"id": IDS[number], "cwd": str(cwd)}
        content = [{"type": "input_text", "text": said}]
        written(
            directory / f".codex/sessions/2026/11/0{number}/rollout-x-{IDS[number]}.jsonl",
            {"type": "session_meta", "payload": about},
            {"type": "response_item", "payload": {"role": "developer", "content": content}},
            {"type": "response_item", "payload": {"role": "user", "content": [{"text": "<env>"}]}},
            {"type": "response_item", "payload": {"role": "user", "content": content}},
            at=number,
        )

    session(1, directory, "one")
    session(2, directory / "elsewhere", "two")
    session(3, directory, "three")

    assert titles("codex", directory, directory) == [(IDS[3], "three"), (IDS[1], "one")]


@pytest.mark.parametrize(("runtime", "found"), [("claude", []), ("codex", []), ("gemini", None)])
def test_nothing_known_is_nothing_found(
    directory: Path, runtime: str, found: list[tuple[str, str]] | None
) -> None:
    assert titles(runtime, directory, directory) == found
