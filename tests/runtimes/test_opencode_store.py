"""Opencode's record of a conversation, in its database."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoteclaw.protocols import TranscriptItem
from remoteclaw.runtimes.opencode_store import OpencodeTranscript
from remoteclaw.tty.transcript_events import Copies
from tests.support.opencode import MAIN, Store


@pytest.fixture
def store(directory: Path) -> Iterator[Store]:
    store = Store(directory)
    yield store
    store.close()


DONE = {"completed": 9}
BASH = {"tool": "bash", "state": {"status": "running", "input": {"command": "ls  -l"}}}


def test_each_part_comes_once_when_it_is_complete(store: Store, directory: Path) -> None:
    transcript = OpencodeTranscript(MAIN, {"HOME": str(directory)})
    seen: list[TranscriptItem] = []
    position = ""

    def told() -> list[str]:
        nonlocal position
        items, position = transcript.read(position)
        seen.extend(items)
        return [item.text for item in items]

    assert transcript.is_there
    store.message("msg_1", "user", summary={"diffs": []})
    assert told() == []
    store.part("prt_1", "msg_1", "text", text='[remoteclaw {"id": "1"}]\n\nplum')
    assert told() == ["plum"]
    store.part("prt_2", "msg_1", "text", text="a file's content", synthetic=True)
    store.message("msg_2", "assistant")
    store.part("prt_3", "msg_2", "text", text="I w", time={"start": 1})
    assert told() == []
    store.part("prt_3", "msg_2", "text", text="I will.", time={"start": 1, "end": 2})
    store.part("prt_4", "msg_2", "tool", **BASH)
    assert told() == ["I will."]
    store.part("prt_4", "msg_2", "tool", **{**BASH, "state": {**BASH["state"], "status": "error"}})  # type: ignore[dict-item]
    assert told() == ["ls -l"]
    assert told() == []
    store.message("msg_2", "assistant", time=DONE)
    store.message("msg_3", "assistant", time=DONE, error={"name": "MessageAbortedError"})
    assert told() == ["Interrupted."]
    assert told() == []
    end = transcript.end()
    store.message("msg_4", "user")
    store.part("prt_5", "msg_4", "compaction")
    store.message("msg_5", "assistant", time=DONE, summary=True)
    store.part("prt_6", "msg_5", "text", text="a summary", time={"end": 1})
    store.message("msg_6", "user", "ses_other")
    store.message("msg_7", "assistant")  # it dies
    store.part("prt_7", "msg_7", "text", text="half", time={"start": 1})
    assert told() == ["The conversation was compacted."]
    store.message("msg_8", "assistant", time=DONE)
    assert told() == ["half"]

    assert transcript.read("")[0] == seen
    assert transcript.read(end)[0] == seen[4:]
    assert [item.kind for item in seen] == ["user", "agent", "tool", "notice", "notice", "agent"]
    assert (seen[2].name, seen[2].id, seen[2].at_ms) == ("bash", "prt_4", 2)


def test_a_store_of_another_version_is_an_error_that_names_it(directory: Path) -> None:
    file = directory / "opencode" / "opencode.db"
    file.parent.mkdir()
    sqlite3.connect(file).close()
    transcript = OpencodeTranscript(MAIN, {"XDG_DATA_HOME": str(directory)})

    with pytest.raises(OSError, match=rf"opencode's record {file} can't be read: no such table"):
        transcript.read("")
    assert not transcript.is_there


def test_what_a_fork_has_copied_is_as_old_as_it_was(store: Store, directory: Path) -> None:
    """Its parts are new; and of two conversations of a terminal, each thing is told once."""
    store.message("msg_1", "user", "ses_fork", time={"created": 1})
    store.part("prt_1", "msg_1", "text", text="plum")
    items, _ = OpencodeTranscript("ses_fork", {"HOME": str(directory)}).read("")
    assert [(item.text, item.at_ms) for item in items] == [("plum", 1)]

    copies, later = Copies(), TranscriptItem("prt_0", "user", "plum", at_ms=2)
    before = TranscriptItem("prt_0", "user", "plum", at_ms=1)
    assert copies.left_out([before, before], of=MAIN) == [before, before]
    assert copies.left_out([*items, later], of="ses_fork") == [later]
