"""Markdown on a terminal."""

import re

import pytest
from wcwidth import wcswidth

from remoteclaw.chat.paint import MarkdownPainter, TerminalFeatures
from remoteclaw.markdown import MarkdownStream
from tests.support.rows import for_each

PLAIN = MarkdownPainter(TerminalFeatures(has_colours=False))
COLOURED = MarkdownPainter(TerminalFeatures())
LINKING = MarkdownPainter(TerminalFeatures(has_links=True))

ANSWER = """\
# The tests

Two **fail** since [the change](https://a.org/c); see `test_it.py`,
words that go on until the line ends.

1. run it
   - with `-x`
2. look

```python
def it() -> str:  # a line of code stays one line, however long it is, so that it can be copied
    return "x"
```

| test | why it fails | after |
|---|---|--:|
| first | the clock is read twice, and the second reading differs | 12 ms |
| second | same | 7 ms |

> It worked before.
"""


def columns(line: str) -> int:
    return wcswidth(re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b]*\x1b\\", "", line))


def test_markdown_is_laid_out_for_the_terminal_width() -> None:
    assert PLAIN.paint(ANSWER, 60).split("\n") == [
        "The tests",
        "",
        "Two fail since the change (https://a.org/c); see test_it.py,",
        "words that go on until the line ends.",
        "",
        "1. run it",
        "   • with -x",
        "2. look",
        "",
        "── python",
        "def it() -> str:  # a line of code stays one line, however long it is, so that it can be "
        "copied",
        '    return "x"',
        "──",
        "",
        "test    why it fails                                   after",
        "────────────────────────────────────────────────────────────",
        "first   the clock is read twice, and the second        12 ms",
        "        reading differs",
        "second  same                                            7 ms",
        "",
        "│ It worked before.",
    ]


def test_a_table_that_is_too_wide_becomes_a_list_for_each_row() -> None:
    table = "| test | why | after |\n|--|--|--|\n| a | b | c |\n| d | e | f |"

    assert PLAIN.paint(table, 24).split("\n") == [
        *("test: a", "why: b", "after: c", "────────", "test: d", "why: e", "after: f"),
    ]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_only_code_is_wider_than_the_terminal(width: int) -> None:
    prose = re.sub("```.*?```", "日本語 " * 50, ANSWER, flags=re.DOTALL)

    assert max(map(columns, COLOURED.paint(prose, width).split("\n"))) <= width


def test_colours_are_used_only_if_the_terminal_has_them() -> None:
    assert "\x1b[" in COLOURED.paint(ANSWER, 80)
    assert "\x1b" not in PLAIN.paint(ANSWER, 80)
    assert re.sub(r"\x1b\[[0-9;]*m", "", COLOURED.paint(ANSWER, 80)) == PLAIN.paint(ANSWER, 80)


@for_each(
    ("environ", "features"),
    [
        ({"TERM": "xterm-256color"}, TerminalFeatures()),
        ({"TERM": "xterm", "NO_COLOR": "1"}, TerminalFeatures(has_colours=False)),
        ({"TERM": "xterm", "NO_COLOR": ""}, TerminalFeatures()),
        ({"TERM": "dumb", "VTE_VERSION": "7"}, TerminalFeatures(has_colours=False)),
        ({}, TerminalFeatures(has_colours=False)),
        ({"TERM": "xterm", "VTE_VERSION": "7600"}, TerminalFeatures(has_links=True)),
        ({"TERM": "xterm", "TERM_PROGRAM": "vscode"}, TerminalFeatures(has_links=True)),
    ],
)
def test_terminal_features_are_read_from_the_environment(
    environ: dict[str, str], features: TerminalFeatures
) -> None:
    assert TerminalFeatures.of(environ) == features


def test_a_link_is_clickable_if_the_terminal_supports_it_and_else_shows_its_url() -> None:
    link = "[the change](https://a.org/c) and https://b.org"

    linked = LINKING.paint(link, 80)

    assert re.findall(r"\x1b\]8;id=\d+;([^\x1b]+)\x1b\\", linked) == [
        "https://a.org/c",
        "https://b.org",
    ]
    assert "(https" not in linked
    assert PLAIN.paint(link, 80) == "the change (https://a.org/c) and https://b.org"


@for_each("painter", [PLAIN, COLOURED, LINKING])
@for_each("text", ["{}", "`{}`", "```{}\n{}\n```", "[{}](http://a/{})", "|{}|\n|-|\n|{}|"])
def test_no_text_can_send_control_sequences_to_the_terminal(
    painter: MarkdownPainter, text: str
) -> None:
    painted = painter.paint(text.replace("{}", "a\x1b]0;title\x07\x1b[2J\u202eb"), 80)

    text = re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x07\x1b]*\x1b\\", "", painted)
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)


def test_a_streamed_text_is_painted_like_the_whole_text() -> None:
    stream = MarkdownStream()
    parts = [stream.feed(ANSWER[:end]) for end in range(len(ANSWER) + 1)] + [stream.finish()]
    painted = [PLAIN.paint_blocks(blocks, 60) for blocks in parts if blocks]

    assert len(painted) > 4
    assert "\n\n".join(painted) == PLAIN.paint(ANSWER, 60)
