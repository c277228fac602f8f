"""The commands `status`, which shows what runs, and `doctor`, which finds what is missing."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import load, with_fleet
from remoteclaw.cli.output import echo, echo_json, json_option
from remoteclaw.cli.sessions import pause_of, session_json
from remoteclaw.errors import RemoteClawError
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet

#: At most this many busy sessions are shown.
MAX_SHOWN = 50
#: The attributes of a worker in JSON output.
WORKER_FACTS = ("pid", "host", "state", "is_ours")


@click.command()
@json_option
@with_fleet
async def status(fleet: "Fleet", as_json: bool) -> None:
    """Show what is running.

    Exit status: 0 a worker answers messages, 1 no worker does.
    """
    from remoteclaw.fleet.account_states import configured_accounts

    home, config = load()
    workers = await fleet.workers.list()
    letters = await fleet.dead_letters.count()
    memory = await fleet.scripts.memory()
    count, busy = await fleet.sessions.busy(limit=MAX_SHOWN)
    hints = await fleet.workers.waiting()
    address = await fleet.gateways.address(home.host_id)
    has_sweeper = await fleet.workers.has_sweeper()
    if as_json:
        echo_json(
            {
                "workers": [
                    {name: getattr(view, name) for name in WORKER_FACTS} for view in workers
                ],
                "hints": hints,
                "gateway": address,
                "has_sweeper": has_sweeper,
                "busy_sessions": count,
                "sessions": [session_json(view, config) for view in busy],
                "memory_problem": memory.problem,
                "dead_letters": letters,
            }
        )
    else:
        echo(f"workers   {len(workers)}")
        for view in workers:
            suffix = "" if view.is_ours else ", and not started as `remoteclaw worker`"
            echo(f"  {view.state:<9} pid {view.pid} on {one_line(view.host)}{suffix}")
        echo(f"queue     {hints} {'hint waits' if hints == 1 else 'hints wait'} for a worker")
        echo(
            f"gateway   {address or 'none here, so agents have no tools: run `remoteclaw gateway`'}"
        )
        if not has_sweeper:
            echo("sweeper   none, so lost hints are not replaced: run `remoteclaw sweep`")
        for account in await configured_accounts(fleet, config):
            echo(f"channel   {one_line(account.line)}")
        echo(f"sessions  {count} {'has' if count == 1 else 'have'} work")
        for session in busy:
            echo(f"  {session.status:<9} {session.sid[:8]} {session.key}{pause_of(session)}")
        if count > len(busy) == MAX_SHOWN:
            echo(f"  and {count - len(busy)} more")
        if memory.problem:
            echo(f"memory    {memory.problem}")
        if letters:
            echo(f"dead      {letters}: see `remoteclaw deadletters list`")
    if not any(view.is_ours for view in workers):
        raise RemoteClawError("No rq worker serves the queue: start some with `remoteclaw worker`.")


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check what RemoteClaw needs here, and report what is missing.

    Exit status: 0 nothing is missing, 1 something is.
    """
    import asyncio

    from remoteclaw.up.doctor import examine

    async def run() -> bool:
        if as_json:
            findings = [finding async for finding in examine()]
            echo_json([asdict(finding) for finding in findings])
            return all(finding.ok for finding in findings)
        is_well = True
        async for finding in examine():  # each is printed as soon as it is known
            is_well &= finding.ok
            text = one_line(finding.text)
            echo(f"{'ok ' if finding.ok else 'NO '} {finding.subject:<16} {text}")
        return is_well

    sys.exit(0 if asyncio.run(run()) else 1)
