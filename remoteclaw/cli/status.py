"""The commands `status` and `doctor`: what runs, and what is missing."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import load, with_fleet
from remoteclaw.cli.output import echo, echo_json, json_option
from remoteclaw.cli.sessions import pause_of, plain_session
from remoteclaw.errors import RemoteClawError
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet

#: How many busy sessions are shown.
MAX_SHOWN = 50
#: What JSON says of a worker.
WORKER_FACTS = ("pid", "host", "state", "is_ours")


@click.command()
@json_option
@with_fleet
async def status(fleet: "Fleet", as_json: bool) -> None:
    """Say what runs. Exit status 0 if messages are answered."""
    from remoteclaw.fleet.adapters import accounts_here

    home, config = load()
    workers = await fleet.workers.list()
    letters = await fleet.dead_letters.count()
    memory = await fleet.scripts.memory()
    count, busy = await fleet.sessions.busy(limit=MAX_SHOWN)
    hints = await fleet.workers.waiting()
    address = await fleet.gateways.address(home.host_id)
    has_sweeper = await fleet.workers.have_sweeper()
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
                "sessions": [plain_session(view, config) for view in busy],
                "memory_problem": memory.problem,
                "dead_letters": letters,
            }
        )
    else:
        echo(f"workers   {len(workers)}")
        for view in workers:
            stranger = "" if view.is_ours else ", and not started as `remoteclaw worker`"
            echo(f"  {view.state:<9} pid {view.pid} on {one_line(view.host)}{stranger}")
        echo(f"queue     {hints} {'hint waits' if hints == 1 else 'hints wait'} for a worker")
        echo(f"gateway   {address or 'none here: agents have no tools; `remoteclaw gateway`'}")
        if not has_sweeper:
            echo("sweeper   none: hints that get lost stay lost; run `remoteclaw sweep`")
        for account in await accounts_here(fleet, config):
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
    """Look at what RemoteClaw needs here, and say what is missing."""
    import asyncio

    from remoteclaw.up.doctor import examine

    async def run() -> bool:
        if as_json:
            findings = [finding async for finding in examine()]
            echo_json([asdict(finding) for finding in findings])
            return all(finding.ok for finding in findings)
        is_well = True
        async for finding in examine():  # each is shown when it is known
            is_well &= finding.ok
            text = one_line(finding.text)
            echo(f"{'ok ' if finding.ok else 'NO '} {finding.subject:<16} {text}")
        return is_well

    sys.exit(0 if asyncio.run(run()) else 1)
