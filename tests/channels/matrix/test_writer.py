"""Markdown as contents of messages, within the limits of events."""

import pytest

from remoteclaw.channels.matrix.api import json_of
from remoteclaw.channels.matrix.contents import edit_of
from remoteclaw.channels.matrix.writer import content_of
from tests.channels.matrix.conftest import WORST, worst


@pytest.mark.parametrize("text", WORST)
def test_a_content_is_small_enough_to_be_encrypted(text: str) -> None:
    """Also an edit: the event has at most 65,536 bytes, of which 4/3 are the content."""
    content = content_of(worst(text), is_quiet=False)
    assert len(json_of(content)) <= 39_000
    assert len(json_of(edit_of(f"${'e' * 43}", content))) <= 42_000


def test_only_what_is_too_large_has_no_html() -> None:
    assert "formatted_body" not in content_of(worst("<"), is_quiet=False)
    assert "formatted_body" in content_of(worst("word "), is_quiet=False)


def test_characters_that_nobody_sees_are_left_out() -> None:
    content = content_of("a\x00b\x1b[31m\tc\nd\x7f", is_quiet=False)
    assert content["body"] == "ab[31m\tc\nd"
