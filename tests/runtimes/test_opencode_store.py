"""Opencode's record of a conversation, in its database."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoteclaw.protocols import TranscriptItem
from remoteclaw.runtimes.opencode.store import OpencodeTranscript
from remoteclaw.tty.transcript_events import CopyFilter
from tests.support.opencode import MAIN, Store


@pytest.fixture
def store(directory: Path) -> Iterator[Store]:
    store = Store(directory)
    yield store
    store.close()


DONE = {"completed": 9}
BASH = {"tool": "bash", "state": {"status": "running", "input": {"command": "ls  -l"}}}


def test_each_part_is_read_once_when_it_is_complete(store: Store, directory: Path) -> None:
    transcript = OpencodeTranscript(MAIN, {"HOME": str(directory)})
    seen: list[TranscriptItem] = []
    position = ""

    def read_texts() -> list[str]:
        nonlocal position
        items, position = transcript.read(position)
        seen.extend(items)
        return [item.text for item in items]

    assert transcript.is_resumable
    store.message("msg_1", "user", summary={"diffs": []})
    assert read_texts() == []
    store.part("prt_1", "msg_1", "text", text='[remoteclaw {"id": "1"}]\n\nplum')
    assert read_texts() == ["plum"]
    store.part("prt_2", "msg_1", "text", text="a file's content", synthetic=True)
    store.message("msg_2", "assistant")
    store.part("prt_3", "msg_2", "text", text="I w", time={"start": 1})
    assert read_texts() == []
    store.part("prt_3", "msg_2", "text", text="I will.", time={"start": 1, "end": 2})
    store.part("prt_4", "msg_2", "tool", **BASH)
    assert read_texts() == ["I will."]
    store.part("prt_4", "msg_2", "tool", **{**BASH, "state": {**BASH["state"], "status": "error"}})  # type: ignore[dict-item]
    assert read_texts() == ["ls -l"]
    assert read_texts() == []
    store.message("msg_2", "assistant", time=DONE)
    store.message("msg_3", "assistant", time=DONE, error={"name": "MessageAbortedError"})
    assert read_texts() == ["Interrupted."]
    assert read_texts() == []
    end = transcript.end()
    store.message("msg_4", "user")
    store.part("prt_5", "msg_4", "compaction")
    store.message("msg_5", "assistant", time=DONE, summary=True)
    store.part("prt_6", "msg_5", "text", text="a summary", time={"end": 1})
    store.message("msg_6", "user", "ses_other")
    store.message("msg_7", "assistant")  # it dies
    store.part("prt_7", "msg_7", "text", text="half", time={"start": 1})
    assert read_texts() == ["The conversation was compacted."]
    store.message("msg_8", "assistant", time=DONE)
    assert read_texts() == ["half"]

    assert transcript.read("")[0] == seen
    assert transcript.read(end)[0] == seen[4:]
    assert [item.kind for item in seen] == ["user", "agent", "tool", "notice", "notice", "agent"]
    assert (seen[2].name, seen[2].id, seen[2].at_ms) == ("bash", "prt_4", 2)


def test_a_database_of_another_version_is_an_error_that_names_the_file(directory: Path) -> None:
    file = directory / "opencode" / "opencode.db"
    file.parent.mkdir()
    sqlite3.connect(file).close()
    transcript = OpencodeTranscript(MAIN, {"XDG_DATA_HOME": str(directory)})

    with pytest.raises(OSError, match=rf"opencode's record {file} can't be read: no such table"):
        transcript.read("")
    assert not transcript.is_resumable


def test_messages_that_a_fork_has_copied_keep_their_time(store: Store, directory: Path) -> None:
    """The copied parts have new ids; a terminal still publishes each item once."""
    store.message("msg_1", "user", "ses_fork", time={"created": 1})
    store.part("prt_1", "msg_1", "text", text="plum")
    items, _ = OpencodeTranscript("ses_fork", {"HOME": str(directory)}).read("")
    assert [(item.text, item.at_ms) for item in items] == [("plum", 1)]

    copies, later = CopyFilter(), TranscriptItem("prt_0", "user", "plum", at_ms=2)
    before = TranscriptItem("prt_0", "user", "plum", at_ms=1)
    assert copies.without_copies([before, before], conversation=MAIN) == [before, before]
    assert copies.without_copies([*items, later], conversation="ses_fork") == [later]
