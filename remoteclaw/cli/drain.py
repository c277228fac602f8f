"""The command `drain`."""

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from remoteclaw.cli.access import call_method
from remoteclaw.cli.output import echo, echo_json, json_option, short_id
from remoteclaw.clock import boottime, format_duration, now_ms
from remoteclaw.host.terminal import one_line

#: The interval at which a drained host is looked at, in seconds.
LOOK_S = 1.0


@click.command()
@click.option("--host", metavar="NAME", help="Another host: its name, or the start of its id.")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Wait no longer.")
@click.option("--undo", is_flag=True, help="Let the host take work again.")
@json_option
def drain(host: str | None, timeout: float | None, undo: bool, as_json: bool) -> None:
    """Finish the turns of this host, and take no more work.

    Prints what it waits for. Messages go to other hosts; without any, they wait. Workers that a
    supervisor starts again wait, too, until `drain --undo` or a start of `remoteclaw up`.

    Exit status: 0 no turn runs here, 1 some still run after --timeout, or the drain was undone.
    """
    which = {"host": host} if host else {}
    state = call_method("hosts.resume" if undo else "hosts.drain", **which)
    if undo:
        if as_json:
            echo_json(state)
        else:
            echo(f"{one_line(state['host'])} takes work again.")
        return
    if host:  # a host that has ended has only its id
        which = {"host": state["id"]}
    undo_there = f"drain --undo --host {state['id']}" if host else "drain --undo"
    undoing = f"`remoteclaw {undo_there}` undoes it."
    try:
        state = _wait(state, which, timeout, is_shown=not as_json)
    except KeyboardInterrupt:
        echo(f"{one_line(state['host'])} stays drained: {undoing}", err=True)
        raise
    is_over = state["sinceMs"] is not None and not (state["workers"] or state["turns"])
    if as_json:
        echo_json(state)
    else:
        _print_end(state, undoing, is_over=is_over)
    sys.exit(0 if is_over else 1)


def _wait(
    state: dict[str, Any], which: Mapping[str, str], timeout: float | None, *, is_shown: bool
) -> dict[str, Any]:
    """Return the state of a drained host once nothing runs there, or the wait is over."""
    until, shown = boottime() + (timeout or 0.0), ""
    while state["sinceMs"] is not None and (state["workers"] or state["turns"]):
        if is_shown and (lines := "\n".join(_waits_for(state))) != shown:
            shown = lines
            echo(lines)
            sys.stdout.flush()
        if timeout is not None and boottime() >= until:
            break
        time.sleep(LOOK_S)
        state = call_method("hosts.get", **which)
    return state


def _waits_for(state: Mapping[str, Any]) -> Iterator[str]:
    for turn in state["turns"]:
        age = f", {format_duration(now_ms() - turn['sinceMs'])} old" if turn["sinceMs"] else ""
        name, sid = one_line(turn["label"] or turn["title"] or "")[:60], short_id(turn["key"])
        yield f"waits for the turn of {turn['agent']} in {sid}{age}: {name}"
    if not state["turns"]:
        count = len(state["workers"])
        yield f"waits for {count} {'worker' if count == 1 else 'workers'} to end"


def _print_end(state: Mapping[str, Any], undoing: str, *, is_over: bool) -> None:
    host = one_line(state["host"])
    if state["sinceMs"] is None:
        echo(f"{host} takes work again: the drain was undone.")
        return
    if is_over:
        echo(f"{host} is drained: no turn runs there. {undoing}")
    else:
        count = len(state["turns"])
        run = "turn runs" if count == 1 else "turns run"
        echo(f"{host} takes no more work, but {count} {run}. {undoing}")
    for each in state["terminals"]:
        by = one_line(each["openedBy"])
        watched = f", {each['viewers']} watching" if each["viewers"] else ""
        echo(f"open terminal: {short_id(each['sessionKey'])}, opened by {by}{watched}")
