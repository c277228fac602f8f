"""The command `sessions tree`: what works for a session, once or for as long as one looks."""

import contextlib
import json
import sys
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import on_fleet
from remoteclaw.cli.output import echo, echo_json, echo_text, json_option, table
from remoteclaw.cli.sessions import session_argument, sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.task_tree import WorkBelow
    from remoteclaw.messages import Work

HEADS = ("WORK", "KIND", "STATE", "SINCE", "HOST", "DOING")
NOTHING = "Nothing works for it."


@sessions.command("tree")
@session_argument
@click.option("--follow", is_flag=True, help="Print it again each time it changes, until Ctrl-C.")
@json_option
def tree_of_session(session: str, follow: bool, as_json: bool) -> None:
    """Show what works for a session.

    That is what it has started, and what that has: tasks and branches that have not ended, or did
    within the last ten minutes. With --follow, JSON is one object a line.
    """

    async def run(fleet: "Fleet") -> None:
        key = (await fleet.sessions.named(session)).key
        if not follow:
            _show(str(key), await fleet.work.below(key.sid), as_json=as_json)
            return
        async with contextlib.aclosing(fleet.work.follow(key.sid)) as changes:
            async for below in changes:
                if sys.stdout.isatty() and not as_json:
                    click.clear()
                _show(str(key), below, as_json=as_json, is_line=True)

    with contextlib.suppress(*((KeyboardInterrupt,) if follow else ())):
        on_fleet(run)


def _show(key: str, below: "WorkBelow", *, as_json: bool, is_line: bool = False) -> None:
    from remoteclaw.gateway.task_tree import tree_of

    if as_json:
        told = tree_of(key, below).told()
        if is_line:
            echo_text(json.dumps(told, ensure_ascii=False))
        else:
            echo_json(told)
        sys.stdout.flush()
        return
    rows = [_row(depth, item) for depth, item in _in_order(below)]
    table(HEADS, rows, empty=NOTHING, narrows="DOING")
    if below.left_out:
        echo(f"And {below.left_out} more.")
    sys.stdout.flush()


def _in_order(below: "WorkBelow") -> "Iterator[tuple[int, Work]]":
    """Yield what works with how deep it is, each before what it has started."""
    known = {item.session.sid for item in below.items}
    tops = [item for item in below.items if item.parent not in known]
    waiting = [(0, item) for item in reversed(tops)]
    while waiting:
        depth, item = waiting.pop()
        yield depth, item
        own = [one for one in below.items if one.parent == item.session.sid]
        waiting += [(depth + 1, one) for one in reversed(own)]


def _row(depth: int, item: "Work") -> tuple[object, ...]:
    from remoteclaw.bridge.task_lines import doing_of
    from remoteclaw.clock import in_words

    name = item.label or item.session.sid[:8]
    doing = " · ".join(filter(None, (item.progress, doing_of(item))))
    return (
        f"└{'─' * (depth - 1)} {name}" if depth else name,
        item.kind,
        item.state,
        f"{'in ' if item.is_over else ''}{in_words(item.age_ms)}",
        item.host,
        doing,
    )
