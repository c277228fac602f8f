"""The result that a task's session owes: what it is called by, and what was answered towards it."""

from dataclasses import dataclass
from typing import Any

import orjson

from remoteclaw.fleet import keys
from remoteclaw.fleet.lease import Lease


@dataclass(frozen=True, slots=True)
class Owed:
    """The result that is awaited of a session, as far as it is known before its turn ends."""

    run: str | None
    """The entry that the run is called by; None if that isn't known."""
    answers: tuple[tuple[dict[str, Any], ...], ...] = ()
    """The replies of the turns before that are a part of it, as their outcomes have them."""


async def owed(lease: Lease) -> Owed:
    """Return what the result of the running turn is about besides that.

    What a task is told while it works may be answered in another turn than the task itself; then
    one result has all answers. An answer that Redis no longer keeps is left out.
    """
    client, deadline = lease.scripts.client, lease.stop_at
    run, unreported = await lease.scripts.call(
        client.hmget, keys.state(lease.sid), ["task_entry", "unreported"], deadline=deadline
    )
    answers = []
    for turn in (unreported or b"").decode().split(","):
        name = keys.outcome_prefix(lease.sid) + turn
        reply = turn and await lease.scripts.call(client.hget, name, "reply", deadline=deadline)
        if reply:
            answers.append(tuple(orjson.loads(reply)))
    return Owed(run.decode() if run else None, tuple(answers))
