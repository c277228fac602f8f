"""Prints lines, texts, tables, facts and JSON, with control sequences escaped."""

import contextlib
import json
import os
import shutil
import signal
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

from remoteclaw.clock import format_duration, now_ms
from remoteclaw.host.terminal import escape_line, one_line, printable

#: A table cuts its cells to this many characters, except in the last column.
MAX_CELL_CHARS = 60
#: A column that is cut to fit the terminal keeps at least this many terminal columns.
MIN_CELL_COLUMNS = 8

T = TypeVar("T")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let the first Ctrl-C end a command that asks its user something.

    The handler of `asyncio.run` would only cancel the task, which goes on waiting for the answer.
    """

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def complain(text: str) -> None:
    """Print a problem on standard error, as one line."""
    echo(f"remoteclaw: {one_line(text)}", err=True)


def echo(line: str, *, err: bool = False) -> None:
    """Print one line, with control characters and invisible characters escaped."""
    click.echo(escape_line(line), err=err)


def echo_wrapped(text: str, *, lead: str = "") -> None:
    """Print `text` after `lead`; on a terminal, wrap it between words and indent it by `lead`."""
    lines = [escape_line(text)]
    if sys.stdout.isatty():
        room = max(shutil.get_terminal_size().columns - len(lead), 1)
        lines = textwrap.wrap(lines[0], room, break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(lines):
        click.echo(f"{' ' * len(lead) if number else lead}{line}".rstrip())


def echo_text(text: str) -> None:
    """Print a text of several lines, with control characters and invisible characters escaped."""
    click.echo(printable(text))


def echo_json(data: Any) -> None:
    """Print data as JSON."""
    echo_text(json.dumps(data, indent=2, ensure_ascii=False))


def print_result(
    result: Mapping[str, Any],
    items: str,
    *,
    as_json: bool,
    headers: Sequence[str],
    row: Callable[[Mapping[str, Any]], Sequence[object]],
    empty: str = "",
    cut_column: str = "",
    is_last_optional: bool = False,
) -> None:
    """Print a method's result as JSON, or a table with the `row` of each of its `items`."""
    if as_json:
        echo_json(result)
    else:
        print_table(
            headers,
            map(row, result[items]),
            empty=empty,
            cut_column=cut_column,
            is_last_optional=is_last_optional,
        )


def print_list(
    items: Iterable[T],
    *,
    as_json: bool,
    to_json: Callable[[T], Any],
    headers: Sequence[str],
    row: Callable[[T], Sequence[object]],
    empty: str = "",
    cut_column: str = "",
    is_last_optional: bool = False,
) -> None:
    """Print items as JSON, converted by `to_json`, or as a table with the `row` of each."""
    if as_json:
        echo_json([to_json(item) for item in items])
    else:
        print_table(
            headers,
            map(row, items),
            empty=empty,
            cut_column=cut_column,
            is_last_optional=is_last_optional,
        )


def print_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    empty: str = "",
    cut_column: str = "",
    is_last_optional: bool = False,
) -> None:
    """Print a table. Without rows, print only `empty`, unless it is empty.

    Numbers are aligned to the right, and None is an empty cell. If the terminal is too narrow, the
    last column is left out if it `is_last_optional`; then the column `cut_column` is cut.
    """
    cells_by_row = list(rows)
    if empty and not cells_by_row:
        echo(empty)
        return
    lines = [
        list(headers),
        *([_cell(cell) for cell in row[:-1]] + [one_line(str(row[-1]))] for row in cells_by_row),
    ]
    is_number = [
        any(isinstance(row[at], int) for row in cells_by_row) for at in range(len(headers))
    ]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns
        if is_last_optional and _row_width(widths) > room:
            widths.pop()
        if cut_column:
            at, excess = headers.index(cut_column), max(_row_width(widths) - room, 0)
            widths[at] = max(widths[at] - excess, min(widths[at], MIN_CELL_COLUMNS))
    for number, line in enumerate(lines):
        cells = []
        for text, width, is_right in zip(line, widths, is_number, strict=False):
            cell = _cut(text, width)
            blanks = " " * (width - _width(cell))
            cells.append(f"{blanks}{cell}" if is_right else f"{cell}{blanks}")
        printed = escape_line("  ".join(cells).rstrip())
        click.echo(_bold(printed) if number == 0 else printed)


def _row_width(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _cut(text: str, width: int) -> str:
    """Return a text, cut to `width` terminal columns with an ellipsis if it is wider."""
    if _width(text) <= width:
        return text
    while _width(text) >= width:
        text = text[:-1]
    return f"{text}…"


def _width(text: str) -> int:
    """Return how many terminal columns a text takes."""
    return sum(
        0
        if unicodedata.combining(character)
        else 2
        if unicodedata.east_asian_width(character) in "WF"
        else 1
        for character in text
    )


def _bold(text: str) -> str:
    """Return a text in bold for a terminal that has styles, and unchanged for anything else."""
    term = os.environ.get("TERM", "")
    if not sys.stdout.isatty() or term in ("", "dumb", "unknown") or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, bold=True)


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else one_line(str(value), max_chars=MAX_CELL_CHARS)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print each name with its value on a line; values that are None or empty are left out."""
    known = {name: one_line(str(value)) for name, value in facts.items() if value not in (None, "")}
    width = max(map(len, known), default=0)
    for name, value in known.items():
        echo(f"{name:<{width}}  {value}")


def short_id(session: str) -> str:
    """Return the start of a session's id, which stands for the session in lists.

    `session` is its key or its id. The id is as in `SessionKey`, whose import loads pydantic.
    """
    import hashlib

    sid = hashlib.sha256(session.encode()).hexdigest() if "/" in session else session
    return sid[:8]


def format_age(at_ms: int) -> str:
    """Return the time that has passed since `at_ms`, such as `5 min`."""
    return format_duration(now_ms() - at_ms)


def format_time(at_ms: int, *, milliseconds: bool = False) -> str:
    """Return a time, in milliseconds since 1970, as date and time in the local time zone."""
    moment = datetime.fromtimestamp(at_ms / 1000).astimezone()
    fraction = f".{at_ms % 1000:03}" if milliseconds else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}"
