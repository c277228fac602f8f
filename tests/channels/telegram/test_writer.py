"""Markdown as texts with entities, within the limits of Telegram's messages."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remoteclaw.channels.telegram.writer import MAX_ENTITIES, MAX_UNITS, FormattedText, write
from remoteclaw.messages import is_blank
from tests.support.telegram import mentions_in


def entities_of(text: FormattedText) -> list[tuple[str, str]]:
    """Return each entity's type and text, cut out by UTF-16 units as Telegram does."""
    raw = text.text.encode("utf-16-le")
    return [
        (each.type, raw[2 * each.offset : 2 * (each.offset + each.length)].decode("utf-16-le"))
        for each in text.entities
    ]


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def test_markdown_becomes_text_with_entities() -> None:
    (text,) = write(
        "# A *title*\n\nSome **bold** and ~~gone~~ `code` 😀 **after**.\n\n"
        "1. one\n2. two\n   - [x] in it\n\n"
        "```python\nif x:\n    y()\n```\n\n> said\n> > before\n\n---\nend"
    )

    assert text.text == (
        "A title\n\nSome bold and gone code 😀 after.\n\n"
        "1. one\n2. two\n   ☑ in it\n\nif x:\n    y()\n\nsaid\n\nbefore\n\n⸻\n\nend"
    )
    assert sorted(entities_of(text)) == sorted(
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


def test_html_is_sent_to_telegram_as_plain_text() -> None:
    (text,) = write("x <T> y &amp; <b>no</b>\n\n<script>alert(1)</script>")

    assert "<T>" in text.text
    assert "<script>alert(1)</script>" in text.text
    assert not text.entities


@pytest.mark.parametrize(
    "markdown",
    [
        "@alice",
        "x @alice, (@alice) *@alice* @alice.",
        "# @alice\n- @alice\n\n> @alice",
        "@**alice** and @`alice` and `@`alice",
        "[@alice](https://x.example/) [x](mailto:@alice)",
        "http://@alice and https://x/@alice",
        "[a]: @alice",
        "| @alice | " + "x" * 50 + " |\n|-|-|\n| @alice | @alice |",
        "x" * (MAX_UNITS - 1) + "@alice",
        "x" * MAX_UNITS + "@alice",
        "é@alice 😀@alice",
        "[`@alice`](mailto:x@y.example) [`@alice`](https://x.example/)",
        "@&#x202e;alice @&#x333;alice",
        "| &#x202e;&#x202e; |\n|-|\n| x |\n\n`@alice`",
    ],
)
def test_a_text_mentions_nobody(markdown: str) -> None:
    texts = write(markdown, me="robobot")

    assert not [name for text in texts for name in mentions_in(as_sent(text))]
    assert "alice" in "".join(text.text for text in texts)
    assert "\u202e" not in "".join(text.text for text in texts), "code would begin too late"


def test_code_and_mail_addresses_stay_as_they_are_and_so_does_the_bots_own_name() -> None:
    markdown = "`@pytest`, ann@x.example, /new@robobot, @robobot @ 5"
    (text,) = write(f"{markdown}\n\n```\n@wraps\n```", me="robobot")
    (link,) = write("https://x.example/@alice", me="robobot")

    assert text.text == f"{markdown.replace('`', '')}\n\n@wraps"
    assert [entity.url for entity in link.entities] == ["https://x.example/@alice"]


def as_sent(text: FormattedText) -> dict[str, Any]:
    return {"text": text.text, "entities": [entity.as_dict() for entity in text.entities]}


def test_only_web_links_become_links() -> None:
    (text,) = write(
        "[a `b` c](https://x.y/z) https://bare.org [mail](mailto:a@b.c) [no](javascript:alert(1))"
    )

    assert entities_of(text) == [("text_link", "a b c")]
    assert [each.url for each in text.entities] == ["https://x.y/z"]
    assert "https://bare.org mail (a@b.c)" in text.text


def test_a_table_is_shown_in_columns_and_a_wide_one_as_a_list() -> None:
    (narrow,) = write("| name | n |\n|---|--:|\n| *one* | 1 |\n| 日本 | 22 |")
    assert entities_of(narrow) == [("pre", "name │  n\n─────┼───\none  │  1\n日本 │ 22")]

    long = "a long cell of many words"
    (wide,) = write(
        f"| file | why | when |\n|---|---|---|\n| a.py | {long} | {long} |\n| b | c | d |"
    )
    assert wide.text == f"• a.py\n   why: {long}\n   when: {long}\n• b\n   why: c\n   when: d"
    assert entities_of(wide) == [("bold", "a.py"), ("bold", "b")]


def test_a_long_answer_is_split_between_blocks_and_code_stays_code() -> None:
    words = "\n\n".join(f"Paragraph {n}. " + "word " * 60 for n in range(30))
    code = "\n".join(f"line {n} of the code" for n in range(400))

    texts = write(f"{words}\n\n```c\n{code}\n```")

    assert all(text.text.startswith("Paragraph") for text in texts[:2])
    code_texts = [text for text in texts if entities_of(text)]
    assert len(code_texts) > 1
    assert all(entities_of(each)[0][0] == "pre" for each in code_texts)
    assert [
        line for each in code_texts for line in entities_of(each)[0][1].split("\n")
    ] == code.split("\n")
    assert all(
        line.startswith("line ")
        for each in code_texts
        for line in entities_of(each)[0][1].split("\n")
    )


@pytest.mark.parametrize("heading", ["## What", "**What**"])
def test_a_heading_is_in_the_message_of_what_follows_it(heading: str) -> None:
    first, second = write(f"{'a' * 3500}\n\n{heading}\n\n{'b' * 900}")

    assert first.text == "a" * 3500
    assert second.text == f"What\n\n{'b' * 900}"


def test_more_entities_than_a_message_may_have_start_another_message() -> None:
    texts = write(" ".join(f"**{n}** x" for n in range(250)))

    assert [len(text.entities) for text in texts] == [100, 100, 50]
    assert " ".join(text.text for text in texts) == " ".join(f"{n} x" for n in range(250))


@pytest.mark.parametrize("character", ["\u202e", "\u2028", "\r", "\x00", "\u0333"])
def test_characters_that_telegram_removes_shift_no_entity(character: str) -> None:
    (text,) = write(f"a{character}b **bold**")
    assert text.text == "ab bold"
    assert entities_of(text) == [("bold", "bold")]


@pytest.mark.parametrize(
    "invisible", ["", " \n ", "\x00", "\u202e", "\u200b", "**\u200b**", "```\n```"]
)
def test_text_without_visible_characters_makes_no_message(invisible: str) -> None:
    assert write(invisible) == ()


@pytest.mark.parametrize(
    "markdown",
    ["![](https://x.y/z.png)", "[a]: https://x.y", "[\u200b](https://x.y)", "`---`"],
)
def test_every_message_has_visible_characters(markdown: str) -> None:
    texts = write(markdown)

    assert texts
    assert not any(is_blank(text.text) for text in texts)


@given(st.lists(st.sampled_from(["\u200b", "\u2800", "\n\n", "**", "> ", "x"])).map("".join))
def test_no_message_is_blank(markdown: str) -> None:
    assert not any(is_blank(text.text) for text in write(markdown))


PIECES = "** * ` ~~ ``` [x](https://a.b) [ ]( 😀 word <b> é".split()
PIECES += ["> ", "- ", "1. ", "# ", "\n", "\n\n", " ", "    ", "long " * 300]
PIECES += ["| a | b |\n|---|---|\n"]
MARKDOWN = st.lists(st.sampled_from(PIECES), max_size=120).map("".join)


@given(MARKDOWN | st.text(max_size=300))
@example("# `code` in a heading")
@example("| a | b |\n|---|---|\n| `x` | " + "long " * 20 + "|")
def test_messages_stay_within_the_limits_of_telegram(markdown: str) -> None:
    for text in write(markdown):
        assert 0 < units(text.text) <= MAX_UNITS
        assert text.text == text.text.rstrip()
        assert len(text.entities) <= MAX_ENTITIES
        assert all(0 <= e.offset < e.offset + e.length <= units(text.text) for e in text.entities)
        code_entities = [e for e in text.entities if e.type in ("code", "pre")]
        for one in code_entities:
            for other in text.entities:
                is_apart = (
                    other.offset + other.length <= one.offset
                    or one.offset + one.length <= other.offset
                )
                assert other is one or is_apart or other.type == "blockquote"


@given(st.lists(st.text("abc😀", min_size=1, max_size=3000), max_size=12))
def test_splitting_a_long_text_loses_no_word(words: list[str]) -> None:
    texts = write(" ".join(words))
    assert "".join("".join(text.text.split()) for text in texts) == "".join(words)
