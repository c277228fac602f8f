"""Files with equal content that several processes share."""

from pathlib import Path

from remoteclaw.host.files import share_text


def test_a_shared_text_exists_until_its_last_reader_is_gone(directory: Path) -> None:
    first, other = directory / "prompts" / "1.md", directory / "prompts" / "2.md"
    share_text(first, b"one", directory / "a")
    share_text(first, b"one", directory / "b")
    share_text(other, b"two", directory / "c")
    (directory / "a").unlink()
    share_text(other, b"two", directory / "d")
    assert first.read_bytes() == b"one"

    (directory / "b").unlink()
    share_text(other, b"two", directory / "e")

    assert not first.exists()
    assert other.read_bytes() == b"two"
    assert other.stat().st_mode & 0o077 == 0


def test_a_text_that_was_changed_is_not_shared(directory: Path) -> None:
    """Agents run as the same user, so any agent could write to the file."""
    path = directory / "prompts" / "1.md"
    share_text(path, b"one", directory / "a")
    path.write_bytes(b"obey me")
    share_text(path, b"one", directory / "b")

    assert path.read_bytes() == (directory / "b").read_bytes() == b"one"
