"""Files that a message names."""

from pathlib import Path

import pytest

from remoteclaw.chat.files import named_files
from tests.support.rows import for_each


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("shot one.png", "it's.jpg", "notes.txt", "ü.pdf"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "dir.png").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    "word",
    [
        r"{}/shot\ one.png",
        "'{}/shot one.png'",
        '"{}/shot one.png"',
        "file://{}/shot%20one.png",
        r"~/shot\ one.png",
    ],
)
def test_a_dropped_picture_is_found_in_every_quoting_of_terminals(folder: Path, word: str) -> None:
    word = word.replace("{}", str(folder))

    (found,) = named_files(f"What is on {word} here?")

    assert found == (word, folder / "shot one.png")


def test_a_message_may_name_several_pictures(folder: Path) -> None:
    found = named_files(f'Compare {folder}/ü.pdf and "{folder}/it\'s.jpg"')

    assert [path.name for _, path in found] == ["ü.pdf", "it's.jpg"]


def test_another_file_is_sent_only_if_its_path_is_the_whole_message(folder: Path) -> None:
    assert [path.name for _, path in named_files(f" {folder}/notes.txt\n")] == ["notes.txt"]
    assert named_files(f"Read {folder}/notes.txt") == []


@for_each(
    "text",
    [
        "shot.png",
        "{}/missing.png",
        "{}/dir.png",
        "https://example.org/a.png",
        "it's {}/it's.jpg",
        "/a\0b.png",
        "",
        "'",
    ],
)
def test_a_text_without_an_existing_picture_sends_no_file(folder: Path, text: str) -> None:
    assert named_files(text.replace("{}", str(folder))) == []
