"""Directives for RemoteClaw in an answer: removed from the text, however the stream is split."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remoteclaw.bridge.directives import SILENT_REPLY_TOKEN, Directives
from tests.support.growth import is_linear, processor_s
from tests.support.rows import for_each

PIECES = st.sampled_from(
    [
        *(
            "[[reply_to_current]]",
            "[[ Reply_To_Current ]]",
            "[[reply_to:42]]",
            "[[reply_to: a b ]]",
        ),
        *(
            "[[reply_to:",
            "[[",
            "[",
            "]]",
            "]",
            "[[other]]",
            "[[reply_to_",
            "[[reply_to_currently]]",
        ),
        *(
            "[[attach:plot[1].png]]",
            "[[attach:a.txt]]",
            "[[ATTACH: my plot.png ]]",
            "[[attach:",
            "[[attach",
            "[[attach:]]",
        ),
        *("NO_REPLY", "no_reply", "NO_", "NO", "N", "_REPLY", "**NO_REPLY**", "NO_REPLY."),
        *(" ", "  ", "\n", "\n\n", "\t", "*", "`", "hello", "Hi there.", "a", "é", "0"),
    ]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def read(*deltas: str) -> tuple[str, Directives]:
    directives = Directives()
    return fed(directives, *deltas) + directives.finish(), directives


def fed(directives: Directives, *deltas: str) -> str:
    return "".join(piece for delta in deltas for piece in directives.feed(delta))


@given(TEXTS, st.lists(st.integers(1, 7), max_size=40))
@example("[[reply_to_currently]][[reply_to_current]]", [1, 1, 1, 1, 5, 7, 7])
@example("[[attach: \n\n[[reply_to_current]]", [1, 1, 1, 3, 7])
def test_directives_do_not_depend_on_how_the_stream_is_split(text: str, sizes: list[int]) -> None:
    deltas, position = [], 0
    for size in sizes:
        deltas.append(text[position : position + size])
        position += size
    whole, of_whole = read(text)
    split, of_split = read(*deltas, text[position:])

    assert split == whole
    assert (of_split.reply_to, of_split.is_silent) == (of_whole.reply_to, of_whole.is_silent)
    assert of_split.attached == of_whole.attached


@given(TEXTS)
def test_only_directives_are_removed_from_the_text(text: str) -> None:
    clean, directives = read(text)

    letters = iter(text)
    assert all(c in letters for c in clean if not c.isspace())  # a subsequence
    assert "[[reply_to_current]]" not in clean.lower()
    if SILENT_REPLY_TOKEN.lower() not in text.lower() and "[[" not in text:
        assert clean.strip() == text.strip()
        assert not directives.is_silent


@for_each(
    ("text", "clean", "reply_to"),
    [
        ("[[reply_to_current]] Hello", "Hello", ""),
        ("[[reply_to:42]]\nHello", "Hello", "42"),
        ("[[ reply_to : 42 ]] Hello", "[[ reply_to : 42 ]] Hello", None),
        ("[[REPLY_TO_CURRENT]]Hello", "Hello", ""),
        ("Hello [[reply_to:42]] world", "Hello world", "42"),
        ("Hello [[reply_to:42]]", "Hello ", "42"),
        ("[[reply_to:1]][[reply_to:2]] x", "x", "2"),
        ("[[reply_to:1]][[reply_to_current]] x", "x", "1"),
        ("[[reply_to:]] x", "x", None),
        ("if [[ -f x ]]; then", "if [[ -f x ]]; then", None),
        ("[[[reply_to_current]]]", "[]", ""),
    ],
)
def test_reply_tags_are_removed_and_name_the_quoted_message(
    text: str, clean: str, reply_to: str | None
) -> None:
    found, directives = read(text)

    assert (found, directives.reply_to) == (clean, reply_to)


@for_each(
    "text",
    [
        *(
            "NO_REPLY",
            " no_reply\n",
            "**NO_REPLY**",
            "`NO_REPLY`",
            "NO_REPLY.",
            "NO_REPLY NO_REPLY",
        ),
        "[[reply_to_current]] NO_REPLY",
    ],
)
def test_a_text_of_only_silent_tokens_is_silent(text: str) -> None:
    clean, directives = read(text)

    assert clean.strip() == ""
    assert directives.is_silent


@for_each(
    ("text", "clean"),
    [
        ("All is done.\n\nNO_REPLY", "All is done."),
        ("All is done.\n\n**NO_REPLY**\n", "All is done."),
        ("Here it is. NO_REPLY", "Here it is."),
        ("Here it is. **NO_REPLY**\n", "Here it is."),
        (
            "**Here** it is:\n- one\n- **two** NO_REPLY NO_REPLY",
            "**Here** it is:\n- one\n- **two**",
        ),
        ("Say `one` NO_REPLY", "Say `one`"),
        ("```\ncode\n```\nThat is it. NO_REPLY", "```\ncode\n```\nThat is it."),
        ("Here it is. NO_REPLY\n\nNO_REPLY", "Here it is."),
        ("Here it is. NO_REPLY\nAnd more", "Here it is. NO_REPLY\nAnd more"),
        ("Here it is. NO_REPLY [[attach:a]]", "Here it is."),
        ("Say `NO_REPLY`", "Say `NO_REPLY`"),
        ("The word for silence is NO_REPLY.", "The word for silence is NO_REPLY."),
        ('The word for silence is "NO_REPLY"', 'The word for silence is "NO_REPLY"'),
        ("Set DO_NO_REPLY", "Set DO_NO_REPLY"),
        ("Say NO", "Say NO"),
        ("```\nreturn NO_REPLY\n```", "```\nreturn NO_REPLY\n```"),
        ("NO_REPLY: that is the word", "NO_REPLY: that is the word"),
        ("Say NO_REPLY to be silent", "Say NO_REPLY to be silent"),
        ("NOTHING", "NOTHING"),
        ("NO", "NO"),
        ("mail noreply@example.org or no_reply", "mail noreply@example.org or no_reply"),
        ("THE_NO_REPLY", "THE_NO_REPLY"),
        ('{"action": "NO_REPLY"}', '{"action": "NO_REPLY"}'),
        ("", ""),
    ],
)
def test_a_text_with_other_words_is_not_silent(text: str, clean: str) -> None:
    found, directives = read(text)

    assert found.rstrip(" \n") == clean
    assert not directives.is_silent


def test_an_incomplete_tag_or_token_is_not_shown() -> None:
    directives = Directives()

    assert fed(directives, *"[[reply_to:42]]") == ""
    assert fed(directives, *"NO_REPLY") == ""
    assert fed(Directives(), *"Here it is. **NO_REPLY** ") == "Here it is."


@pytest.mark.parametrize(
    ("before", "piece", "after"),
    [
        *(("", "[", ""), ("", "[[r", ""), ("", "NO_REPLY ", "x"), ("", "\n", "x"), ("", "`", "")),
        *(("NO_REPLY", "\n", "x"), ("", " N", ""), ("", "x" + " " * 500, "")),
        *(
            ("x", " NO_REPLY", ""),
            ("", "N\n", ""),
            ("", "NO_REPLY\n", "x"),
            ("", "[[reply_to:1]]", ""),
        ),
    ],
)
def test_long_texts_take_linear_time(before: str, piece: str, after: str) -> None:
    def whole_and_in_parts(size: int) -> None:
        text = before + piece * (size // len(piece)) + after
        parts = [text[at : at + 50] for at in range(0, len(text), 50)]
        assert read(*parts)[0] == read(text)[0]

    assert is_linear(whole_and_in_parts)


@pytest.mark.parametrize(
    "piece", ["[[attach:", "[[reply_to:", "[[attach:" + " " * 4000, "[[attach:x]", "[[attach:x["]
)
def test_unclosed_tags_cost_little_more_time_than_closed_tags(piece: str) -> None:
    size = 100_000
    closed, never_closed = "[[reply_to:1]]", piece
    floor = processor_s(lambda: read(closed * (size // len(closed))))

    assert processor_s(lambda: read(never_closed * (size // len(piece)))) < 8 * floor


def test_a_file_tag_can_hold_a_long_path() -> None:
    path = "/".join(["d" * 100] * 20)

    clean, directives = read(*f"Here: [[attach:{path}]]")

    assert (clean, directives.attached) == ("Here: ", [path])
