"""Output of commands: lines, texts, tables, facts and JSON, of which a terminal obeys nothing."""

import json
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from remoteclaw.clock import in_words, now_ms
from remoteclaw.host.terminal import in_a_line, one_line, printable

if TYPE_CHECKING:
    from remoteclaw.tools.base import Result

#: The widest cell of a table, in characters; the last column has any width.
MAX_CELL = 60
#: The narrowest cell that is cut for a terminal, in columns.
LEAST_CELL = 8

T = TypeVar("T")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def complain(text: str) -> None:
    """Say on standard error, in one line, what is wrong."""
    echo(f"remoteclaw: {one_line(text)}", err=True)


def echo(line: str, *, err: bool = False) -> None:
    """Print one line, with an escape for all that a terminal obeys or doesn't show."""
    click.echo(in_a_line(line), err=err)


def echo_words(words: str, *, lead: str = "") -> None:
    """Print one line behind a lead; on a terminal, in lines that are broken between words."""
    lines = [in_a_line(words)]
    if sys.stdout.isatty():
        room = max(shutil.get_terminal_size().columns - len(lead), 1)
        lines = textwrap.wrap(lines[0], room, break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(lines):
        click.echo(f"{' ' * len(lead) if number else lead}{line}".rstrip())


def echo_text(text: str) -> None:
    """Print a text of several lines in the same way."""
    click.echo(printable(text))


def echo_json(data: Any) -> None:
    """Print data as JSON."""
    echo_text(json.dumps(data, indent=2, ensure_ascii=False))


def plain(result: "Result", **renamed: str) -> dict[str, Any]:
    """Return what a method of the gateway has returned as JSON, by its attributes' names.

    `renamed` are those that are called otherwise here.
    """
    told = result.model_dump(mode="json", by_alias=False)
    return {renamed.get(name, name): value for name, value in told.items()}


def listing(
    found: Iterable[T],
    *,
    as_json: bool,
    plain: Callable[[T], Any],
    heads: Sequence[str],
    row: Callable[[T], Sequence[object]],
    empty: str = "",
    narrows: str = "",
    is_last_spare: bool = False,
) -> None:
    """Print things as JSON, each as `plain` returns it, or as a table with a row for each."""
    if as_json:
        echo_json([plain(one) for one in found])
    else:
        table(heads, map(row, found), empty=empty, narrows=narrows, is_last_spare=is_last_spare)


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    empty: str = "",
    narrows: str = "",
    is_last_spare: bool = False,
) -> None:
    """Print rows below their heads, numbers to the right; `empty`, if it is given, for no rows.

    None is an empty cell. In a terminal that is too narrow, the last column is left out if it
    `is_last_spare`, and the one that `narrows` is cut.
    """
    found = list(rows)
    if empty and not found:
        echo(empty)
        return
    lines = [
        list(heads),
        *([_cell(cell) for cell in row[:-1]] + [one_line(str(row[-1]))] for row in found),
    ]
    numbers = [any(isinstance(row[at], int) for row in found) for at in range(len(heads))]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns
        if is_last_spare and _row_width(widths) > room:
            widths.pop()
        if narrows:
            at, excess = heads.index(narrows), max(_row_width(widths) - room, 0)
            widths[at] = max(widths[at] - excess, min(widths[at], LEAST_CELL))
    for number, line in enumerate(lines):
        cells = []
        for whole, width, is_right in zip(line, widths, numbers, strict=False):
            cell = _cut(whole, width)
            blanks = " " * (width - _width(cell))
            cells.append(f"{blanks}{cell}" if is_right else f"{cell}{blanks}")
        text = in_a_line("  ".join(cells).rstrip())
        click.echo(_bold(text) if number == 0 else text)


def _row_width(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _cut(text: str, width: int) -> str:
    """Return the beginning of a text that has so many columns."""
    if _width(text) <= width:
        return text
    while _width(text) >= width:
        text = text[:-1]
    return f"{text}…"


def _width(text: str) -> int:
    """Return how many columns a text takes."""
    return sum(
        0
        if unicodedata.combining(character)
        else 2
        if unicodedata.east_asian_width(character) in "WF"
        else 1
        for character in text
    )


def _bold(text: str) -> str:
    """Return a text that stands out, on a terminal that has colours."""
    term = os.environ.get("TERM", "")
    if not sys.stdout.isatty() or term in ("", "dumb", "unknown") or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, bold=True)


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else one_line(str(value), most=MAX_CELL)


def facts(about: Mapping[str, object]) -> None:
    """Print what is known of one thing, a line each; what is None or empty is left out."""
    known = {name: one_line(str(value)) for name, value in about.items() if value not in (None, "")}
    width = max(map(len, known), default=0)
    for name, value in known.items():
        echo(f"{name:<{width}}  {value}")


def short_id(session_key: str) -> str:
    """Return the start of the id of the session with a key, as lists have it."""
    from remoteclaw.messages import SessionKey

    return SessionKey.parse(session_key).sid[:8]


def age(at_ms: int) -> str:
    """Return how long ago something was."""
    return in_words(now_ms() - at_ms)


def clock(at_ms: int, *, milliseconds: bool = False) -> str:
    """Return a time of Redis' clock as people here read it."""
    moment = datetime.fromtimestamp(at_ms / 1000).astimezone()
    fraction = f".{at_ms % 1000:03}" if milliseconds else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}"
