"""Paints Markdown for a terminal, as lines of coloured text that are wrapped to a width.

rich wraps, colours and measures the text. All text goes through `printable()` first, so it can't
control the terminal.
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
    HorizontalRule,
    ListBlock,
    Paragraph,
    Quote,
    Span,
    Table,
    blocks_of,
)

#: The minimum width, in columns. A terminal that reports less does not know its width.
MIN_COLUMNS = 20
#: The minimum width of a table's columns. In a narrower terminal, its rows are shown as lists.
MIN_CELL_COLUMNS = 9
#: The sixteen colours of the person's own theme, which fit a light and a dark background.
COLOURS: Literal["standard"] = "standard"
CODE_THEME = "ansi_dark"

BOLD, DIM = Style(bold=True), Style(dim=True)
CODE = Style(color="cyan")
LINK = Style(color="blue", underline=True)
HEADING = Style(bold=True, color="magenta")

#: The styles of the chat's own text, as SGR codes.
_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}
#: Environment variables and values of `TERM_PROGRAM` by which terminals with links (OSC 8) are
#: recognised.
_LINKING = (
    *("VTE_VERSION", "KITTY_WINDOW_ID", "WEZTERM_PANE", "ALACRITTY_WINDOW_ID", "WT_SESSION"),
    "KONSOLE_VERSION",
)
_LINKING_PROGRAMS = ("iTerm.app", "WezTerm", "vscode", "ghostty")
#: The console for which rich measures plain text.
_PLAIN = Console(file=io.StringIO(), color_system=None, _environ={})


@dataclass(frozen=True, slots=True)
class TerminalFeatures:
    """The features of a terminal."""

    has_colours: bool = True
    """Whether text can be coloured, bold or dim. False for a dumb terminal and with NO_COLOR."""
    has_links: bool = False
    """Whether text can be a link. Otherwise the address is shown after the text."""

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> "TerminalFeatures":
        """Return the features of the terminal, as its environment variables show them."""
        term = environ.get("TERM", "")
        if term in ("", "dumb", "unknown") or environ.get("NO_COLOR"):
            return cls(has_colours=False)
        links = any(name in environ for name in _LINKING)
        return cls(has_links=links or environ.get("TERM_PROGRAM") in _LINKING_PROGRAMS)


class MarkdownPainter:
    """Paints Markdown for one terminal. Widths are in columns."""

    def __init__(self, features: TerminalFeatures) -> None:
        self._features = features

    def paint(self, markdown: str, width: int) -> str:
        """Return a Markdown text as painted lines."""
        return self.paint_blocks(blocks_of(markdown), width)

    def wrap(self, text: str, width: int) -> list[str]:
        """Return a plain text as lines, broken between words where possible."""
        return [line.plain.rstrip() for line in Text(text).wrap(_PLAIN, max(width, 1))]

    def truncate(self, text: str, width: int) -> str:
        """Return a text of one line, cut to `width` with an ellipsis."""
        line = Text(text)
        line.truncate(max(width, 1), overflow="ellipsis")
        return line.plain

    def styled(self, text: str, style: str) -> str:
        """Return a text of the chat's own in a style: bold, dim, red, green or yellow."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self._features.has_colours else text

    def paint_blocks(self, blocks: Sequence[Block], width: int) -> str:
        """Return blocks as painted lines, with an empty line between two blocks."""
        width = max(width, MIN_COLUMNS)
        console = Console(
            file=io.StringIO(),
            width=width,
            force_terminal=True,
            color_system=COLOURS if self._features.has_colours else None,
            legacy_windows=False,
            _environ={},
        )
        renderer = _Renderer(console, self._features)
        with console.capture() as captured:
            for line in renderer.lines(blocks, width):
                line.rstrip()
                console.print(line, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)
        return captured.get().removesuffix("\n")


class _Renderer:
    """Renders blocks as lines of rich's text."""

    def __init__(self, console: Console, features: TerminalFeatures) -> None:
        self._console = console
        self._features = features

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
            case HorizontalRule():
                return (Text("─" * min(width, 40), DIM),)

    def _wrapped(self, text: Text, width: int) -> Iterable[Text]:
        return text.wrap(self._console, max(width, 1))

    def _text(self, spans: Sequence[Span], base: Style = Style.null()) -> Text:  # noqa: B008
        text = Text(style=base)
        for span in spans:
            text.append(printable(span.text).expandtabs(4), self._style(span))
            if span.link and not self._features.has_links and span.text not in _forms(span.link):
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
            if self._features.has_links:
                style += Style(link=printable(span.link))
        return style

    def _code(self, block: CodeBlock, width: int) -> Iterator[Text]:
        name = printable(block.language)[:20]
        yield Text(f"── {name} " if name else "──", DIM)
        code = printable(block.text).expandtabs(4)
        shown = Text(code)
        if self._features.has_colours and name:
            shown = Syntax(code, name, theme=CODE_THEME).highlight(code)
            shown.rstrip()
        # The terminal wraps a line that is too long, so that it is copied as one line.
        yield from shown.split("\n", allow_blank=True)
        yield Text("──", DIM)

    def _list(self, block: ListBlock, width: int) -> Iterator[Text]:
        numbers = range(block.start or 0, (block.start or 0) + len(block.items))
        for number, item in zip(numbers, block.items, strict=True):
            mark = "• " if block.start is None else f"{number}. "
            if item.is_checked is not None:
                mark = "☑ " if item.is_checked else "☐ "
            is_first = True
            for line in self.lines(item.blocks, width - len(mark), is_item=True):
                yield Text.assemble((mark if is_first else " " * len(mark), DIM), line)
                is_first = False
            if is_first:
                yield Text(mark.rstrip(), DIM)

    def _table(self, block: Table, width: int) -> Iterable[Text]:
        if width // max(len(block.head), 1) < MIN_CELL_COLUMNS:
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


def _forms(link: str) -> tuple[str, ...]:
    """Return the texts for which the address need not be shown: its full and its short form."""
    return link, link.removeprefix("mailto:"), link.partition("://")[2].rstrip("/")
