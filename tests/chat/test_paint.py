"""Markdown on a terminal."""

import re

import pytest
from wcwidth import wcswidth

from remoteclaw.chat.paint import Look, Painter
from remoteclaw.markdown import MarkdownStream
from tests.support.rows import for_each

PLAIN = Painter(Look(has_colours=False))
COLOURED = Painter(Look())
LINKING = Painter(Look(has_links=True))

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


def test_an_answer_is_laid_out_for_the_width() -> None:
    assert PLAIN.text(ANSWER, 60).split("\n") == [
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


def test_a_table_that_is_too_wide_is_a_list_for_each_row() -> None:
    table = "| test | why | after |\n|--|--|--|\n| a | b | c |\n| d | e | f |"

    assert PLAIN.text(table, 24).split("\n") == [
        *("test: a", "why: b", "after: c", "────────", "test: d", "why: e", "after: f"),
    ]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_nothing_but_code_is_wider_than_the_terminal(width: int) -> None:
    prose = re.sub("```.*?```", "日本語 " * 50, ANSWER, flags=re.DOTALL)

    assert max(map(columns, COLOURED.text(prose, width).split("\n"))) <= width


def test_colours_are_only_used_where_the_terminal_has_them() -> None:
    assert "\x1b[" in COLOURED.text(ANSWER, 80)
    assert "\x1b" not in PLAIN.text(ANSWER, 80)
    assert re.sub(r"\x1b\[[0-9;]*m", "", COLOURED.text(ANSWER, 80)) == PLAIN.text(ANSWER, 80)


@for_each(
    ("environ", "look"),
    [
        ({"TERM": "xterm-256color"}, Look()),
        ({"TERM": "xterm", "NO_COLOR": "1"}, Look(has_colours=False)),
        ({"TERM": "xterm", "NO_COLOR": ""}, Look()),
        ({"TERM": "dumb", "VTE_VERSION": "7"}, Look(has_colours=False)),
        ({}, Look(has_colours=False)),
        ({"TERM": "xterm", "VTE_VERSION": "7600"}, Look(has_links=True)),
        ({"TERM": "xterm", "TERM_PROGRAM": "vscode"}, Look(has_links=True)),
    ],
)
def test_the_look_is_that_of_the_terminal(environ: dict[str, str], look: Look) -> None:
    assert Look.of(environ) == look


def test_a_link_is_one_where_the_terminal_makes_it_and_else_shows_where_it_leads() -> None:
    link = "[the change](https://a.org/c) and https://b.org"

    linked = LINKING.text(link, 80)

    assert re.findall(r"\x1b\]8;id=\d+;([^\x1b]+)\x1b\\", linked) == [
        "https://a.org/c",
        "https://b.org",
    ]
    assert "(https" not in linked
    assert PLAIN.text(link, 80) == "the change (https://a.org/c) and https://b.org"


@for_each("painter", [PLAIN, COLOURED, LINKING])
@for_each("text", ["{}", "`{}`", "```{}\n{}\n```", "[{}](http://a/{})", "|{}|\n|-|\n|{}|"])
def test_no_text_can_steer_the_terminal(painter: Painter, text: str) -> None:
    painted = painter.text(text.replace("{}", "a\x1b]0;title\x07\x1b[2J\u202eb"), 80)

    ours = re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x07\x1b]*\x1b\\", "", painted)
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", ours)


def test_a_text_that_grows_is_painted_as_the_whole_one() -> None:
    stream = MarkdownStream()
    parts = [stream.feed(ANSWER[:end]) for end in range(len(ANSWER) + 1)] + [stream.finish()]
    painted = [PLAIN.blocks(blocks, 60) for blocks in parts if blocks]

    assert len(painted) > 4
    assert "\n\n".join(painted) == PLAIN.text(ANSWER, 60)
