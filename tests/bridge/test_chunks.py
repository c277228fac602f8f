"""Chunks keep to the limit, lose and add nothing, and close fences, however the text arrives."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remoteclaw.bridge.chunks import MIN_LIMIT, Chunker
from remoteclaw.markdown import CodeBlock, blocks_of
from remoteclaw.messages import code_files
from remoteclaw.protocols import Unit
from tests.support.growth import is_linear

WORDS = st.text(st.sampled_from("ab c\n"), max_size=30)
FENCED = st.builds(
    lambda mark, info, body: f"{mark}{info}\n{body}\n{mark}\n",
    st.sampled_from(["```", "~~~", "````"]),
    st.sampled_from(["", "python", "js title=x"]),
    st.text(st.sampled_from("xy z\n  "), max_size=400),
)
MARKDOWN = st.lists(WORDS | FENCED | st.just("\n\n") | st.just("w" * 300), max_size=12).map("".join)
LIMITS = st.integers(MIN_LIMIT, 300)


def chunks_of(
    text: str,
    limit: int,
    sizes: list[int] | None = None,
    unit: Unit = "characters",
    code_file_lines: int = 0,
) -> list[str]:
    chunker = Chunker(limit, unit, code_file_lines=code_file_lines)
    chunks, position = [], 0
    for size in sizes or []:
        chunks += chunker.feed(text[position : position + size])
        position += size
    chunks += chunker.feed(text[position:])
    return [*chunks, *chunker.finish()]


def visible(text: str) -> str:
    """Return a text without white space and fence lines, which chunks may add and drop."""
    lines = [line for line in text.split("\n") if not re.match(r" {0,3}(```|~~~)", line)]
    return re.sub(r"\s", "", "".join(lines))


UNITS = st.sampled_from(["characters", "utf16", "bytes"])
WORLD = st.text(st.sampled_from("a é漢\U00020000\u0301\u200d\n"), max_size=400)


def size(text: str, unit: Unit) -> int:
    sizes = {
        "characters": len(text),
        "utf16": len(text.encode("utf-16-le")) // 2,
        "bytes": len(text.encode()),
    }
    return sizes[unit]


@given(WORLD | MARKDOWN, LIMITS, UNITS)
def test_chunks_keep_to_the_limit_and_nothing_is_lost_or_invented(
    text: str, limit: int, unit: Unit
) -> None:
    chunks = chunks_of(text, limit, unit=unit)

    assert all(0 < size(chunk.strip(), unit) <= size(chunk, unit) <= limit for chunk in chunks)
    assert "".join(visible(chunk) for chunk in chunks) == visible(text)


def test_code_loses_only_the_line_end_between_two_chunks() -> None:
    code = "".join(f"line {number}\n\n  \n" for number in range(40))

    chunks = chunks_of(f"```\n{code}```", 100)

    bodies = [chunk.removeprefix("```\n").removesuffix("\n```") for chunk in chunks]
    assert "\n".join(bodies) == code.removesuffix("\n")


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


@given(
    WORLD | MARKDOWN,
    LIMITS,
    UNITS,
    st.lists(st.integers(1, 40), max_size=60),
    st.sampled_from([0, 3, 12]),
)
def test_chunks_do_not_depend_on_how_the_stream_is_split(
    text: str, limit: int, unit: Unit, sizes: list[int], lines: int
) -> None:
    whole = chunks_of(text, limit, unit=unit, code_file_lines=lines)
    assert chunks_of(text, limit, sizes, unit, lines) == whole


@given(MARKDOWN, LIMITS, st.sampled_from([3, 12]))
def test_code_for_a_file_is_whole_and_ends_its_chunk(text: str, limit: int, lines: int) -> None:
    text = text.rstrip()  # blank lines of an open block are dropped
    chunks = chunks_of(text, limit, code_file_lines=lines)
    files = [file.content.decode() for chunk in chunks for file in code_files(chunk, lines)[1]]

    assert [file.strip() for file in files] == [code.strip() for code in long_code(text, lines)]
    assert "".join(visible(chunk) for chunk in chunks) == visible(text)
    for chunk in chunks:
        shown, made = code_files(chunk, lines)
        assert not made or shown.endswith(f" lines: {made[-1].name})")
        assert made or len(chunk) <= limit


def long_code(text: str, lines: int) -> list[str]:
    """Return the long code blocks of a text, by another reader of Markdown."""
    blocks = [block for block in blocks_of(text) if isinstance(block, CodeBlock)]
    return [block.text for block in blocks if block.text.count("\n") >= lines]


def test_a_chat_shows_the_beginning_of_long_code_and_has_the_whole_as_a_file() -> None:
    code = "".join(f"line {number}\n" for number in range(200))
    blocks = (f"```python\n{code}```", f"~~~js title=app.js\n{code}~~~", f"```py\n{code}```")
    shown, files = code_files("Two:\n" + "\n".join(blocks) + "\nEnd", 60)

    beginning = "".join(f"line {number}\n" for number in range(10))
    assert shown.startswith(f"Two:\n```python\n{beginning}```\n(… 200 lines: code.py)\n~~~js")
    assert shown.endswith("(… 200 lines: code-2.py)\nEnd")
    assert [file.name for file in files] == ["code.py", "app.js", "code-2.py"]
    assert {file.content for file in files} == {code.encode()}
    assert code_files(shown, 60) == (shown, ())
    item = "1. Here:\n\n" + "".join(f"   {line}\n" for line in blocks[0].split("\n"))
    assert [file.content.decode() for file in code_files(item, 60)[1]] == [code]
    assert code_files(blocks[0], 200) == (blocks[0], ())


def test_code_for_a_file_is_shown_shortened_while_it_is_written() -> None:
    chunker = Chunker(2000, code_file_lines=60)
    code = "".join(f"{number} {'x' * 50}\n" for number in range(100))

    assert chunker.feed(f"Here:\n\n```sh\n{code}") == []
    assert len(chunker.pending) < 1200
    assert chunker.pending.startswith("Here:\n\n```sh\n0 xxx")
    assert chunker.pending.endswith("\n```\n(… 100 lines: code.sh)")
    assert chunker.feed("```\nDone.") == [f"Here:\n\n```sh\n{code}```"]
    assert chunker.finish() == ["Done."]


PROSE = st.lists(
    st.tuples(st.text("abc", min_size=1, max_size=10), st.sampled_from([" ", "\n", "\n\n"])),
    min_size=100,
    max_size=300,
).map(lambda pairs: "".join(word + gap for word, gap in pairs))


@settings(max_examples=15)  # long texts
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
        ("a" * 50 + "\n\n## What\n\n" + "b" * 60, "a" * 50),
        ("a" * 50 + "\n**What**\n" + "b" * 60, "a" * 50),
        (
            "```sh\n" + "a" * 50 + "\n# not one\n" + "b" * 60,
            "```sh\n" + "a" * 50 + "\n# not one\n```",
        ),
    ],
    ids=["paragraph", "line", "word", "anywhere", "heading", "bold line", "comment in code"],
)
def test_a_chunk_ends_at_the_best_place(text: str, first: str) -> None:
    assert chunks_of(text, 100)[0] == first


def test_a_fence_is_closed_and_opened_again_with_its_language() -> None:
    code = "".join(f"line {number}\n" for number in range(30))

    first, second, *_ = chunks_of(f"```python\n{code}```\n", 150)

    assert first.startswith("```python\nline 0\n")
    assert first.endswith("\n```")
    assert second.startswith("```python\nline ")


def test_indented_code_keeps_its_indentation_in_the_next_chunk() -> None:
    code = "".join(f"    step({number})\n" for number in range(30))

    second = chunks_of(f"```python\n{code}```\n", 150)[1]

    assert second.split("\n")[1].startswith("    step(")


def test_a_line_of_code_longer_than_the_limit_needs_few_chunks() -> None:
    """The original implementation cut after the opening fence forever, eight characters each."""
    chunks = chunks_of("```\n" + "x" * 1000 + "\n```", 100)

    assert len(chunks) < 20
    assert "".join(visible(chunk) for chunk in chunks) == "x" * 1000


def test_a_fence_that_the_agent_forgot_to_close_is_closed() -> None:
    assert chunks_of("```\ncode", 100) == ["```\ncode\n```"]


def test_the_live_text_is_the_unfinished_chunk() -> None:
    chunker = Chunker(100)

    assert chunker.feed("hello") == []
    assert chunker.pending == "hello"
    assert chunker.feed(" world") == []
    assert chunker.pending == "hello world"


@pytest.mark.parametrize("messages", [1, 100])
@pytest.mark.parametrize("step", [24, 1_000_000])
@pytest.mark.parametrize("lines_of_file", [0, 60])
def test_long_code_is_split_in_linear_time(messages: int, step: int, lines_of_file: int) -> None:
    """A megabyte in large messages once took 77 s: each blank line rescanned all text before it."""

    def cut(size: int) -> None:
        lines = size // 7
        text = "```python\n" + "x = 1\n\n" * lines + "```\n"
        chunker = Chunker(2 * size // messages, code_file_lines=lines_of_file)
        chunks = [c for at in range(0, len(text), step) for c in chunker.feed(text[at : at + step])]
        assert sum(chunk.count("x = 1") for chunk in [*chunks, *chunker.finish()]) == lines

    assert is_linear(cut)


def test_a_limit_without_room_for_text_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        Chunker(20)
