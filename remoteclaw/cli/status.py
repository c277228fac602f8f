"""The commands `status`, which shows what runs, and `doctor`, which finds what is missing."""

import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from remoteclaw.cli.access import call_method
from remoteclaw.cli.output import echo, echo_json, json_option, short_id
from remoteclaw.cli.sessions import pause_of
from remoteclaw.clock import format_duration, now_ms
from remoteclaw.errors import RemoteClawError
from remoteclaw.host.terminal import one_line

#: The parts of a host, with the names of their numbers in `fleet.status`.
PARTS = {"worker": "workers", "gateway": "gateways", "sweeper": "sweepers", "channels": "channels"}
#: `fleet.status` returns at most this many busy sessions.
MAX_SHOWN = 50


@click.command()
@click.option(
    "--check",
    type=click.Choice(["all", *PARTS]),
    is_flag=False,
    flag_value="all",
    help="Print only problems; with a part, whether that runs on this host.",
)
@json_option
def status(check: str | None, as_json: bool) -> None:
    """Show what is running.

    Supervisors can use --check, or --check=worker, for the health of a part on this host.

    Exit status: 0 a worker answers messages, with --check nothing is wrong; 1 otherwise.
    """
    fleet = call_method("fleet.status")
    if as_json:
        echo_json(fleet)
    elif not check:
        _print(fleet)
    if check:
        sys.exit(1 if _has_problem(fleet, check, is_shown=not as_json) else 0)
    is_open = any(worker["isOurs"] for worker in fleet["workers"])
    subjects = {problem["subject"] for problem in fleet["problems"]}
    if "paused" in subjects or ("drained" in subjects and not is_open):
        sys.exit(1)  # what was printed says why
    if not is_open:
        raise RemoteClawError("No rq worker serves the queue: start some with `remoteclaw worker`.")


def _has_problem(fleet: Mapping[str, Any], check: str, *, is_shown: bool) -> bool:
    """Print the problems of a fleet, or of a part on this host; return whether there are any.

    A drained host is no problem: an operator has drained it.
    """
    if check == "all":
        problems = [
            f"{each['subject']}: {each['text']}"
            for each in fleet["problems"]
            if each["subject"] != "drained"
        ]
    else:
        counts = [host[PARTS[check]] for host in fleet["hosts"] if host["name"] == fleet["host"]]
        problems = [] if any(counts) else [f"{check}: none runs on this host."]
    for problem in problems if is_shown else ():
        echo(one_line(problem))
    return bool(problems)


def _print(fleet: Mapping[str, Any]) -> None:
    problems = {problem["subject"]: problem["text"] for problem in fleet["problems"]}
    for host in fleet["hosts"]:
        echo(f"host      {_host(host)}")
    if "versions" in problems:
        echo(f"versions  {problems['versions']}")
    if "paused" in problems:
        echo(f"paused    {problems['paused']}")
    echo(f"workers   {len(fleet['workers'])}")
    for worker in fleet["workers"]:
        suffix = "" if worker["isOurs"] else ", and not started as `remoteclaw worker`"
        if since_ms := worker.get("silentSinceMs"):
            suffix = f", silent for {format_duration(fleet['atMs'] - since_ms)}: it may be frozen"
        host = one_line(worker["host"])
        echo(f"  {worker['state']:<9} pid {worker['pid']} on {host}{suffix}")
    echo(f"turns     {_turns(fleet)}")
    echo(f"today     {_today(fleet['today'])}")
    without = "none here, so agents have no tools: run `remoteclaw gateway`"
    echo(f"gateway   {fleet['gateway'] or without}")
    if "sweeper" in problems:
        echo("sweeper   none, so a dead worker's messages wait: run `remoteclaw sweep`")
    if "drained" in problems:
        echo(f"drained   {problems['drained']}")
    for problem in fleet["problems"]:
        if problem["subject"].startswith("agent "):
            echo(f"waits     {one_line(problem['text'])}")
    for adapter in fleet["adapters"]:
        if not adapter["account"].startswith("web/"):  # gateways deliver for the page
            echo(f"channel   {one_line(adapter['line'])}")
    count, busy = fleet["busySessions"], fleet["sessions"]
    echo(f"sessions  {count} {'has' if count == 1 else 'have'} work")
    for session in busy:
        sid = short_id(session["key"])
        echo(f"  {session['state']:<9} {sid} {session['key']}{pause_of(session)}")
    if count > len(busy) == MAX_SHOWN:
        echo(f"  and {count - len(busy)} more")
    for agent in fleet.get("failing", ()):  # a gateway may be of an earlier version
        _print_failing(agent, fleet["atMs"])
    if "configuration" in problems:
        echo(f"config    {problems['configuration']}")
    echo(f"memory    {problems.get('redis') or _memory(fleet['memory'])}")
    if letters := fleet["deadLetters"]:
        echo(f"dead      {letters}: see `remoteclaw deadletters list`")


def _print_failing(agent: Mapping[str, Any], at_ms: int) -> None:
    """Print that turns of an agent failed lately, and the newest of each category."""
    echo(f"failed    {one_line(agent['agent'])}: {agent['line']}")
    for failed in agent["categories"]:
        count, age = failed["count"], format_duration(at_ms - failed["atMs"])
        newest = f"{age} ago on {one_line(failed['host'])}, in {failed.get('sessionKey') or '?'}"
        echo(f"  {count} {failed['category']}, {'the newest ' if count > 1 else ''}{newest}")
        if failed["reason"]:
            echo(f"    {one_line(failed['reason'])}")
        reference = failed["reference"]
        echo(f"    remoteclaw sessions trace {reference}, remoteclaw logs --session {reference}")


def _host(host: Mapping[str, Any]) -> str:
    """Return a host with its parts and versions on one line."""
    parts = [
        f"{count} {name if count > 1 else part}" if name == "workers" else part
        for part, name in PARTS.items()
        if (count := host[name])
    ]
    drained = ", drained" if host.get("drainedMs") else ""
    return f"{one_line(host['name'])}{drained}: {', '.join(parts)}; {', '.join(host['versions'])}"


def _memory(memory: Mapping[str, int]) -> str:
    from remoteclaw.host.files import format_size

    used, limit = memory["usedBytes"], memory["limitBytes"]
    of = f" of {format_size(limit)}" if limit else ", without a limit"
    return f"{format_size(used)}{of} in use"


def _turns(fleet: Mapping[str, Any]) -> str:
    """Return how many turns run, how many sessions wait, and for what."""
    running, waiting, postponed = fleet["running"], fleet["waiting"], fleet["postponed"]
    since_ms = fleet.get("waitingSinceMs")
    oldest = f", the oldest for {format_duration(fleet['atMs'] - since_ms)}" if since_ms else ""
    parts = [
        f"{running} {'runs' if running == 1 else 'run'}",
        f"{waiting} {'waits' if waiting == 1 else 'wait'} for a worker{oldest}",
    ]
    if postponed:
        parts.append(f"{postponed} {'is' if postponed == 1 else 'are'} postponed")
    if asked := fleet["openRequests"]:
        parts.append(f"{asked} {'request waits' if asked == 1 else 'requests wait'} for an answer")
    return "; ".join(parts)


def _today(used: Mapping[str, Any]) -> str:
    from remoteclaw.events import format_cost

    cost = format_cost(used["costUsd"])
    turns = f"{used['turns']:,} {'turn' if used['turns'] == 1 else 'turns'}"
    return f"{turns}, {cost}" if cost else turns


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check what RemoteClaw needs here, and report what is missing.

    Each line begins with ok, NO, or -- for an optional part that is not installed.

    Exit status: 0 nothing is wrong, 1 something is.
    """
    import asyncio

    from remoteclaw.up.doctor import examine

    async def run() -> bool:
        if as_json:
            findings = [finding async for finding in examine()]
            echo_json(
                {
                    "host": socket.gethostname(),
                    "atMs": now_ms(),
                    "findings": [asdict(finding) for finding in findings],
                }
            )
            return all(finding.ok for finding in findings)
        is_well = True
        async for finding in examine():  # each is printed as soon as it is known
            is_well &= finding.ok
            mark = "--" if finding.absent else "ok" if finding.ok else "NO"
            echo(f"{mark}  {finding.subject:<16} {one_line(finding.text)}")
        return is_well

    sys.exit(0 if asyncio.run(run()) else 1)
