"""Chunks: within the limit, nothing lost or invented, fences whole, however the text arrives."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.bridge.delivery import ANEW, SMALLEST_LIMIT, Chunker

WORDS = st.text(st.sampled_from("ab c\n"), max_size=30)
FENCED = st.builds(
    lambda mark, info, body: f"{mark}{info}\n{body}\n{mark}\n",
    st.sampled_from(["```", "~~~", "````"]),
    st.sampled_from(["", "python", "js title=x"]),
    st.text(st.sampled_from("xy z\n  "), max_size=400),
)
MARKDOWN = st.lists(WORDS | FENCED | st.just("\n\n") | st.just("w" * 300), max_size=12).map("".join)
LIMITS = st.integers(SMALLEST_LIMIT, 300)


def chunks_of(text: str, limit: int, sizes: list[int] | None = None) -> list[str]:
    chunker = Chunker(limit)
    chunks, position = [], 0
    for size in sizes or []:
        chunks += chunker.feed(text[position : position + size])
        position += size
    chunks += chunker.feed(text[position:])
    return [*chunks, *([last] if (last := chunker.finish()) else [])]


def visible(text: str) -> str:
    """A text without white space and without fence lines, which chunks may add and drop."""
    lines = [line for line in text.split("\n") if not re.match(r" {0,3}(```|~~~)", line)]
    return re.sub(r"\s", "", "".join(lines))


@given(MARKDOWN, LIMITS)
def test_no_chunk_is_longer_than_the_limit(text: str, limit: int) -> None:
    assert all(len(chunk) <= limit for chunk in chunks_of(text, limit))


@given(MARKDOWN, LIMITS)
def test_nothing_is_lost_or_invented(text: str, limit: int) -> None:
    assert "".join(visible(chunk) for chunk in chunks_of(text, limit)) == visible(text)


@given(MARKDOWN, LIMITS)
def test_every_fence_that_is_opened_is_closed(text: str, limit: int) -> None:
    for chunk in chunks_of(text, limit):
        opened = None
        for line in chunk.split("\n"):
            if mark := re.match(r" {0,3}(`{3,}|~{3,})(.*)", line):
                if opened is None:
                    opened = mark[1]
                elif mark[1].startswith(opened) and not mark[2].strip():
                    opened = None
        assert opened is None


@given(MARKDOWN, LIMITS, st.lists(st.integers(1, 40), max_size=60))
def test_how_the_stream_is_cut_makes_no_difference(text: str, limit: int, sizes: list[int]) -> None:
    assert chunks_of(text, limit, sizes) == chunks_of(text, limit)


@given(MARKDOWN, LIMITS)
def test_no_chunk_is_empty(text: str, limit: int) -> None:
    assert all(chunk.strip() for chunk in chunks_of(text, limit))


PROSE = st.lists(
    st.tuples(st.text("abc", min_size=1, max_size=10), st.sampled_from([" ", "\n", "\n\n"])),
    min_size=100,
    max_size=300,
).map(lambda pairs: "".join(word + gap for word, gap in pairs))


@given(PROSE, LIMITS)
def test_chunks_are_not_tiny(text: str, limit: int) -> None:
    """A blank line near the start must not make a chunk of three characters."""
    assert all(len(chunk) >= limit // 4 for chunk in chunks_of(text, limit)[:-1])


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a" * 50 + "\n\n" + "b" * 20 + "\n" + "c" * 60, "a" * 50),
        ("a" * 50 + "\n" + "b" * 10 + " " + "c" * 60, "a" * 50),
        ("a" * 50 + " " + "b" * 60, "a" * 50),
        ("a" * 120, "a" * 82),
    ],
    ids=["paragraph", "line", "word", "anywhere"],
)
def test_the_best_place_is_taken(text: str, first: str) -> None:
    assert chunks_of(text, 100)[0] == first


def test_a_fence_is_closed_and_opened_again_with_its_language() -> None:
    code = "".join(f"line {number}\n" for number in range(30))

    first, second, *_ = chunks_of(f"```python\n{code}```\n", 150)

    assert first.startswith("```python\nline 0\n")
    assert first.endswith("\n```")
    assert second.startswith("```python\nline ")


def test_indented_code_keeps_its_indent_over_a_cut() -> None:
    code = "".join(f"    step({number})\n" for number in range(30))

    second = chunks_of(f"```python\n{code}```\n", 150)[1]

    assert second.split("\n")[1].startswith("    step(")


def test_a_line_of_code_longer_than_the_limit_ends() -> None:
    """The original cut behind the opening fence for ever, eight characters at a time."""
    chunks = chunks_of("```\n" + "x" * 1000 + "\n```", 100)

    assert len(chunks) < 20
    assert "".join(visible(chunk) for chunk in chunks) == "x" * 1000


def test_a_fence_that_the_agent_forgot_to_close_is_closed() -> None:
    assert chunks_of("```\ncode", 100) == ["```\ncode\n```"]


def test_the_live_text_is_the_chunk_that_is_being_written() -> None:
    chunker = Chunker(100)

    assert chunker.feed("hello") == []
    assert chunker.pending == "hello"
    assert chunker.feed(" world") == []
    assert chunker.pending == "hello world"


def test_text_that_was_withdrawn_is_not_delivered() -> None:
    chunker = Chunker(100)
    chunker.feed("kept. withdrawn")
    chunker.withdraw(len("withdrawn"))
    chunker.feed("replaced")

    assert chunker.finish() == "kept. replaced"


PARAGRAPHS = "".join(f"Paragraph {number} of the answer.\n\n" for number in range(12))


def test_what_was_delivered_and_is_said_again_is_not_delivered_again() -> None:
    """A stream that breaks behind a complete message: claude reports the whole text then."""
    chunker = Chunker(100)
    chunks = chunker.feed(PARAGRAPHS[:250])
    assert chunks

    chunker.withdraw(250)
    chunks += chunker.feed(PARAGRAPHS[:40])
    assert chunker.pending == ""
    chunks += chunker.feed(PARAGRAPHS[40:])

    assert [*chunks, chunker.finish()] == chunks_of(PARAGRAPHS, 100)


@given(MARKDOWN, LIMITS, st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300)), max_size=9))
def test_any_withdrawal_and_repetition_makes_no_difference(
    text: str, limit: int, breaks: list[tuple[int, int]]
) -> None:
    chunker = Chunker(limit)
    chunks, position = [], 0
    for fed, withdrawn in breaks:
        chunks += chunker.feed(text[position : position + fed])
        position = min(len(text), position + fed)
        back = min(position, withdrawn)
        chunker.withdraw(back)
        position -= back
    chunks += chunker.feed(text[position:])

    whole = "".join(visible(chunk) for chunk in [*chunks, chunker.finish()])
    assert whole == visible(text)


def test_another_answer_than_the_one_that_was_delivered_says_so() -> None:
    chunker = Chunker(100)
    delivered = chunker.feed(PARAGRAPHS[:250])

    chunker.withdraw(250)
    chunks = chunker.feed("Paragraph 0, in other words.")

    assert delivered
    assert [*chunks, chunker.finish()] == [f"{ANEW}Paragraph 0, in other words."]


def test_another_answer_than_the_one_that_was_only_shown_says_nothing() -> None:
    chunker = Chunker(100)
    chunker.feed("\n\nOne way to put it")

    chunker.withdraw(len("\n\nOne way to put it"))
    chunker.feed("Another")

    assert chunker.finish() == "Another"


@pytest.mark.timeout(10)
@pytest.mark.parametrize("limit", [4_000, 100_000, 1_000_000])
@pytest.mark.parametrize("step", [24, 1_000_000])
def test_a_megabyte_of_code_is_cut_in_linear_time(limit: int, step: int) -> None:
    """It took 77 s at a limit of 100,000: each blank line had all lines before it looked at."""
    text = "```python\n" + "x = 1\n\n" * 150_000 + "```\n"

    chunker = Chunker(limit)
    chunks = [c for at in range(0, len(text), step) for c in chunker.feed(text[at : at + step])]

    assert sum(chunk.count("x = 1") for chunk in [*chunks, chunker.finish()]) == 150_000


def test_a_limit_without_room_for_text_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        Chunker(20)
