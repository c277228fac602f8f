"""Parsing Markdown into blocks and spans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.markdown import (
    MAX_DEPTH,
    CodeBlock,
    Heading,
    HorizontalRule,
    Item,
    ListBlock,
    MarkdownStream,
    Paragraph,
    Quote,
    Span,
    Table,
    blocks_of,
)
from tests.support.rows import for_each

EVERYTHING = """\
# A *heading*

Words with `code`, **bold *and italic***, ~~gone~~.
Another line.

- one
- [x] two
  1. inner

- [ ] three

  its second paragraph

```python
print(1)

print(2)
```

| a | b |
|:--|--:|
| 1 | *2* |

> said
> > before

---
The end.
"""

BLOCKS = (
    Heading(1, (Span("A "), Span("heading", is_italic=True))),
    Paragraph(
        (
            Span("Words with "),
            Span("code", is_code=True),
            Span(", "),
            Span("bold ", is_bold=True),
            Span("and italic", is_bold=True, is_italic=True),
            Span(", "),
            Span("gone", is_struck=True),
            Span("."),
            Span("\n"),
            Span("Another line."),
        )
    ),
    ListBlock(
        None,
        (
            Item((Paragraph((Span("one"),)),)),
            Item(
                (
                    Paragraph((Span("two"),)),
                    ListBlock(1, (Item((Paragraph((Span("inner"),)),)),)),
                ),
                is_checked=True,
            ),
            Item(
                (Paragraph((Span("three"),)), Paragraph((Span("its second paragraph"),))),
                is_checked=False,
            ),
        ),
    ),
    CodeBlock("python", "print(1)\n\nprint(2)"),
    Table(
        ("left", "right"),
        ((Span("a"),), (Span("b"),)),
        (((Span("1"),), (Span("2", is_italic=True),)),),
    ),
    Quote((Paragraph((Span("said"),)), Quote((Paragraph((Span("before"),)),)))),
    HorizontalRule(),
    Paragraph((Span("The end."),)),
)


def texts(*spans: Span) -> list[tuple[str, str | None]]:
    return [(span.text, span.link) for span in spans]


def test_each_kind_of_block_and_span_is_parsed() -> None:
    assert blocks_of(EVERYTHING) == BLOCKS


@for_each("step", [1, 2, 3, 5, 8, 13, 100])
def test_a_streamed_text_yields_the_same_blocks_each_once(step: int) -> None:
    stream = MarkdownStream()

    blocks = [
        block
        for end in range(0, len(EVERYTHING) + step, step)
        for block in stream.feed(EVERYTHING[:end])
    ]
    streamed = len(blocks)
    blocks += stream.finish()

    assert tuple(blocks) == BLOCKS
    assert streamed >= len(BLOCKS) - 2


def test_a_stream_parses_only_the_incomplete_last_block_again() -> None:
    stream = MarkdownStream()
    text = "A paragraph.\n\n" * 2000 + "the last one"

    stream.feed(text)

    assert stream.open_text == "the last one"
    assert stream.continues(f"{text} goes on")
    assert not stream.continues("Another text")


@for_each(
    ("written", "link"),
    [
        ("[x](https://a.org/b)", "https://a.org/b"),
        ("[x](HTTP://a.org)", "HTTP://a.org"),
        ("[x](mailto:a@b.org)", "mailto:a@b.org"),
        ("![x](https://a.org/b.png)", "https://a.org/b.png"),
        ("[x](javascript:alert(1))", None),
        ("[x](file:///etc/passwd)", None),
        ("[x](data:text/html,y)", None),
        ("[x](//a.org)", None),
    ],
)
def test_only_web_and_mail_links_are_kept(written: str, link: str | None) -> None:
    (paragraph,) = blocks_of(written)

    assert paragraph == Paragraph((Span("x", link=link),))


def test_bare_urls_and_mail_addresses_become_links_without_punctuation() -> None:
    (paragraph,) = blocks_of("See https://a.org/b?c=d, (http://e.org) and <me@f.org>.")

    assert isinstance(paragraph, Paragraph)
    assert texts(*paragraph.spans) == [
        ("See ", None),
        ("https://a.org/b?c=d", "https://a.org/b?c=d"),
        (", (", None),
        ("http://e.org", "http://e.org"),
        (") and ", None),
        ("me@f.org", "mailto:me@f.org"),
        (".", None),
    ]


def test_html_is_shown_as_text() -> None:
    inline, block = blocks_of("say <b>it</b>\n\n<div>\n<script>x</script>\n</div>")

    assert inline == Paragraph((Span("say <b>it</b>"),))
    assert isinstance(block, Paragraph)
    assert "".join(span.text for span in block.spans) == "<div>\n<script>x</script>\n</div>"


@pytest.mark.parametrize(
    "text",
    [
        ">" * 5000 + " x",
        "- " * 3000 + "x",
        "*a " * 3000 + "x" + "*" * 3000,
        "![" * 3000 + "x" + "](http://a)" * 3000,
    ],
)
def test_nesting_is_parsed_up_to_a_maximum_depth(text: str) -> None:
    def depth(value: object) -> int:
        inner = getattr(value, "blocks", ()) or getattr(value, "items", ())
        return 1 + max(map(depth, inner), default=0)

    blocks = blocks_of(text)

    assert max(map(depth, blocks)) <= 2 * MAX_DEPTH + 1
    assert "x" in repr(blocks)


@given(st.text(alphabet="ab*`_~[]()<>#-|>!\n\n\n 1.\t\ud800é🙂"), st.integers(1, 9))
def test_any_text_is_parsed_in_pieces_of_any_size(text: str, step: int) -> None:
    stream = MarkdownStream()

    for end in range(0, len(text) + step, step):
        stream.feed(text[:end])
        assert text[:end].endswith(stream.open_text)
    stream.finish()

    assert stream.open_text == ""
    blocks_of(text)
