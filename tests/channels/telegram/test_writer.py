"""Markdown as texts with entities, within the limits of Telegram's messages."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remoteclaw.channels.telegram.writer import MAX_ENTITIES, MAX_UNITS, Text, write


def looks(text: Text) -> list[tuple[str, str]]:
    """Return each entity with its words, as Telegram's servers cut them out."""
    raw = text.text.encode("utf-16-le")
    return [
        (each.type, raw[2 * each.offset : 2 * (each.offset + each.length)].decode("utf-16-le"))
        for each in text.entities
    ]


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def test_an_answer_looks_like_one() -> None:
    (text,) = write(
        "# A *title*\n\nSome **bold** and ~~gone~~ `code` 😀 **after**.\n\n"
        "1. one\n2. two\n   - [x] in it\n\n"
        "```python\nif x:\n    y()\n```\n\n> said\n> > before\n\n---\nend"
    )

    assert text.text == (
        "A title\n\nSome bold and gone code 😀 after.\n\n"
        "1. one\n2. two\n   ☑ in it\n\nif x:\n    y()\n\nsaid\n\nbefore\n\n⸻\n\nend"
    )
    assert sorted(looks(text)) == sorted(
        [
            ("bold", "A "),
            ("bold", "title"),
            ("italic", "title"),
            ("bold", "bold"),
            ("strikethrough", "gone"),
            ("code", "code"),
            ("bold", "after"),
            ("pre", "if x:\n    y()"),
            ("blockquote", "said\n\nbefore"),
        ]
    )
    assert [each.language for each in text.entities if each.type == "pre"] == ["python"]


def test_what_looks_like_html_is_text() -> None:
    (text,) = write("x <T> y &amp; <b>no</b>\n\n<script>alert(1)</script>")

    assert "<T>" in text.text
    assert "<script>alert(1)</script>" in text.text
    assert not text.entities


def test_links_lead_to_the_web_alone() -> None:
    (text,) = write(
        "[a `b` c](https://x.y/z) https://bare.org [mail](mailto:a@b.c) [no](javascript:alert(1))"
    )

    assert looks(text) == [("text_link", "a b c")]
    assert [each.url for each in text.entities] == ["https://x.y/z"]
    assert "https://bare.org mail (a@b.c)" in text.text


def test_a_table_is_in_columns_and_a_wide_one_a_list() -> None:
    (narrow,) = write("| name | n |\n|---|--:|\n| *one* | 1 |\n| 日本 | 22 |")
    assert looks(narrow) == [("pre", "name │  n\n─────┼───\none  │  1\n日本 │ 22")]

    long = "a long cell of many words"
    (wide,) = write(
        f"| file | why | when |\n|---|---|---|\n| a.py | {long} | {long} |\n| b | c | d |"
    )
    assert wide.text == f"• a.py\n   why: {long}\n   when: {long}\n• b\n   why: c\n   when: d"
    assert looks(wide) == [("bold", "a.py"), ("bold", "b")]


def test_a_long_answer_is_cut_between_blocks_and_code_stays_code() -> None:
    words = "\n\n".join(f"Paragraph {n}. " + "word " * 60 for n in range(30))
    code = "\n".join(f"line {n} of the code" for n in range(400))

    texts = write(f"{words}\n\n```c\n{code}\n```")

    assert all(text.text.startswith("Paragraph") for text in texts[:2])
    ends = [text for text in texts if looks(text)]
    assert len(ends) > 1
    assert all(looks(each)[0][0] == "pre" for each in ends)
    assert [line for each in ends for line in looks(each)[0][1].split("\n")] == code.split("\n")
    assert all(line.startswith("line ") for each in ends for line in looks(each)[0][1].split("\n"))


def test_more_looks_than_a_message_may_have_make_another_message() -> None:
    texts = write(" ".join(f"**{n}** x" for n in range(250)))

    assert [len(text.entities) for text in texts] == [100, 100, 50]
    assert " ".join(text.text for text in texts) == " ".join(f"{n} x" for n in range(250))


@pytest.mark.parametrize("odd", ["\u202e", "\u2028", "\r", "\x00", "\u0333"])
def test_what_telegram_takes_out_of_a_text_moves_no_entity(odd: str) -> None:
    (text,) = write(f"a{odd}b **bold**")
    assert text.text == "ab bold"
    assert looks(text) == [("bold", "bold")]


@pytest.mark.parametrize("nothing", ["", " \n ", "\x00", "\u202e"])
def test_nothing_is_no_message(nothing: str) -> None:
    assert write(nothing) == ()


@pytest.mark.parametrize("rest", ["![](https://x.y/z.png)", "[a]: https://x.y", "```\n```"])
def test_something_is_a_message(rest: str) -> None:
    assert all(text.text.strip() for text in write(rest))


PIECES = "** * ` ~~ ``` [x](https://a.b) [ ]( 😀 word <b> é".split()
PIECES += ["> ", "- ", "1. ", "# ", "\n", "\n\n", " ", "    ", "long " * 300]
PIECES += ["| a | b |\n|---|---|\n"]
MARKDOWN = st.lists(st.sampled_from(PIECES), max_size=120).map("".join)


@given(MARKDOWN | st.text(max_size=300))
@example("# `code` in a heading")
@example("| a | b |\n|---|---|\n| `x` | " + "long " * 20 + "|")
def test_the_limits_of_telegram_hold(markdown: str) -> None:
    for text in write(markdown):
        assert 0 < units(text.text) <= MAX_UNITS
        assert text.text == text.text.rstrip()
        assert len(text.entities) <= MAX_ENTITIES
        assert all(0 <= e.offset < e.offset + e.length <= units(text.text) for e in text.entities)
        alone = [e for e in text.entities if e.type in ("code", "pre")]
        for one in alone:
            for other in text.entities:
                is_apart = (
                    other.offset + other.length <= one.offset
                    or one.offset + one.length <= other.offset
                )
                assert other is one or is_apart or other.type == "blockquote"


@given(st.lists(st.text("abc😀", min_size=1, max_size=3000), max_size=12))
def test_no_word_is_lost(words: list[str]) -> None:
    texts = write(" ".join(words))
    assert "".join("".join(text.text.split()) for text in texts) == "".join(words)
