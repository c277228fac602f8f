"""Past conversations of a workspace, as the CLIs store them."""

import hashlib
import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.runtimes.past_conversations import past_conversations
from remoteclaw.session.record import digest

HEADER = '[remoteclaw {"from":{"id":"ada"}}]\n\n'
IDS = [f"{number:08d}-0000-0000-0000-000000000000" for number in range(9)]


def write_lines(file: Path, *lines: Any, at: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "{broken\n")
    os.utime(file, (at, at))


def claude_message(text: str, cwd: Path, **more: object) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "user", "cwd": str(cwd), "message": {"content": content}, **more}


def titles(
    runtime: str, workspace: Path, home: Path, limit: int = 9
) -> list[tuple[str, str]] | None:
    found = past_conversations(runtime, str(workspace), {"HOME": str(home)}, limit=limit)
    return None if found is None else [(each.id, each.title) for each in found]


def test_claudes_past_conversations_are_newest_first_with_their_first_message(
    directory: Path,
) -> None:
    work = directory / "my work"
    place = directory / ".claude/projects" / re.sub("[^A-Za-z0-9]", "-", str(work))
    write_lines(
        place / f"{IDS[1]}.jsonl", {"type": "x"}, claude_message(f"{HEADER}one\ntwo", work), at=1
    )
    skipped = claude_message("not a person's", work, isMeta=True)
    added = claude_message("<command-name>/x</command-name>", work)
    write_lines(place / f"{IDS[2]}.jsonl", skipped, added, claude_message("y" * 99, work), at=2)
    # Another workspace whose directory name is the same, and a file that is no conversation.
    write_lines(place / f"{IDS[3]}.jsonl", claude_message("other", directory / "my-work"), at=3)
    write_lines(place / "notes.jsonl", claude_message("notes", work), at=4)

    assert titles("claude", work, directory) == [(IDS[2], "y" * 69 + "…"), (IDS[1], "one two")]
    assert titles("claude", work, directory, limit=1) == [(IDS[2], "y" * 69 + "…")]


def test_codexs_past_conversations_are_those_of_the_workspace(directory: Path) -> None:
    def session(number: int, cwd: Path, text: str) -> None:
        about = {"id": IDS[number], "cwd": str(cwd)}
        content = [{"type": "input_text", "text": text}]
        write_lines(
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


def test_opencodes_past_conversations_are_read_from_its_database(directory: Path) -> None:
    file = directory / ".local/share/opencode/opencode.db"
    file.parent.mkdir(parents=True)
    with sqlite3.connect(file) as database:
        database.execute(
            "CREATE TABLE session (id, directory, parent_id, time_archived, time_updated)"
        )
        database.execute("CREATE TABLE message (id, session_id, time_created, data)")
        database.execute("CREATE TABLE part (id, message_id, data)")
        sessions = [
            ("ses_1", str(directory), None, None, 1000),
            ("ses_2", str(directory / "elsewhere"), None, None, 2000),
            ("ses_3", str(directory), None, None, 3000),
            ("ses_4", str(directory), "ses_3", None, 4000),
            ("ses_5", str(directory), None, 5000, 5000),
        ]
        database.executemany("INSERT INTO session VALUES (?, ?, ?, ?, ?)", sessions)
        for session, *_ in sessions:
            for role, text in (("assistant", "not a person's"), ("user", f"about {session}")):
                names = (f"{session}-{role}", session, 1, json.dumps({"role": role}))
                database.execute("INSERT INTO message VALUES (?, ?, ?, ?)", names)
                part = (names[0], names[0], json.dumps({"type": "text", "text": text}))
                database.execute("INSERT INTO part VALUES (?, ?, ?)", part)
    database.close()

    found = [("ses_3", "about ses_3"), ("ses_1", "about ses_1")]
    assert titles("opencode", directory, directory) == found
    file.write_bytes(b"another version's")
    assert titles("opencode", directory, directory) == []


def test_geminis_past_conversations_have_notes_of_their_messages(directory: Path) -> None:
    def session(number: int, workspace: Path, text: str) -> None:
        project = hashlib.sha256(str(workspace).encode()).hexdigest()
        write_lines(
            directory / f".gemini/tmp/work/chats/session-2026-11-0{number}T10-00-{number}.jsonl",
            {"sessionId": IDS[number], "projectHash": project},
            {"id": "0", "type": "user", "content": [{"text": "<session_context>"}]},
            {"id": "1", "type": "user", "content": [{"text": f"Be nice.\n\n{HEADER}{text}"}]},
            {"$set": {"lastUpdated": "…"}},
            {"id": "2", "type": "gemini", "content": "", "toolCalls": []},
            {"id": "3", "type": "gemini", "content": f"{text}!"},
            at=number,
        )

    session(1, directory, "one")
    session(2, directory / "elsewhere", "two")

    assert titles("gemini", directory, directory) == [(IDS[1], "one")]
    found = past_conversations("gemini", str(directory), {"HOME": str(directory)}, limit=9)
    assert found is not None
    assert found[0].notes is not None
    record = found[0].notes()
    notes = [json.loads(line) for line in record.splitlines()]
    assert [(note["role"], note["text"]) for note in notes] == [("user", "one"), ("agent", "one!")]
    assert len(digest(record.encode())) == 2


@pytest.mark.parametrize(
    ("runtime", "found"),
    [("claude", []), ("codex", []), ("gemini", []), ("opencode", []), ("acp", None)],
)
def test_without_stored_conversations_none_are_found(
    directory: Path, runtime: str, found: list[tuple[str, str]] | None
) -> None:
    assert titles(runtime, directory, directory) == found
