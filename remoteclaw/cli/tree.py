"""The command `sessions tree`: prints a session's tasks and branches, once or at each change."""

import contextlib
import json
import sys
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import on_fleet
from remoteclaw.cli.output import echo, echo_json, echo_text, json_option, print_table
from remoteclaw.cli.sessions import session_argument, sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.sessions.task_tree import TaskTree
    from remoteclaw.messages import TaskStatus

HEADERS = ("TASK", "KIND", "STATE", "SINCE", "HOST", "DOING")
NO_TASKS = "It has no tasks or branches."


@sessions.command("tree")
@session_argument
@click.option("--follow", is_flag=True, help="Print the tree again at each change, until Ctrl-C.")
@json_option
def tree_of_session(session: str, follow: bool, as_json: bool) -> None:
    """Show the tasks and branches of a session as a tree.

    Those of its tasks are below them. What ended more than ten minutes ago is left out. With
    --follow, JSON is one object per line.
    """

    async def run(fleet: "Fleet") -> None:
        key = (await fleet.sessions.named(session)).key
        if not follow:
            _show(str(key), await fleet.task_trees.read(key.sid), as_json=as_json)
            return
        async with contextlib.aclosing(fleet.task_trees.follow(key.sid)) as changes:
            async for tree in changes:
                if sys.stdout.isatty() and not as_json:
                    click.clear()
                _show(str(key), tree, as_json=as_json, is_line=True)

    with contextlib.suppress(*((KeyboardInterrupt,) if follow else ())):
        on_fleet(run)


def _show(key: str, tree: "TaskTree", *, as_json: bool, is_line: bool = False) -> None:
    from remoteclaw.gateway.task_tree import tree_of

    if as_json:
        data = tree_of(key, tree).to_json()
        if is_line:
            echo_text(json.dumps(data, ensure_ascii=False))
        else:
            echo_json(data)
        sys.stdout.flush()
        return
    rows = [_row(depth, item) for depth, item in _in_order(tree)]
    print_table(HEADERS, rows, empty=NO_TASKS, cut_column="DOING")
    if tree.left_out:
        echo(f"And {tree.left_out} more.")
    sys.stdout.flush()


def _in_order(tree: "TaskTree") -> "Iterator[tuple[int, TaskStatus]]":
    """Yield each task or branch with its depth in the tree, parents before their children."""
    sids = {item.session.sid for item in tree.items}
    roots = [item for item in tree.items if item.parent not in sids]
    stack = [(0, item) for item in reversed(roots)]
    while stack:
        depth, item = stack.pop()
        yield depth, item
        children = [each for each in tree.items if each.parent == item.session.sid]
        stack += [(depth + 1, child) for child in reversed(children)]


def _row(depth: int, item: "TaskStatus") -> tuple[object, ...]:
    from remoteclaw.bridge.task_lines import doing_of
    from remoteclaw.clock import format_duration

    name = item.label or item.session.sid[:8]
    doing = " · ".join(filter(None, (item.progress, doing_of(item))))
    return (
        f"└{'─' * (depth - 1)} {name}" if depth else name,
        item.kind,
        item.state,
        f"{'in ' if item.is_over else ''}{format_duration(item.age_ms)}",
        item.host,
        doing,
    )
