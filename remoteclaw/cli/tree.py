"""The command `sessions tree`: prints a session's tasks and branches, once or at each change."""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import call_method, load, on_fleet
from remoteclaw.cli.output import echo, echo_json, echo_text, json_option, print_table, short_id
from remoteclaw.cli.sessions import session_argument, sessions
from remoteclaw.cli.usage import print_budgets
from remoteclaw.clock import format_duration

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet

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

    if not follow:
        _show(call_method("tasks.tree", sessionKey=session), as_json=as_json)
        return

    async def run(fleet: "Fleet") -> None:
        from remoteclaw.gateway.budget_states import tree_budgets
        from remoteclaw.gateway.task_tree import tree_of

        key, config = (await fleet.sessions.named(session)).key, load()[1]
        async with contextlib.aclosing(fleet.task_trees.follow(key.sid)) as changes:
            async for tree in changes:
                if sys.stdout.isatty() and not as_json:
                    click.clear()
                budgets = await tree_budgets(fleet.sessions, fleet.budgets, config, key)
                result = tree_of(str(key), tree).model_copy(update={"budgets": budgets})
                _show(result.model_dump(mode="json"), as_json=as_json, is_line=True)

    with contextlib.suppress(KeyboardInterrupt):
        on_fleet(run)


def _show(tree: Mapping[str, Any], *, as_json: bool, is_line: bool = False) -> None:
    if as_json and is_line:
        echo_text(json.dumps(tree, ensure_ascii=False))
    elif as_json:
        echo_json(tree)
    else:
        rows = [_row(depth, item) for depth, item in _in_order(tree)]
        print_table(HEADERS, rows, empty=NO_TASKS, cut_column="DOING")
        if tree["leftOut"]:
            echo(f"And {tree['leftOut']} more.")
        print_budgets(tree)
    sys.stdout.flush()


def _in_order(tree: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each task or branch with its depth in the tree, parents before their children."""
    keys = {item["sessionKey"] for item in tree["work"]}
    roots = [item for item in tree["work"] if item["parent"] not in keys]
    stack = [(0, item) for item in reversed(roots)]
    while stack:
        depth, item = stack.pop()
        yield depth, item
        children = [each for each in tree["work"] if each["parent"] == item["sessionKey"]]
        stack += [(depth + 1, child) for child in reversed(children)]


def _row(depth: int, item: Mapping[str, Any]) -> tuple[object, ...]:
    name = item["label"] or short_id(item["sessionKey"])
    is_running = item["state"] in ("running", "waiting")
    return (
        f"└{'─' * (depth - 1)} {name}" if depth else name,
        item["kind"],
        item["state"],
        f"{'' if is_running else 'in '}{format_duration(int(item['seconds'] * 1000))}",
        item["host"],
        " · ".join(filter(None, (item["progress"], item["doing"]))),
    )
