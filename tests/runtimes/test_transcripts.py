"""Transcripts of CLIs: each complete line is read once. The recorded transcripts are real."""

import os
from pathlib import Path

import orjson
import pytest

from remoteclaw.protocols import TranscriptItem
from remoteclaw.runtimes import terminal as files
from remoteclaw.runtimes.claude import transcript as claude_transcript
from remoteclaw.runtimes.codex import rollouts as codex_rollouts
from remoteclaw.runtimes.terminal import LineFile, RecordTranscript
from tests.support.recording import DIRECTORY

RECORDED = DIRECTORY / "transcripts"
CLAUDE = [
    ("user", "SHELL:sleep 2; echo one", ""),
    ("tool", "sleep 2; echo one", "Bash"),
    ("user", "also SAY:steered", ""),
    ("agent", "DONE one", ""),
    ("notice", "! echo sh", ""),
    ("agent", "ECHO <bash-stdout>sh</bash-stdout><bash-stderr></bash-stderr>", ""),
    ("user", "SHELL:touch made_it", ""),
    ("tool", "touch made_it", "Bash"),
    ("notice", "The request was interrupted.", ""),
    ("notice", "/model", ""),
    ("user", "HTTP:400:context", ""),
    ("notice", "The conversation was compacted.", ""),
    ("notice", "Prompt is too long", ""),
    ("user", "SAY:two\nlines", ""),
    ("agent", "two", ""),
    ("user", "SAY:more", ""),
    ("agent", "more", ""),
    ("notice", "The conversation was compacted.", ""),
    ("notice", "/compact", ""),
    ("user", "SAY:after", ""),
    ("agent", "after", ""),
]
CODEX = [
    ("user", "SHELL:sleep 2; echo one", ""),
    ("tool", "sleep 2; echo one", "exec_command"),
    ("user", "also SAY:steered", ""),
    ("agent", "steered", ""),
    ("user", "HTTP:400:bad thing", ""),
    (
        "notice",
        "We\u2019re currently experiencing high demand, which may cause temporary errors.",
        "",
    ),
    ("notice", "! echo sh", ""),
    ("notice", "The conversation was compacted.", ""),
    ("user", 'TOOL:update_plan {"plan":[{"step":"a","status":"pending"}]}', ""),
    ("tool", "", 'update_plan {"plan"'),
    ("agent", 'DONE unsupported call: update_plan {"plan"', ""),
]


def claude_at(path: Path) -> RecordTranscript:
    return RecordTranscript(lambda: path, claude_transcript.items_of)


def all_of(transcript: RecordTranscript, position: str = "") -> tuple[list[TranscriptItem], str]:
    """Read until the position no longer changes."""
    items: list[TranscriptItem] = []
    while True:
        more, next_position = transcript.read(position)
        if next_position == position:
            return items, position
        items, position = items + more, next_position


def append_messages(path: Path, *texts: str) -> None:
    with path.open("ab") as file:
        for text in texts:
            record = {"type": "user", "uuid": text, "message": {"content": text}}
            file.write(orjson.dumps(record) + b"\n")


def texts_of(items: list[TranscriptItem]) -> list[str]:
    return [item.text for item in items]


# -- items ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cli", ["claude", "codex"])
def test_a_recorded_transcript_yields_only_visible_messages_tools_and_notices(cli: str) -> None:
    """No meta records, no summaries of compactions, no output of tools."""
    (path,) = RECORDED.glob(f"{cli}-*.jsonl")
    items_of, expected = {
        "claude": (claude_transcript.items_of, CLAUDE),
        "codex": (codex_rollouts.items_of, CODEX),
    }[cli]
    items, _ = all_of(RecordTranscript(lambda: path, items_of))

    assert [(item.kind, item.text, item.name) for item in items] == expected
    assert len({item.id for item in items}) == len(items)
    assert all(item.at_ms > 1_700_000_000_000 for item in items)


def test_a_recorded_transcript_contains_no_paths_of_a_machine() -> None:
    for path in RECORDED.iterdir():
        for forbidden in ("/tmp", "/root", "127.0.0.1", "-tmp-"):
            assert forbidden not in path.read_text()


@pytest.mark.parametrize(
    "flag", ["isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly"]
)
def test_internal_records_of_claude_yield_no_items(flag: str) -> None:
    record = {"type": "user", "uuid": "u", "message": {"content": "x"}}

    assert list(claude_transcript.items_of(record))
    assert not list(claude_transcript.items_of({**record, flag: True}))


REFUSED = [
    {"type": "user", "uuid": "u1", "parentUuid": None},
    {"type": "assistant", "uuid": "a1", "parentUuid": "u1"},
    {"type": "system", "uuid": "s1", "parentUuid": "a1"},
    {"type": "user", "uuid": "u2", "parentUuid": "s1"},
    {"type": "attachment", "uuid": "x1", "parentUuid": "u2"},
    {"type": "assistant", "uuid": "a2", "parentUuid": "x1", "isApiErrorMessage": True},
    {"type": "last-prompt"},
]


@pytest.mark.parametrize(
    ("records", "end"),
    [
        (REFUSED, "a1"),
        (REFUSED[:4], "a1"),
        (REFUSED[3:], claude_transcript.NOTHING),
        ([*REFUSED, {"type": "user", "uuid": "s", "isSidechain": True}], "a1"),
        (REFUSED[:3], None),
        ([*REFUSED, {"type": "user", "uuid": "u3", "parentUuid": "a2"}], None),
        ([*REFUSED, {"type": "assistant", "uuid": "a3", "parentUuid": "u2"}], None),
        ([], None),
    ],
)
def test_a_conversation_is_cut_only_before_its_last_message_that_was_refused(
    tmp_path: Path, records: list[dict[str, object]], end: str | None
) -> None:
    """A person may have gone on in a terminal, or the agent may have worked."""
    file = tmp_path / "transcript.jsonl"
    file.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))

    assert claude_transcript.end_before("u2", file) == end


@pytest.mark.parametrize("record", [{}, {"type": "user", "message": 3}, {"payload": [1]}])
def test_malformed_records_yield_no_items(record: dict[str, object]) -> None:
    assert not list(claude_transcript.items_of(record))
    assert not list(codex_rollouts.items_of(record))


# -- lines ----------------------------------------------------------------------------------------


def test_each_line_is_read_once_and_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "x"
    transcript = claude_at(path)
    assert (transcript.read(""), transcript.end(), transcript.is_resumable) == (([], ""), "", False)

    append_messages(path, "one", "two")
    whole = path.read_bytes()
    read: list[str] = []
    position = ""
    path.write_bytes(b"")
    for byte in whole:
        with path.open("ab") as file:
            file.write(bytes([byte]))
        items, position = all_of(transcript, position)
        read += texts_of(items)
    assert read == ["one", "two"]
    assert position == transcript.end()
    assert transcript.is_resumable


def test_the_end_of_a_transcript_is_after_its_last_complete_line(tmp_path: Path) -> None:
    path = tmp_path / "x"
    append_messages(path, "before")
    with path.open("ab") as file:
        file.write(b'{"half' + b"x" * 200_000)
    end = claude_at(path).end()
    with path.open("ab") as file:
        file.write(b'"}\n')
    append_messages(path, "after")

    assert texts_of(all_of(claude_at(path), end)[0]) == ["after"]


def test_a_replaced_or_truncated_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "x"
    append_messages(path, "one", "two")
    _, position = all_of(claude_at(path))
    append_messages(tmp_path / "y", "new", "newer", "newest")
    os.replace(tmp_path / "y", path)
    assert texts_of(all_of(claude_at(path), position)[0]) == ["new", "newer", "newest"]

    _, position = all_of(claude_at(path))
    os.truncate(path, path.read_bytes().index(b"\n") + 1)
    assert texts_of(all_of(claude_at(path), position)[0]) == ["new"]
    for nonsense in ("x", "1:2:3", f"{position}x", ":"):
        assert texts_of(all_of(claude_at(path), nonsense)[0]) == ["new"]


def test_an_oversized_line_of_a_transcript_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 200)
    path = tmp_path / "x"
    append_messages(path, "one", "x" * 1000, "two")

    assert texts_of(all_of(claude_at(path))[0]) == ["one", "two"]


def test_a_long_transcript_is_read_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "x"
    append_messages(path, *(str(number) for number in range(1000)))

    first, position = claude_at(path).read("")
    assert len(first) == files.READ_ITEMS
    assert len(all_of(claude_at(path), position)[0]) == 1000 - len(first)
    assert LineFile(path).has_more(position)
    assert not LineFile(path).has_more(claude_at(path).end())
