"""Chunks: within the limit, nothing lost or invented, fences whole, however the text arrives."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import iter_graphemes

from remoteclaw.bridge.chunks import REPEATED, SMALLEST_LIMIT, Chunker, Unit
from tests.support.growth import is_linear

WORDS = st.text(st.sampled_from("ab c\n"), max_size=30)
FENCED = st.builds(
    lambda mark, info, body: f"{mark}{info}\n{body}\n{mark}\n",
    st.sampled_from(["```", "~~~", "````"]),
    st.sampled_from(["", "python", "js title=x"]),
    st.text(st.sampled_from("xy z\n  "), max_size=400),
)
MARKDOWN = st.lists(WORDS | FENCED | st.just("\n\n") | st.just("w" * 300), max_size=12).map("".join)
LIMITS = st.integers(SMALLEST_LIMIT, 300)


def chunks_of(
    text: str, limit: int, sizes: list[int] | None = None, unit: Unit = "characters"
) -> list[str]:
    chunker = Chunker(limit, unit)
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


UNITS = st.sampled_from(["characters", "utf16", "bytes"])
#: Text of which people see fewer characters than it has code points.
GLYPHS = st.sampled_from(
    [
        *("a", " ", "é", "e\u0301", "漢", "\U00020000", "\n", "\n\n"),
        *(
            "\U0001f468\u200d\U0001f469\u200d\U0001f467",
            "\U0001f1e9\U0001f1ea",
            "\U0001f44d\U0001f3fd",
        ),
        *("\u0915\u094d\u0937", "한", "\u1112\u1161\u11ab"),
    ]
)
WORLD = st.lists(GLYPHS, max_size=200).map("".join)


def size(text: str, unit: Unit) -> int:
    encoded = {"characters": "utf-32-le", "utf16": "utf-16-le", "bytes": "utf-8"}[unit]
    return len(text.encode(encoded)) // {"characters": 4, "utf16": 2, "bytes": 1}[unit]


@given(WORLD | MARKDOWN, LIMITS, UNITS)
def test_a_limit_is_meant_in_the_platforms_unit(text: str, limit: int, unit: Unit) -> None:
    chunks = chunks_of(text, limit, unit=unit)

    assert all(size(chunk, unit) <= limit for chunk in chunks)
    assert "".join(visible(chunk) for chunk in chunks) == visible(text)


@given(WORLD, LIMITS, UNITS, st.lists(st.integers(1, 40), max_size=60))
def test_how_text_of_the_world_is_cut_into_deltas_makes_no_difference(
    text: str, limit: int, unit: Unit, sizes: list[int]
) -> None:
    assert chunks_of(text, limit, sizes, unit) == chunks_of(text, limit, unit=unit)


@given(WORLD, LIMITS, UNITS)
def test_no_character_that_people_see_is_cut(text: str, limit: int, unit: Unit) -> None:
    seen = [g for g in iter_graphemes(text) if not g.isspace()]

    cut = [g for chunk in chunks_of(text, limit, unit=unit) for g in iter_graphemes(chunk)]

    assert [g for g in cut if not g.isspace()] == seen


@pytest.mark.parametrize("unit", ["characters", "utf16", "bytes"])
def test_a_character_without_end_is_cut_all_the_same(unit: Unit) -> None:
    text = "a" + "\u0301" * 10_000

    chunks = chunks_of(text, 100, unit=unit)

    assert "".join(chunks) == text
    assert all(size(chunk, unit) <= 100 for chunk in chunks)


def table(rows: int) -> str:
    lines = ["| name | size |", "|:-----|-----:|", *(f"| row {n} | {n * n} |" for n in range(rows))]
    return "\n".join(lines)


def test_a_table_that_begins_late_is_kept_together() -> None:
    chunks = chunks_of("words\n" * 12 + table(3) + "\n\nThe end.", 150)

    assert chunks[0] == ("words\n" * 12).strip()
    assert chunks[1].startswith(table(3))


def test_a_table_that_is_too_long_has_its_header_repeated() -> None:
    chunks = chunks_of("Look:\n\n" + table(40) + "\n\nThe end.", 200)

    header, delimiter, *rows = table(40).split("\n")
    assert len(chunks) > 3
    assert all(chunk.startswith(f"{header}\n{delimiter}\n| row") for chunk in chunks[1:])
    assert [row for chunk in chunks for row in chunk.split("\n") if "row" in row] == rows
    assert chunks[-1].endswith("|\n\nThe end.")


def test_a_table_gets_no_other_tables_header() -> None:
    first, second = table(3), table(3).replace("name", "city").replace("row", "town")

    chunks = chunks_of(f"{first}\n\n{second}", 110)

    assert chunks[1].startswith("| city | size |\n|:")


def test_code_loses_nothing_but_the_line_end_at_a_cut() -> None:
    code = "".join(f"line {number}\n\n  \n" for number in range(40))

    chunks = chunks_of(f"```\n{code}```", 100)

    bodies = [chunk.removeprefix("```\n").removesuffix("\n```") for chunk in chunks]
    assert "\n".join(bodies) == code.removesuffix("\n")


def test_a_blank_that_is_withdrawn_leaves_the_fence_open() -> None:
    chunker = Chunker(100)
    chunks = chunker.feed("```python\n" + "x = 1\n" * 20)
    while not chunker._withdrawn:
        chunker.withdraw(1)
    chunks += chunker.feed("\n" + "y = 2\n" * 20)

    assert all(chunk.startswith("```python\n") for chunk in [*chunks, chunker.finish()])


def test_a_header_that_is_too_long_is_not_repeated() -> None:
    wide = "|" + "wide |" * 10 + "\n|" + "---|" * 10 + "\n"

    chunks = chunks_of(wide + "| row |\n" * 40, 100)

    assert "".join(chunks).count("wide |") == 10


TABLES = st.lists(
    st.integers(0, 30).map(table) | st.just("| no table |\n") | WORDS | FENCED | st.just("\n\n"),
    max_size=8,
).map("\n".join)


@given(TABLES, LIMITS, UNITS, st.lists(st.integers(1, 40), max_size=60))
def test_tables_keep_their_rows(text: str, limit: int, unit: Unit, sizes: list[int]) -> None:
    chunks = chunks_of(text, limit, sizes, unit)

    assert chunks == chunks_of(text, limit, unit=unit)
    assert all(size(chunk, unit) <= limit for chunk in chunks)
    rows = [line.strip() for chunk in chunks for line in chunk.split("\n") if "| row" in line]
    assert rows == [line.strip() for line in text.split("\n") if "| row" in line]


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
    assert [*chunks, chunker.finish()] == [f"{REPEATED}Paragraph 0, in other words."]


def test_another_answer_than_the_one_that_was_only_shown_says_nothing() -> None:
    chunker = Chunker(100)
    chunker.feed("\n\nOne way to put it")

    chunker.withdraw(len("\n\nOne way to put it"))
    chunker.feed("Another")

    assert chunker.finish() == "Another"


@pytest.mark.parametrize("messages", [1, 100])
@pytest.mark.parametrize("step", [24, 1_000_000])
def test_much_code_is_cut_in_linear_time(messages: int, step: int) -> None:
    """A megabyte took 77 s in large messages: each blank line had all before it looked at."""

    def cut(size: int) -> None:
        lines = size // 7
        text = "```python\n" + "x = 1\n\n" * lines + "```\n"
        chunker = Chunker(2 * size // messages)
        chunks = [c for at in range(0, len(text), step) for c in chunker.feed(text[at : at + step])]
        assert sum(chunk.count("x = 1") for chunk in [*chunks, chunker.finish()]) == lines

    assert is_linear(cut)


def test_a_limit_without_room_for_text_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        Chunker(20)
