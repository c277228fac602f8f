"""Paints Markdown for a terminal: blocks become lines of text with colours, wrapped to a width.

rich wraps, colours and measures. Nothing in a text can steer the terminal: what it says goes
through `printable()` first.
"""

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table as Grid
from rich.text import Text

from remoteclaw.host.terminal import printable
from remoteclaw.markdown import (
    Block,
    CodeBlock,
    Heading,
    ListBlock,
    Paragraph,
    Quote,
    Rule,
    Span,
    Table,
    blocks_of,
)

#: The narrowest width that is painted for, in columns; a terminal that says less doesn't know.
NARROWEST = 20
#: The least width of a column of a table; narrower, its rows are lists.
NARROWEST_COLUMN = 9
#: The sixteen colours are those of the person's own theme, light or dark.
COLOURS: Literal["standard"] = "standard"
CODE_THEME = "ansi_dark"

BOLD, DIM = Style(bold=True), Style(dim=True)
CODE = Style(color="cyan")
LINK = Style(color="blue", underline=True)
HEADING = Style(bold=True, color="magenta")

#: The styles of words of our own.
_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}
#: Variables of terminals that make a link of a text that has an address (OSC 8).
_LINKING = (
    *("VTE_VERSION", "KITTY_WINDOW_ID", "WEZTERM_PANE", "ALACRITTY_WINDOW_ID", "WT_SESSION"),
    "KONSOLE_VERSION",
)
_LINKING_PROGRAMS = ("iTerm.app", "WezTerm", "vscode", "ghostty")
#: What rich measures plain text for.
_PLAIN = Console(file=io.StringIO(), color_system=None, _environ={})


@dataclass(frozen=True, slots=True)
class Look:
    """What a terminal can show."""

    has_colours: bool = True
    """False for dumb terminals and under NO_COLOR; bold and dim text are colours, too."""
    has_links: bool = False
    """Whether a text can be a link; else its address stands behind it."""

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> "Look":
        """Return the look of the terminal that the environment names."""
        term = environ.get("TERM", "")
        if term in ("", "dumb", "unknown") or environ.get("NO_COLOR"):
            return cls(has_colours=False)
        links = any(name in environ for name in _LINKING)
        return cls(has_links=links or environ.get("TERM_PROGRAM") in _LINKING_PROGRAMS)


class Painter:
    """Paints blocks for one terminal."""

    def __init__(self, look: Look) -> None:
        self.look = look

    def text(self, markdown: str, width: int) -> str:
        """Return a Markdown text as lines for a terminal of a width, in columns."""
        return self.blocks(blocks_of(markdown), width)

    def words(self, text: str, width: int) -> list[str]:
        """Return a plain text in lines of a width: words stay whole where they fit."""
        return [line.plain.rstrip() for line in Text(text).wrap(_PLAIN, max(width, 1))]

    def cut(self, words: str, width: int) -> str:
        """Return the words of one line, cut to a width."""
        line = Text(words)
        line.truncate(max(width, 1), overflow="ellipsis")
        return line.plain

    def styled(self, words: str, style: str) -> str:
        """Return words of our own in a style: bold, dim, red, green or yellow."""
        return f"\x1b[{_CODES[style]}m{words}\x1b[0m" if self.look.has_colours else words

    def blocks(self, blocks: Sequence[Block], width: int) -> str:
        """Return blocks as lines, with an empty one between two blocks and none at the end."""
        width = max(width, NARROWEST)
        console = Console(
            file=io.StringIO(),
            width=width,
            force_terminal=True,
            color_system=COLOURS if self.look.has_colours else None,
            legacy_windows=False,
            _environ={},
        )
        pen = _Pen(console, self.look)
        with console.capture() as captured:
            for line in pen.lines(blocks, width):
                line.rstrip()
                console.print(line, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)
        return captured.get().removesuffix("\n")


class _Pen:
    """Draws blocks as lines of rich's text."""

    def __init__(self, console: Console, look: Look) -> None:
        self._console = console
        self._look = look

    def lines(
        self, blocks: Sequence[Block], width: int, *, is_item: bool = False
    ) -> Iterator[Text]:
        for number, block in enumerate(blocks):
            if number and not (is_item and isinstance(block, ListBlock)):
                yield Text("")
            yield from self._block(block, width)

    def _block(self, block: Block, width: int) -> Iterable[Text]:
        match block:
            case Paragraph(spans):
                return self._wrapped(self._text(spans), width)
            case Heading(level, spans):
                style = HEADING + Style(underline=True) if level == 1 else HEADING
                return self._wrapped(self._text(spans, style), width)
            case CodeBlock():
                return self._code(block, width)
            case ListBlock():
                return self._list(block, width)
            case Quote(blocks):
                inner = self.lines(blocks, width - 2)
                return (Text.assemble(("│ ", DIM), line) for line in inner)
            case Table():
                return self._table(block, width)
            case Rule():
                return (Text("─" * min(width, 40), DIM),)

    def _wrapped(self, text: Text, width: int) -> Iterable[Text]:
        return text.wrap(self._console, max(width, 1))

    def _text(self, spans: Sequence[Span], base: Style = Style.null()) -> Text:  # noqa: B008
        text = Text(style=base)
        for span in spans:
            said = printable(span.text).expandtabs(4)
            text.append(said, self._style(span))
            if span.link and not self._look.has_links and span.text not in _names_of(span.link):
                text.append(f" ({printable(span.link)})", DIM)
        return text

    def _style(self, span: Span) -> Style:
        style = CODE if span.is_code else Style.null()
        if span.is_bold or span.is_italic or span.is_struck:
            style += Style(
                bold=span.is_bold or None,
                italic=span.is_italic or None,
                strike=span.is_struck or None,
            )
        if span.link:
            style += LINK
            if self._look.has_links:
                style += Style(link=printable(span.link))
        return style

    def _code(self, block: CodeBlock, width: int) -> Iterator[Text]:
        name = printable(block.language)[:20]
        yield Text(f"── {name} " if name else "──", DIM)
        code = printable(block.text).expandtabs(4)
        shown = Text(code)
        if self._look.has_colours and name:
            shown = Syntax(code, name, theme=CODE_THEME).highlight(code)
            shown.rstrip()
        # A line that is too long goes on in the next row, as the terminal itself would do it, so
        # that it is copied as one line.
        yield from shown.split("\n", allow_blank=True)
        yield Text("──", DIM)

    def _list(self, block: ListBlock, width: int) -> Iterator[Text]:
        numbers = range(block.start or 0, (block.start or 0) + len(block.items))
        for number, item in zip(numbers, block.items, strict=True):
            mark = "• " if block.start is None else f"{number}. "
            if item.is_checked is not None:
                mark = "☑ " if item.is_checked else "☐ "
            first = True
            for line in self.lines(item.blocks, width - len(mark), is_item=True):
                yield Text.assemble((mark if first else " " * len(mark), DIM), line)
                first = False
            if first:
                yield Text(mark.rstrip(), DIM)

    def _table(self, block: Table, width: int) -> Iterable[Text]:
        if width // max(len(block.head), 1) < NARROWEST_COLUMN:
            return self._rows_as_lists(block, width)
        grid = Grid(
            box=None, padding=(0, 2, 0, 0), show_header=True, header_style="", pad_edge=False
        )
        for align, spans in zip(block.aligns, block.head, strict=True):
            justify: Any = "left" if align == "none" else align
            grid.add_column(self._text(spans, BOLD), justify=justify, overflow="fold")
        for row in block.rows:
            grid.add_row(*map(self._text, row))
        options = self._console.options.update(width=width)
        lines = self._console.render_lines(grid, options, pad=False)
        drawn = [Text.assemble(*((part.text, part.style or "") for part in line)) for line in lines]
        return [
            *drawn[:1],
            Text("─" * min(width, max(map(_width, drawn), default=0)), DIM),
            *drawn[1:],
        ]

    def _rows_as_lists(self, block: Table, width: int) -> Iterator[Text]:
        for number, row in enumerate(block.rows):
            if number:
                yield Text("─" * min(width, 8), DIM)
            for head, cell in zip(block.head, row, strict=True):
                name, text = self._text(head, BOLD), self._text(cell)
                if text:
                    yield from self._wrapped(Text.assemble(name, ": " if name else "", text), width)


def _width(line: Text) -> int:
    line = line.copy()
    line.rstrip()
    return line.cell_len


def _names_of(link: str) -> tuple[str, ...]:
    """Return the texts that say as much as an address does."""
    return link, link.removeprefix("mailto:"), link.partition("://")[2].rstrip("/")
